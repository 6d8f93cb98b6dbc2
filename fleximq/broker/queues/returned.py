"""What a queue had handed out and got back: to be given again before all else, in the original order.

Tags count up in order of arrival, so the lowest tag is the oldest message. A heap finds it; a dict lets an
acknowledgement that comes late take any of them out, which the heap learns of only when the tag comes up, or when
most of its tags are such leftovers.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from fleximq.broker.envelope import Delivery
from fleximq.broker.queues.waiting_messages import costOf


class Returned:
    """Deliveries by tag, lowest first; ``size`` is the cost of their messages. O(log n) each."""

    __slots__ = ("_byTag", "_heap", "size")

    def __init__(self) -> None:
        self._byTag: dict[int, Delivery] = {}
        self._heap: list[int] = []
        self.size = 0

    def __len__(self) -> int:
        """Return the number of deliveries."""
        return len(self._byTag)

    def add(self, deliveries: Sequence[Delivery]) -> None:
        """Take these back, in whatever order."""
        for delivery in deliveries:
            self._byTag[delivery.tag] = delivery
            self.size += costOf(delivery.message)
        if len(deliveries) * 8 > len(self._heap):
            self._heap.extend([delivery.tag for delivery in deliveries])
            heapify(self._heap)
        else:
            for delivery in deliveries:
                heappush(self._heap, delivery.tag)

    def first(self) -> Delivery | None:
        """Return the oldest one, or None if there is none."""
        while self._heap:
            delivery = self._byTag.get(self._heap[0])
            if delivery is not None:
                return delivery
            heappop(self._heap)
        return None

    def firsts(self, number: int) -> list[Delivery]:
        """Return the oldest ones, so many or as many as there are."""
        found: list[Delivery] = []
        while self._heap and len(found) < number:
            delivery = self._byTag.get(heappop(self._heap))
            if delivery is not None and not (found and found[-1].tag == delivery.tag):
                found.append(delivery)
        for delivery in found:
            heappush(self._heap, delivery.tag)
        return found

    def replace(self, delivery: Delivery) -> bool:
        """Put this in the place of the one with the same tag; False if that is not here any more."""
        before = self._byTag.get(delivery.tag)
        if before is None:
            return False
        self._byTag[delivery.tag] = delivery
        self.size += costOf(delivery.message) - costOf(before.message)
        return True

    def get(self, tag: int) -> Delivery | None:
        """Return the one with this tag, or None if it is not here."""
        return self._byTag.get(tag)

    def popleft(self) -> Delivery | None:
        """Take the oldest one out, or return None if there is none."""
        while self._heap:
            delivery = self.remove(heappop(self._heap))
            if delivery is not None:
                return delivery
        return None

    def remove(self, tag: int) -> Delivery | None:
        """Take out the one with this tag, or return None if it is not here."""
        delivery = self._byTag.pop(tag, None)
        if delivery is not None:
            self.size -= costOf(delivery.message)
            if len(self._heap) > 2 * len(self._byTag) + 16:
                self._heap[:] = sorted(self._byTag)
        return delivery

    def deliveries(self) -> list[Delivery]:
        """Return all deliveries, in no particular order."""
        return list(self._byTag.values())

    def clear(self) -> None:
        """Throw everything away."""
        self._byTag.clear()
        self._heap.clear()
        self.size = 0
