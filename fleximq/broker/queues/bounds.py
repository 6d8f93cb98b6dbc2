"""The bounds of one queue, in messages and bytes: they refuse publications, or drop the oldest messages.

Messages that are too old do not count: they are dropped before any others are dropped or refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fleximq.broker.queues.expiry import Expiry
from fleximq.broker.queues.in_flight import IN_FLIGHT_OVERHEAD
from fleximq.broker.queues.own_expiries import OwnExpiries
from fleximq.broker.queues.stored_messages import StoredMessages
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Message
from fleximq.values.message_cost import OVERHEAD

#: Why a queue refuses.
FULL = "queue is full"
#: Counted for messages that a full queue drops.
DROPPED = CountedEvent(EventFamily.DROPPED, "queue full")


@dataclass(slots=True, eq=False, repr=False)
class Bounds:
    """``maxMessages`` is the maximum number of messages waiting and in flight together, and ``maxBytes`` their maximum
    cost, in a durable queue only that of volatile ones. ``lanes`` are the bounds of all lanes of a queue that has
    several, lowest priority first, this one included: each of them counts the messages of all.
    """

    maxMessages: int
    maxBytes: int
    _stored: StoredMessages
    expiry: Expiry | None
    ownExpiries: OwnExpiries | None = None
    lanes: Sequence["Bounds"] = ()

    def admits(self, count: int, size: int) -> str | None:
        """Return None if ``count`` more messages with ``size`` bytes fit, else the reason of the refusal."""
        size += OVERHEAD * count
        if not self.isOver(count, size):
            return None
        return FULL if self._staysFull(partial(self.isOver, count, size), count, size) else None

    def admitsAlone(self, count: int, size: int) -> str | None:
        """Return None if so many messages would fit into an empty queue, else the reason of the refusal."""
        alone = self._stored.backlog.occupied(size + OVERHEAD * count) <= self.maxBytes
        return None if alone and count <= self.maxMessages else FULL

    def isHeavier(self, most: int) -> bool:
        """Tell whether the queue weighs more than ``most`` bytes."""

        def isFull() -> bool:
            return self._stored.weight > most

        return isFull() and self._staysFull(isFull, 0, 0)

    def enforce(self, run: Sequence[Message], size: int) -> None:
        """Drop messages of a full queue: those of the run just added, of cost ``size``, that can never fit, then the
        oldest ones.
        """
        isFull = partial(self.isOver, 0, 0)
        if not self._staysFull(isFull, len(run), size):
            return
        for lane in self.lanes:
            lane._dropOldest()
        if self.lanes:
            return
        stored = self._stored
        large = stored.backlog.dropLarge(run, size, stored.returned.size, self._excess())
        stored.size -= large.size
        number = large.number
        while isFull() and (delivery := stored.returned.first()) is not None:
            stored.dropReturned(delivery)
            number += 1
        oldest = stored.backlog.drop(stored.all - self.maxMessages, self._excess())
        stored.undelivered(oldest)
        stored.counted(DROPPED, number + oldest.number)

    def _dropOldest(self) -> None:
        """Drop the oldest messages of this lane while all lanes together have too many."""
        stored, number = self._stored, 0
        while self.isOver(0, 0) and (delivery := stored.returned.first()) is not None:
            stored.dropReturned(delivery)
            number += 1
        messages, occupied = self._load(0, 0)
        oldest = stored.backlog.drop(messages - self.maxMessages, occupied - self.maxBytes)
        stored.undelivered(oldest)
        stored.counted(DROPPED, number + oldest.number)

    def _staysFull(self, isFull: Callable[[], bool], count: int, size: int) -> bool:
        """Drop messages that are too old, about twice as many as arrive; tell whether the queue is still full."""
        for lane in self.lanes or (self,):
            if lane.expiry is not None:
                lane.expiry.makeRoom(isFull, 2 * (count + size // OVERHEAD))
            if lane.ownExpiries is not None:
                lane.ownExpiries.makeRoom(isFull)
        return isFull()

    def isOver(self, count: int, size: int) -> bool:
        """Tell whether so many more messages and bytes exceed the bounds."""
        messages, occupied = self._load(count, size)
        return messages > self.maxMessages or occupied > self.maxBytes

    def _load(self, count: int, size: int) -> tuple[int, int]:
        """Return the number of messages and the bytes that count, of all lanes, with so many more."""
        stored, flying = self._stored, len(self._stored.flying)
        backlog = stored.backlog
        number = len(backlog) - backlog.gaps + len(stored.returned) + flying + count
        if stored.order is not None:
            number += len(stored.order)
        if stored.recorder is not None:
            number += stored.recorder.dying
        occupied = backlog.occupied(stored.size + size + IN_FLIGHT_OVERHEAD * flying)
        for other in self.lanes:
            if other is not self:
                number += other._stored.all
                occupied += other._stored.backlog.occupied(other._stored.weight)
        return number, occupied

    def _excess(self) -> int:
        return self._stored.backlog.occupied(self._stored.weight) - self.maxBytes
