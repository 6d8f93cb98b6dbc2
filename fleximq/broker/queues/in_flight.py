"""Deliveries of a queue: those in flight, and those that returned.

All deliveries of a queue are hidden for the same time, so the first entry is the next one due. It is an OrderedDict
because finding the first entry of a dict whose front was emptied takes linear time.

Returned deliveries are delivered again before all other messages, lowest tag (oldest message) first. A heap finds it.
An acknowledged delivery leaves the dict at once; its tag stays in the heap until it is on top, or the heap is rebuilt.
"""

from collections import OrderedDict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.waiting_messages import costOf


class Returned:
    """Deliveries by tag, lowest first; ``size`` is the cost of their messages. O(log n) each."""

    __slots__ = ("_byTag", "_heap", "size")

    def __init__(self) -> None:
        self._byTag: dict[int, QueueDelivery] = {}
        self._heap: list[int] = []
        self.size = 0

    def __len__(self) -> int:
        return len(self._byTag)

    def add(self, deliveries: Sequence[QueueDelivery]) -> None:
        """Add deliveries, in any order."""
        for delivery in deliveries:
            self._byTag[delivery.tag] = delivery
            self.size += costOf(delivery.message)
        if len(deliveries) * 8 > len(self._heap):
            self._heap.extend([delivery.tag for delivery in deliveries])
            heapify(self._heap)
        else:
            for delivery in deliveries:
                heappush(self._heap, delivery.tag)

    def first(self) -> QueueDelivery | None:
        """Return the oldest one, or None if there is none."""
        while self._heap:
            delivery = self._byTag.get(self._heap[0])
            if delivery is not None:
                return delivery
            heappop(self._heap)
        return None

    def firsts(self, number: int) -> list[QueueDelivery]:
        """Return up to ``number`` of the oldest ones."""
        found: list[QueueDelivery] = []
        while self._heap and len(found) < number:
            delivery = self._byTag.get(heappop(self._heap))
            if delivery is not None and not (found and found[-1].tag == delivery.tag):
                found.append(delivery)
        for delivery in found:
            heappush(self._heap, delivery.tag)
        return found

    def replace(self, delivery: QueueDelivery) -> bool:
        """Replace the delivery with the same tag; False if it is not here any more."""
        before = self._byTag.get(delivery.tag)
        if before is None:
            return False
        self._byTag[delivery.tag] = delivery
        self.size += costOf(delivery.message) - costOf(before.message)
        return True

    def get(self, tag: int) -> QueueDelivery | None:
        """Return the one with this tag, or None if it is not here."""
        return self._byTag.get(tag)

    def popleft(self) -> QueueDelivery | None:
        """Remove and return the oldest one, or return None if empty."""
        while self._heap:
            delivery = self.remove(heappop(self._heap))
            if delivery is not None:
                return delivery
        return None

    def remove(self, tag: int) -> QueueDelivery | None:
        """Remove and return the one with this tag; None if it is not here."""
        delivery = self._byTag.pop(tag, None)
        if delivery is not None:
            self.size -= costOf(delivery.message)
            if len(self._heap) > 2 * len(self._byTag) + 16:
                self._heap[:] = sorted(self._byTag)
        return delivery

    def deliveries(self) -> list[QueueDelivery]:
        """Return all deliveries, in no particular order."""
        return list(self._byTag.values())

    def clear(self) -> None:
        """Remove all deliveries."""
        self._byTag.clear()
        self._heap.clear()
        self.size = 0


#: The tags of one holder's deliveries.
HeldTags = set[int]


class InFlight:
    """Deliveries by tag, in order of their deadlines, and by the holder they were given to."""

    __slots__ = ("_delivered", "_held")

    def __init__(self) -> None:
        self._delivered: OrderedDict[int, tuple[QueueDelivery, float, HeldTags | None]] = OrderedDict()
        self._held: dict[object, HeldTags] = {}

    def __len__(self) -> int:
        return len(self._delivered)

    def __contains__(self, tag: int) -> bool:
        return tag in self._delivered

    def add(self, deliveries: Sequence[QueueDelivery], due: float, holder: object) -> None:
        """Add deliveries that are due back together, never earlier than those before.

        ``holder`` is any hashable object, remembered until :meth:`leave`, or None.
        """
        held = self._heldBy(holder)
        if held is not None:
            held.update([delivery.tag for delivery in deliveries])
        handed = self._delivered
        for delivery in deliveries:
            handed[delivery.tag] = (delivery, due, held)

    def remove(self, tag: int) -> QueueDelivery | None:
        """Forget a delivery and return it; None if it is not in flight."""
        handed = self._delivered.pop(tag, None)
        if handed is None:
            return None
        delivery, _, held = handed
        if held is not None:
            held.discard(tag)
        return delivery

    def leave(self, holder: object) -> tuple[HeldTags, list[int]]:
        """Forget a holder, whose deliveries stay in flight; return the argument for :meth:`isHeld`, and their tags,
        ascending.
        """
        held = self._held.pop(holder, set())
        return held, sorted(held)

    def isHeld(self, tag: int, held: HeldTags) -> bool:
        """Tell whether the delivery with this tag is in flight and still that of a holder that left."""
        return tag in held and tag in self._delivered and self._delivered[tag][2] is held

    def due(self, now: float, most: int) -> list[int]:
        """Return the tags of deliveries that are due by ``now``, first due first, at most so many."""
        tags: list[int] = []
        for tag, (_, due, _) in self._delivered.items():
            if due > now or len(tags) >= most:
                break
            tags.append(tag)
        return tags

    def firstDue(self) -> float | None:
        """Return when the next delivery is due, None if none is in flight."""
        for _, due, _ in self._delivered.values():
            return due
        return None

    def dues(self) -> list[tuple[int, float]]:
        """Return the tags of all deliveries with the time when each is due, first due first."""
        return [(tag, due) for tag, (_, due, _) in self._delivered.items()]

    def get(self, tag: int) -> QueueDelivery | None:
        """Return the delivery with this tag; None if it is not in flight."""
        handed = self._delivered.get(tag)
        return None if handed is None else handed[0]

    def replace(self, delivery: QueueDelivery) -> None:
        """Replace the delivery with the same tag, which must be in flight."""
        _, due, held = self._delivered[delivery.tag]
        self._delivered[delivery.tag] = (delivery, due, held)

    def deliveries(self) -> list[QueueDelivery]:
        """Return all deliveries, first due first."""
        return [delivery for delivery, _, _ in self._delivered.values()]

    def clear(self) -> None:
        """Remove all deliveries and holders."""
        self._delivered.clear()
        self._held.clear()

    def _heldBy(self, holder: object) -> HeldTags | None:
        """Return the set of a holder's tags, which grows later; None without a holder."""
        if holder is None:
            return None
        return self._held.setdefault(holder, set())
