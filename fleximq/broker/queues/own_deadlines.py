"""Deliveries that have a deadline of their own: messages that wait for a retry, leases that were extended, and
deliveries that are due before earlier ones.

A heap finds the one that is due first; an entry stays there until it is on top, or the heap is rebuilt.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from fleximq.broker.queues.delivery_spans import Span


class OwnDeadlines(dict[int, Span]):
    """A span of one tag for each delivery, by tag. O(log n) each. Changed by its own methods only.

    ``delayed`` are the tags of messages that wait for a retry: no consumer has them.
    """

    __slots__ = ("_heap", "delayed")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self.delayed: set[int] = set()

    def put(self, tag: int, attempts: int, due: float, held: set[Span] | None, isDelayed: bool = False) -> None:
        """Set the deadline of a delivery."""
        self.remove(tag)
        span = self[tag] = Span(tag, tag + 1, attempts, due, held)
        if held is not None:
            held.add(span)
        if isDelayed:
            self.delayed.add(tag)
        heappush(self._heap, (due, tag))

    def remove(self, tag: int) -> None:
        """Forget the deadline of a delivery; a no-op if it has none of its own."""
        span = self.pop(tag, None)
        if span is None:
            return
        span.leave()
        self.delayed.discard(tag)
        if len(self._heap) > 2 * len(self) + 16:
            self._heap[:] = [(each.due, tag) for tag, each in self.items()]
            heapify(self._heap)

    def firstDue(self) -> float | None:
        """Return when the next one is due, None if there is none."""
        heap = self._heap
        while heap:
            due, tag = heap[0]
            span = self.get(tag)
            if span is not None and span.due == due:
                return due
            heappop(heap)
        return None

    def dueBy(self, now: float) -> Iterator[int]:
        """Iterate over the tags that are due by ``now``, first due first; each must be removed before the next."""
        while (due := self.firstDue()) is not None and due <= now:
            yield self._heap[0][1]
