"""Expires single messages of one queue: those whose publishers set ``expires_in``.

They may be anywhere in the queue. Messages that arrived together and expire together are one entry of a heap. One that
is in flight when its time is over is its consumer's; it expires when it returns.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

from fleximq.broker.deadlines import TOLERANCE, Deadline, Deadlines
from fleximq.broker.envelope import LastDelivery, QueueDelivery
from fleximq.broker.queues.backlog import Dropped
from fleximq.broker.queues.expiry import EXPIRED
from fleximq.broker.queues.in_flight import SLICE
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL
from fleximq.broker.queues.stored_messages import StoredMessages
from fleximq.values import message_loops
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Message
from fleximq.values.message_cost import costOf

#: Overdue tags are searched for messages that have left when they are more than twice those in flight and so many.
_UNUSED = 64


class OwnExpiries:
    """The times of messages by tag, and the deadline at which the next ones expire.

    :param prepared: called after the last slice.

    ``bury`` makes dead letters of expired messages; None while they are dropped.
    """

    __slots__ = ("_deadline", "_deadlines", "_heap", "_overdue", "_prepared", "_stored", "bury")

    def __init__(
        self,
        deadlines: Deadlines,
        stored: StoredMessages,
        prepared: Callable[[], None],
        bury: Callable[[Sequence[LastDelivery]], object] | None,
    ) -> None:
        self._deadlines = deadlines
        self._stored = stored
        self._prepared = prepared
        self.bury = bury
        self._deadline: Deadline | None = None
        self._heap: list[tuple[float, int, int]] = []
        self._overdue: set[int] = set()

    def __iter__(self) -> Iterator[tuple[float, int, int]]:
        """Iterate over times, and the first and last tags of messages that expire then; some may have left. Messages in
        flight whose time is over are among them.
        """
        yield from self._heap
        now = self._deadlines.seconds()
        yield from ((now, tag, tag) for tag in self._overdue)

    def arrived(self, messages: Sequence[Message]) -> None:
        """Record the times of messages that are the last ones in the backlog."""
        now, first = self._deadlines.seconds(), self._stored.arrived - len(messages) + 1
        start = 0
        for place in range(1, len(messages) + 1):
            if place == len(messages) or messages[place].head is not messages[start].head:
                head = messages[start].head
                if head is not None and head.expires:
                    self.add(now + head.expires / 1000, first + start, first + place - 1)
                start = place

    def add(self, time: float, first: int, last: int) -> None:
        """Let messages with these tags expire at a time of the clock."""
        heappush(self._heap, (time, first, last))
        if self._heap[0][0] == time:
            self._watch()

    @property
    def isDue(self) -> bool:
        """Whether the time of some messages is over that were not looked at yet."""
        return bool(self._heap) and self._heap[0][0] <= self._deadlines.seconds() + TOLERANCE

    def expire(self, most: int = SLICE) -> None:
        """Expire about so many of the messages whose time is over; the others in later turns."""
        expired: list[LastDelivery] = []
        while most > 0 and self.isDue:
            time, first, last = heappop(self._heap)
            end = min(last, first + most - 1)
            if end < last:
                heappush(self._heap, (time, end + 1, last))
            for tag in range(max(first, 1), end + 1):
                delivery = self._removed(tag)
                if delivery is not None:
                    expired.append(LastDelivery(*delivery, DeathReason.EXPIRED))
            most -= end - first + 1
        self._end(expired)
        self._watch()

    def makeRoom(self, isFull: Callable[[], bool]) -> None:
        """Expire as many as it takes until the queue is not full."""
        while isFull() and self.isDue:
            self.expire()

    def _removed(self, tag: int) -> QueueDelivery | None:
        """Remove a message that waits; None if it has left or is in flight."""
        stored = self._stored
        if tag <= stored.lastTag:
            delivery = stored.removeWaiting(tag)
            if delivery is None and tag in stored.flying:
                self._overdue.add(tag)
                if len(self._overdue) > 2 * len(stored.flying) + _UNUSED:
                    self._overdue = {each for each in self._overdue if each in stored.flying}
            elif delivery is not None:
                stored.size -= costOf(delivery.message)
                stored.ended([tag])
            return delivery
        message = stored.backlog.remove(tag)
        if message is None:
            return None
        if message.payload is not ONLY_IN_JOURNAL:
            stored.size -= costOf(message)
        return QueueDelivery(tag, message, 0)

    def returned(self, deliveries: list[QueueDelivery]) -> list[QueueDelivery]:
        """Expire those of the deliveries that return whose time is over; return the others."""
        if not self._overdue:
            return deliveries
        overdue = [each for each in deliveries if each.tag in self._overdue]
        if not overdue:
            return deliveries
        self._overdue.difference_update([each.tag for each in overdue])
        for delivery in overdue:
            self._stored.size -= costOf(delivery.message)
        self._stored.ended([each.tag for each in overdue])
        self._end([LastDelivery(*delivery, DeathReason.EXPIRED) for delivery in overdue])
        return [each for each in deliveries if each not in overdue]

    def _end(self, expired: Sequence[LastDelivery]) -> None:
        stored = self._stored
        if not expired:
            return
        stored.counted(EXPIRED, len(expired))
        if self.bury is not None:
            self.bury(expired)
            return
        for delivery in expired:
            if delivery.attempts:
                stored.moved(QueueDelivery(*delivery[:3]), True)
        stored.undelivered(Dropped(len(expired), 0, message_loops.offsetsOf([each.message for each in expired])))

    def soon(self) -> None:
        """Expire a slice in the next turn."""
        self.cancel()
        self._deadline = self._deadlines.callLater(0, self._due)

    def _watch(self) -> None:
        self.cancel()
        if self._heap:
            left = self._heap[0][0] - self._deadlines.seconds()
            self._deadline = self._deadlines.callLater(max(0.0, left), self._due)

    def cancel(self) -> None:
        """Cancel the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _due(self) -> None:
        self._deadline = None
        self.expire()
        if not self.isDue:
            self._prepared()

    def clear(self) -> None:
        """Forget all."""
        self.cancel()
        self._heap.clear()
        self._overdue.clear()
