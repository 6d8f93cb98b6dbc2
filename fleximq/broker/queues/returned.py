"""Deliveries that returned to a queue: they are delivered again before all other messages, lowest tag first.

A heap finds the lowest tag: a tag stays there until it is on top, or the heap is rebuilt.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL
from fleximq.values.message_cost import costOf

_new = tuple.__new__


class Returned(dict[int, QueueDelivery]):
    """Deliveries by tag; ``size`` is the cost of their messages. O(log n) each. Changed by its own methods only."""

    __slots__ = ("_heap", "size")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self.size = 0

    def add(self, deliveries: Sequence[QueueDelivery]) -> None:
        """Add deliveries, in any order."""
        for delivery in deliveries:
            self[delivery.tag] = delivery
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
            delivery = self.get(self._heap[0])
            if delivery is not None:
                return delivery
            heappop(self._heap)
        return None

    def firsts(self, number: int) -> list[QueueDelivery]:
        """Return up to ``number`` of the oldest ones."""
        found: list[QueueDelivery] = []
        while self._heap and len(found) < number:
            delivery = self.get(heappop(self._heap))
            if delivery is not None and not (found and found[-1].tag == delivery.tag):
                found.append(delivery)
        for delivery in found:
            heappush(self._heap, delivery.tag)
        return found

    def take(self, number: int, most: int) -> list[QueueDelivery]:
        """Remove up to ``number`` of the oldest ones, until they cost ``most`` bytes, and up to one that must be read
        from the journal first; return their next deliveries.
        """
        again: list[QueueDelivery] = []
        while len(again) < number and most > 0 and (delivery := self.first()) is not None:
            tag, message, attempts = delivery
            if message.payload is ONLY_IN_JOURNAL:
                break
            self.remove(tag)
            again.append(_new(QueueDelivery, (tag, message, attempts + 1)))
            most -= costOf(message)
        return again

    def replace(self, delivery: QueueDelivery) -> bool:
        """Replace the delivery with the same tag; False if it is not here any more."""
        before = self.get(delivery.tag)
        if before is None:
            return False
        self[delivery.tag] = delivery
        self.size += costOf(delivery.message) - costOf(before.message)
        return True

    def remove(self, tag: int) -> QueueDelivery | None:
        """Remove and return the one with this tag; None if it is not here."""
        delivery = self.pop(tag, None)
        if delivery is not None:
            self.size -= costOf(delivery.message)
            if len(self._heap) > 2 * len(self) + 16:
                self._heap[:] = sorted(self)
        return delivery

    def clear(self) -> None:
        """Remove all deliveries."""
        super().clear()
        self._heap.clear()
        self.size = 0
