"""Records the state of one durable queue in the journal: its deliveries, and the messages that have left it.

State records are collected once per reactor turn, see :class:`fleximq.broker.consumers.state_log.StateLog`; a
checkpoint stores the whole state, from which the queue is restored after a start. Messages are read back by a
:class:`~fleximq.broker.queues.queue_reader.QueueReader`, and last deliveries stay until their dead letters are stored,
see :class:`~fleximq.broker.queues.last_deliveries.LastDeliveries`.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from fleximq.broker.envelope import LastDelivery, QueueDelivery
from fleximq.broker.queues.durable_backlog import DurableBacklog
from fleximq.broker.queues.expiry import Expiry
from fleximq.broker.queues.in_flight import InFlight
from fleximq.broker.queues.last_deliveries import DeadLetterLog, LastDeliveries
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL, placeAt, placeOf
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_reader import QueueReader
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.queues.recorder import Recorder
from fleximq.broker.queues.returned import Returned
from fleximq.values import message_loops
from fleximq.values.message import Message
from fleximq.values.message_cost import cost, costOf
from fleximq.values.records import StoredBatch
from fleximq.values.state_records import QueueAcknowledged, QueueDelivered, QueueMoved, StateRecord

_new = tuple.__new__


class QueueLog(DeadLetterLog, Protocol):
    """The log of the state of durable queues."""

    #: Returns the microseconds since 1970.
    wall: Callable[[], int]

    def changed(self, recorder: "QueueRecorder") -> None:
        """Collect the state records of a queue soon."""


class QueueRecorder(Recorder):
    """The recorder of the queue that is passed to :meth:`serve`.

    :param key: the queue's key in the journal.
    :param withIds: returns messages that were read from the journal with the ids that they had.
    """

    __slots__ = (
        "_again", "_backlog", "_closed", "_gone", "_isWaiting", "_last", "_log", "_queue", "_reader", "_recordedTag",
        "_parked", "_parkedNow", "_records", "_seconds", "_tag", "_used", "key", "restored",
    )  # fmt: skip

    def __init__(
        self,
        key: str,
        log: QueueLog,
        backlog: DurableBacklog,
        withIds: Callable[[Sequence[Message]], Sequence[Message]],
    ) -> None:
        self.key = key
        self.restored = 0
        self._log = log
        self._backlog = backlog
        self._last = LastDeliveries(log, withIds, self.gone)
        self._reader = QueueReader(log.journal, backlog, withIds, self.gone)
        self._recordedTag = 0
        self._records: list[StateRecord] = []
        self._parked: list[int] = []
        self._parkedNow: list[int] = []
        self._seconds = 0.0
        self._tag = 0
        self._used = False
        self._isWaiting = False
        self._closed = False
        self._again = array("Q")
        self._gone = array("Q")

    def serve(self, queue: Queue) -> None:
        """Set the queue; it has this recorder and its backlog."""
        self._queue = self._last.queue = self._reader.queue = queue

    @property
    def dying(self) -> int:
        return len(self._last)

    def load(self) -> None:
        self._reader.load()

    def delivered(self, again: Sequence[QueueDelivery], seconds: float) -> None:
        isOther = seconds != self._seconds and (self._again or self._tag != self._recordedTag)
        if isOther or self._parked or self._parkedNow:
            self._recordDeliveries(self._tag)
            self._parked, self._parkedNow = self._parkedNow, []
        self._seconds = seconds
        self._tag = self._backlog.journalTag
        self._again.extend([delivery.message.offset for delivery in again if delivery.message.offset])
        self.use()

    def parked(self, deliveries: Sequence[QueueDelivery]) -> None:
        self._parkedNow = message_loops.offsetsOf([delivery.message for delivery in deliveries])

    def moved(self, deliveries: Sequence[QueueDelivery], seconds: float) -> None:
        self._recordDeliveries(self._tag)
        # Whole milliseconds, so that records can be merged.
        time = -(-(self._log.wall() + round(seconds * 1_000_000)) // 1000) * 1000 if seconds > 0 else 0
        for attempts, some in groupby(deliveries, key=attrgetter("attempts")):
            offsets = message_loops.offsetsOf([delivery.message for delivery in some])
            if offsets:
                self._records.append(QueueMoved(self.key, offsets, attempts, time))
        self._recordSoon()

    def use(self) -> None:
        self._used = True
        self._recordSoon()

    def gone(self, offsets: Iterable[int]) -> None:
        self._gone.extend(offsets)
        self._recordSoon()

    def bury(self, dead: Sequence[LastDelivery]) -> None:
        self._last.bury(dead)

    def withdraw(self, tag: int) -> bool:
        return self._last.withdraw(tag)

    def close(self) -> None:
        self._closed = True
        self._last.clear()

    def _recordSoon(self) -> None:
        if not self._isWaiting:
            self._isWaiting = True
            self._log.changed(self)

    def stateRecords(self) -> list[StateRecord]:
        """Return the state records since the last call."""
        self._isWaiting = False
        if self._closed:
            return []
        self._recordDeliveries(self._backlog.journalTag)
        stateRecords, self._records = self._records, []
        if self._gone:
            stateRecords.append(QueueAcknowledged(self.key, self._gone))
            self._gone = array("Q")
        return stateRecords

    def _recordDeliveries(self, tag: int) -> None:
        """Record the deliveries since the last record, up to this tag. Those that are hidden until their holder leaves
        are recorded as hidden until now, since no holder outlives the broker.
        """
        if self._used or tag != self._recordedTag or self._again:
            until = self._log.wall() + round(self._seconds * 1_000_000) if self._used else 0
            self._records.append(QueueDelivered(self.key, tag, self._again, until))
            self._recordedTag, self._used, self._again = tag, False, array("Q")
        self._tag = tag
        if self._parked:
            self._records.append(QueueMoved(self.key, self._parked, 0, 0))
            self._parked = []

    def lowest(self) -> int:
        queue = self._queue
        if not (len(queue.stored.flying) or queue.stored.returned or queue.stored.order or self._last):
            return self._backlog.lowest()
        offsets = [delivery.message.offset for delivery in self._delivered()]
        return min((offset for offset in offsets if offset), default=0) or self._backlog.lowest()

    def readAge(self, found: Callable[[float | None], None]) -> None:
        first = self._queue.stored.returned.first()
        offset = self._backlog.lowest() if first is None else first.message.offset

        def read(batches: Sequence[StoredBatch], _: int) -> None:
            times = [time for batch in batches for time in batch.timestamps]
            found(max(0, self._log.wall() - times[0]) / 1e6 if times else None)

        self._log.journal.fetchRecords([offset], 1, read)

    def _delivered(self) -> list[QueueDelivery]:
        return [*self._queue.stored.delivered(), *[_new(QueueDelivery, last[:3]) for last in self._last.values()]]

    def writeInto(self, state: QueueState) -> None:
        queue, backlog = self._queue, self._backlog
        wall, now = self._log.wall(), queue.deadlines.seconds()
        state.lastTag = backlog.journalTag
        if not (queue.expiry or len(backlog) or queue.stored.all):
            return  # quickly, as a checkpoint describes all queues in one turn
        state.onDisk = backlog.offsets()
        delivered = [each for each in self._delivered() if each.message.offset]
        tags = self._tagsWithoutVolatile(delivered)
        state.handed = {each.message.offset: tag for each, tag in zip(delivered, tags, strict=True)}
        state.attempts = {tag: each.attempts for each, tag in zip(delivered, tags, strict=True) if each.attempts != 1}
        if not state.isSubscription:
            due = queue.stored.flying.dues(held=False)  # no holder outlives the broker
            state.due = {
                tag: wall + round((due[each.tag] - now) * 1e6)
                for each, tag in zip(delivered, tags, strict=True)
                if each.tag in due
            }
            own = queue.stored.flying.own()
            state.delayed = {tag for each, tag in zip(delivered, tags, strict=True) if each.tag in own}
        if queue.expiry is not None:
            fewer = backlog.volatileGone + backlog.volatile
            state.ages.extend((tag - fewer, wall - round((now - time) * 1e6)) for tag, time in queue.expiry.ages)
        for time, first, last in queue.ownExpiries or ():
            until = wall + round((time - now) * 1e6)
            state.expiries += [(until, *part) for part in self._withoutVolatile(first, last, delivered, tags)]

    def _withoutVolatile(
        self, first: int, last: int, delivered: Sequence[QueueDelivery], new: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return the ranges that tags would have if all messages had been in the journal, without those that left.

        :param new: the tags of these deliveries in the journal.
        """
        backlog = self._backlog
        if not (backlog.volatile or backlog.volatileGone):
            return [(first, last)]
        volatile = backlog.volatileTags()
        waiting = range(max(first, backlog.lastTag + 1), last + 1)
        fewer = backlog.volatileGone
        tags = [tag - fewer - bisect_left(volatile, tag) for tag in waiting if tag not in volatile]
        tags += [other for each, other in zip(delivered, new, strict=True) if first <= each.tag <= last]
        return [(tag, tag) for tag in tags]

    def _tagsWithoutVolatile(self, delivered: Sequence[QueueDelivery]) -> list[int]:
        """Return the tags that these deliveries would have if all messages had been in the journal.

        Only their order matters: after a restart no consumer settles by a tag of an earlier connection, and only work
        queues contain volatile messages.
        """
        tags = [each.tag for each in delivered]
        if not self._backlog.volatileGone:
            return tags
        new = {tag: place for place, tag in enumerate(sorted(tags), self._backlog.journalTag - len(tags) + 1)}
        return [new[tag] for tag in tags]

    def restore(self, state: QueueState) -> list[QueueDelivery]:
        queue = self._queue
        wall, now = self._log.wall(), queue.deadlines.seconds()
        self._backlog.restore(state.onDisk, state.lastTag)
        self._recordedTag = self._tag = state.lastTag
        self.restored = queue.stored.arrived
        again, flying, found = [], [], list[QueueDelivery]()
        for offset, tag in state.handed.items():
            delivery = _new(QueueDelivery, (tag, placeAt(offset), state.attempts.get(tag, 1)))
            due = state.due.get(tag, 0)
            if due <= wall:
                again.append(delivery)
            elif tag in state.delayed:
                found.append(delivery)
                queue.stored.flying.delay(delivery, now + (due - wall) / 1e6)
            else:
                flying.append((min(due, wall + round(queue.redelivery * 1e6)), tag, delivery))
        # The last deliveries end in the next turn, and their messages become dead letters.
        dying = [_new(QueueDelivery, last[:3]) for last in queue.limit.last(again)]
        if dying:
            gone = {delivery.tag for delivery in dying}
            again = [delivery for delivery in again if delivery.tag not in gone]
            queue.stored.flying.addAgain(dying, now, None)
        flying.sort()
        for due, _, delivery in flying:
            queue.stored.flying.addAgain([delivery], now + (due - wall) / 1e6, None)
        if queue.expiry is not None:
            _restoreAges(queue.expiry, state, queue.stored.arrived, wall, now)
        for time, first, last in state.expiries:
            queue.makeOwnExpiries().add(now + (time - wall) / 1e6, first, last)
        found += [*dying, *(delivery for _, _, delivery in flying)]
        if queue.stored.order is not None:
            for delivery in found:
                queue.stored.order.meet(delivery)
        queue.stored.size += cost([delivery.message for delivery in (*again, *found)])
        queue.stored.returned.add(again)
        return [*again, *found]

    def know(self, tag: int, message: Message) -> bool:
        queue = self._queue
        place = placeOf(message)
        deliveries: InFlight | Returned = queue.stored.flying if tag in queue.stored.flying else queue.stored.returned
        delivery = deliveries.get(tag)
        if delivery is not None and delivery.message.payload is ONLY_IN_JOURNAL:
            queue.stored.size += costOf(place) - costOf(delivery.message)
            deliveries.replace(_new(QueueDelivery, (tag, place, delivery.attempts)))
        return delivery is not None


def _restoreAges(expiry: Expiry, state: QueueState, last: int, wall: int, now: float) -> None:
    """Restore when messages arrived; those that did not expire before the restart count from now on."""
    for tag, time in state.ages:
        expiry.ages.add(tag, now - max(0, wall - time) / 1e6)  # the system clock may have been set back
    isKnown = bool(state.ages) and state.ages[-1][0] >= last
    if not isKnown and (len(state.onDisk) or state.handed):
        expiry.ages.add(last, now)
    expiry.watch()
