"""A queue that survives a restart: its messages and its state are in the journal.

Memory holds the messages near its head, and delivered ones while they fit; of all others only the offset. Until the
next message is read, the queue is ``loading``. A message's tag is its arrival number, the same after a restart.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Protocol

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.durable_backlog import DurableBacklog
from fleximq.broker.queues.in_flight import InFlight, Returned
from fleximq.broker.queues.queue import DEAD_LETTERS, DROPPED, FULL, REDELIVERED, Queue
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.queues.waiting import MessageAges
from fleximq.interfaces import IJournal
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import ANY, cost, costOf
from fleximq.values.state_records import QueueAcknowledged, QueueDelivered, StateRecord

#: Counted when the journal cannot return a message.
LOST = CountedEvent(EventFamily.LOST, "damaged journal")
#: Counted when a dead letter cannot be stored, so that the message stays in its queue.
DEAD_LETTERS_REFUSED = "dead letters that could not be kept"

#: Bytes and messages read at once.
READ_BYTES = 1 << 20
READ_MESSAGES = 4096

#: The payload of a message that is only in the journal; known by identity.
_ONLY_IN_JOURNAL = b"(in the journal)"
_new = tuple.__new__


class QueueLog(Protocol):
    """The log of the state of durable queues."""

    journal: IJournal
    #: Returns the microseconds since 1970.
    wall: Callable[[], int]

    def changed(self, queue: "DurableQueue") -> None:
        """Collect the queue's state records soon."""

    def deadLetter(self, queue: Queue, delivery: QueueDelivery, kept: Callable[[str | None], None]) -> None:
        """Publish the message of a queue's last delivery as a dead letter; report None if it is stored, else the reason
        of the failure.
        """


class DurableQueue(Queue):
    """As :class:`fleximq.broker.queues.queue.Queue`, in the journal.

    ``maxBytes`` bounds only volatile messages; ``size`` is the cost of the messages in memory.

    :param key: the queue's key in the journal.
    :param memory: bytes that its messages may take; of messages beyond it only the offsets are in memory.
    :param withIds: returns messages that were read from the journal with the ids that they had.
    """

    __slots__ = (
        "_again", "_dead", "_gone", "_memory", "_restoreIds", "_recordedTag", "_queueLog", "_reading", "_used",
        "_volatile", "_whenLoaded", "_willRecord", "key",
    )  # fmt: skip
    _backlog: DurableBacklog  # type: ignore[assignment]  # it takes the place of the other

    def __init__(
        self,
        *,
        key: str,
        queueLog: QueueLog,
        memory: int,
        withIds: Callable[[Sequence[Message]], Sequence[Message]] = lambda messages: messages,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.key = key
        self._queueLog = queueLog
        self._memory = memory
        self._restoreIds = withIds
        self._backlog = DurableBacklog(memory // 2)
        self._dead: dict[int, QueueDelivery] = {}
        self._reading = False
        self._whenLoaded: list[Callable[[], object]] = []
        self._recordedTag = 0
        self._volatile = 0
        self._used = False
        self._willRecord = False
        self._again = array("Q")
        self._gone = array("Q")

    @property
    def depth(self) -> int:
        """The number of waiting messages without gaps."""
        return super().depth - self._backlog.gaps

    @property
    def kept(self) -> int:
        """The number of all messages, also of those whose dead letters are not stored yet."""
        return super().kept + len(self._dead)

    @property
    def loading(self) -> bool:
        again = self._returned.first()
        if again is not None:
            return again.message.payload is _ONLY_IN_JOURNAL
        return not self._backlog.inMemory and len(self._backlog) > 0

    def first(self, number: int) -> list[tuple[Message, int]]:
        """Return the first of :meth:`Queue.first`, up to one that is only on disk."""
        return list(takewhile(lambda each: each[0].payload is not _ONLY_IN_JOURNAL, super().first(number)))

    def whenLoaded(self, call: Callable[[], object]) -> None:
        self._whenLoaded.append(call)
        self._load()

    def admits(self, count: int, size: int) -> str | None:
        return super().admits(count, 0)

    def admitsAlone(self, count: int, size: int) -> str | None:
        return FULL if count > self.maxMessages else None

    def _exceeds(self, count: int, size: int) -> bool:
        isOver = self.kept + count > self.maxMessages or self._backlog.volatileSize > self.maxBytes
        return isOver and self._stillExceeds(count, size)

    def _available(self) -> int:
        return 0 if self.loading else len(self._returned) + self._backlog.inMemory

    def deliver(self, rendered: Sequence[Message], count: int) -> None:
        if self._closed or not rendered:
            return
        if not (rendered[0].offset and self._backlog.onDisk):
            rendered = self._restoreIds(rendered)
        self.size += self._backlog.append(rendered)
        if self._ages is not None:
            self._age(self._ages)
        if self.dropsOldest and self._exceeds(0, 0):
            dropped = 0
            while self._exceeds(0, 0) and self._dropOldest():
                dropped += 1
            self.counted(DROPPED, dropped)
        if self._waiters:
            self._waiters.wake(self._available)

    def takeMany(self, holder: object, number: int, most: int = ANY) -> list[QueueDelivery]:
        """As :meth:`Queue.takeMany`, of the messages that are read."""
        if self._ages is not None:
            self.expire()
        while self._ofGoneHolders and len(self._returned) < number:
            self._takeBackPortion()
        if self.loading:
            self._load()
        deliveries = self._takeReturned(holder, number, most)
        if self._returned:
            self._load()
            return deliveries
        if deliveries:
            most -= cost([delivery.message for delivery in deliveries])
        entries = self._backlog.popMany(number - len(deliveries), most)
        first = [
            _new(QueueDelivery, (tag, message, 1))
            for tag, message in enumerate(entries, self.lastTag + 1)
            if message is not None
        ]
        self.lastTag += len(entries)
        if self._backlog.volatile:
            self._countVolatileTaken(sum(1 for delivery in first if not delivery.message.offset))
        self._hide(first, holder, False)
        if self._backlog.isShort:
            self._load()
        return deliveries + first if deliveries else first

    def take(
        self, holder: object, number: int, most: int = ANY
    ) -> tuple[Sequence[int], Sequence[Message], Iterable[int]]:
        deliveries = self.takeMany(holder, number, most)
        tags, messages, attempts = zip(*deliveries, strict=True) if deliveries else ((), (), ())
        return tags, messages, attempts

    def _takeReturned(self, holder: object, number: int, most: int) -> list[QueueDelivery]:
        deliveries: list[QueueDelivery] = []
        while len(deliveries) < number and most > 0:
            delivery = self._returned.first()
            if delivery is None or delivery.message.payload is _ONLY_IN_JOURNAL:
                break
            self._returned.remove(delivery.tag)
            deliveries.append(_new(QueueDelivery, (delivery.tag, delivery.message, delivery.attempts + 1)))
            most -= costOf(delivery.message)
        if deliveries:
            self.counted(REDELIVERED, len(deliveries))
        self._hide(deliveries, holder, True)
        self._again.extend([delivery.message.offset for delivery in deliveries if delivery.message.offset])
        return deliveries

    def _hide(self, deliveries: list[QueueDelivery], holder: object, again: bool) -> None:
        if not deliveries:
            return
        kept = deliveries if self.size <= self._memory else self._withoutPayloads(deliveries)
        due = self._seconds() + self.redelivery
        if again:
            self._inFlight.addAgain(kept, due, holder)
        else:
            self._inFlight.add([each[0] for each in kept], [each[1] for each in kept], due, holder)
        if self._deadline is None:
            self._arm(self.redelivery)
        self._used = True
        self._recordSoon()

    def _withoutPayloads(self, deliveries: list[QueueDelivery]) -> list[QueueDelivery]:
        """Return the deliveries with only the offsets of those messages that can be read again."""
        places = [_new(QueueDelivery, (tag, _placeOf(message), attempts)) for tag, message, attempts in deliveries]
        self.size += cost([each.message for each in places]) - cost([each.message for each in deliveries])
        return places

    def _countVolatileTaken(self, number: int) -> None:
        """Count delivered volatile messages: the journal's numbers must not include them."""
        self._backlog.volatile -= number
        self._volatile += number

    def use(self) -> None:
        """Record that a consumer asked for a message, even if the queue is empty."""
        self._used = True
        self._recordSoon()

    def _recordSoon(self) -> None:
        if not self._willRecord:
            self._willRecord = True
            self._queueLog.changed(self)

    def _acknowledged(self, messages: Sequence[Message]) -> None:
        super()._acknowledged(messages)
        offsets = [message.offset for message in messages if message.offset]
        if offsets:
            self._gone.extend(offsets)
            self._recordSoon()

    def _forget(self, offset: int) -> None:
        if offset:
            self._gone.append(offset)
        self._recordSoon()

    def close(self) -> int:
        dropped = super().close()
        self._dead.clear()
        self._whenLoaded.clear()
        return dropped

    def _drop(self, delivery: QueueDelivery) -> None:
        super()._drop(delivery)
        self._forget(delivery.message.offset)

    def _dropOldest(self) -> bool:
        delivery = self._returned.first()
        if delivery is not None:
            self._drop(delivery)
            return True
        while len(self._backlog):
            if self._dropFirst():
                return True
        return False

    def _dropFirst(self) -> bool:
        """Drop the backlog's first message; False if it is a gap. Its tag is not used."""
        offset, size = self._backlog.dropOldest()
        self.size -= size
        self.lastTag += 1
        if size and not offset:
            self._countVolatileTaken(1)
        self._forget(offset)
        return bool(offset or size)

    def _expireBacklog(self, until: int) -> int:
        expired = 0
        while self.lastTag < until and len(self._backlog):
            expired += self._dropFirst()
        return expired

    def _deadLetterAll(self, dead: list[QueueDelivery]) -> None:
        """Publish dead letters, read from the journal if need be; the messages stay until these are stored."""
        self._died(dead)
        if self.onDead is None:
            self.counted(DROPPED, len(dead))
            for delivery in dead:
                self._forget(delivery.message.offset)
            return
        self._dead |= {delivery.tag: delivery for delivery in dead}
        for delivery in dead:
            if delivery.message.payload is not _ONLY_IN_JOURNAL:
                self._deadLetterOne(delivery)
        self._readDead([delivery for delivery in dead if delivery.message.payload is _ONLY_IN_JOURNAL])

    def _readDead(self, dead: Sequence[QueueDelivery]) -> None:
        if dead and not self._closed:
            portion = sorted(dead[:READ_MESSAGES], key=lambda delivery: delivery.message.offset)
            offsets = [delivery.message.offset for delivery in portion]
            self._queueLog.journal.fetch(
                offsets, READ_BYTES, partial(self._deadLettersRead, portion, dead[READ_MESSAGES:])
            )

    def _deadLettersRead(
        self, portion: Sequence[QueueDelivery], rest: Sequence[QueueDelivery], messages: list[Message]
    ) -> None:
        if self._closed:
            return
        found = {message.offset: message for message in self._restoreIds(messages)}
        until = messages[-1].offset if messages else portion[-1].message.offset
        later = []
        for delivery in portion:
            offset = delivery.message.offset
            if offset > until:
                later.append(delivery)
            elif delivery.tag not in self._dead:
                continue  # acknowledged late
            elif offset in found:
                self._deadLetterOne(delivery._replace(message=found[offset]))
            elif self._dead.pop(delivery.tag, None) is not None:
                self.counted(LOST, 1)
                self._forget(offset)
        self._readDead([*later, *rest])

    def _deadLetterOne(self, delivery: QueueDelivery) -> None:
        try:
            self._queueLog.deadLetter(self, delivery, partial(self._deadLettered, delivery.tag))
        except Exception as error:
            self._deadLettered(delivery.tag, str(error))
            self.deadlines.onError(error)

    def _deadLettered(self, tag: int, reason: str | None) -> None:
        delivery = self._dead.pop(tag, None)
        if delivery is None:
            return
        if reason is None:
            self.counted(DEAD_LETTERS, 1)
            self._forget(delivery.message.offset)
            return
        self.counted(DEAD_LETTERS_REFUSED, 1)
        self.size += costOf(delivery.message)
        self._returned.add([delivery])
        self.moved(delivery, False)
        if self._waiters:
            self._waiters.wake(self._available)

    def _acknowledgeLate(self, tag: int) -> bool:
        delivery = self._dead.pop(tag, None)
        if delivery is not None:
            self._forget(delivery.message.offset)
        return super()._acknowledgeLate(tag) or delivery is not None

    def withdraw(self, number: int, offset: int, isIt: Callable[[Message], bool]) -> bool:
        size = self._backlog.remove(offset) if offset else None
        if size is None:
            return False
        self.size -= size
        self._forget(offset)
        return True

    def _load(self) -> None:
        """Start the next read, unless one is running."""
        if self._reading or self._closed:
            return
        again = self._returned.first()
        if again is not None and again.message.payload is _ONLY_IN_JOURNAL:
            self._reading = True
            places = [each for each in self._returned.firsts(READ_MESSAGES) if each.message.payload is _ONLY_IN_JOURNAL]
            offsets = [each.message.offset for each in places]
            self._queueLog.journal.fetch(offsets, READ_BYTES, partial(self._returnedRead, places))
        elif self._backlog.isShort:
            wanted = self._backlog.wanted(READ_MESSAGES)
            if wanted:
                self._reading = True
                self._queueLog.journal.fetch(wanted, READ_BYTES, partial(self._backlogRead, wanted))
            else:
                self._loaded()

    def _returnedRead(self, places: Sequence[QueueDelivery], messages: list[Message]) -> None:
        self._reading = False
        if self._closed:
            return
        found = {message.offset: message for message in self._restoreIds(messages)}
        until = messages[-1].offset if messages else places[-1].message.offset
        for place in places:
            message = found.get(place.message.offset)
            if message is not None:
                delivery = _new(QueueDelivery, (place.tag, message, place.attempts))
                if self._returned.replace(delivery):
                    self.size += costOf(delivery.message) - costOf(place.message)
            elif place.message.offset <= until and self._returned.remove(place.tag) is not None:
                self.size -= costOf(place.message)
                self.moved(place, True)
                self._lost([place.message.offset])
        self._loaded()

    def _backlogRead(self, wanted: Sequence[int], messages: list[Message]) -> None:
        self._reading = False
        if self._closed:
            return
        size, lost = self._backlog.addLoaded(wanted, self._restoreIds(messages))
        self.size += size
        self._lost(lost)
        self._loaded()

    def _lost(self, offsets: Sequence[int]) -> None:
        if offsets:
            self.counted(LOST, len(offsets))
            for offset in offsets:
                self._forget(offset)

    def _returnOrDeadLetter(self, deliveries: list[QueueDelivery]) -> None:
        super()._returnOrDeadLetter(deliveries)
        if self.loading:
            self._load()

    def _loaded(self) -> None:
        if self._backlog.isShort or self.loading:
            self._load()
        calls, self._whenLoaded = self._whenLoaded, []
        for call in calls:
            try:
                call()
            except Exception as error:
                self.deadlines.onError(error)
        if self._waiters:
            self._waiters.wake(self._available)

    def stateRecords(self) -> list[StateRecord]:
        """Return the state records since the last call."""
        self._willRecord = False
        if self._closed:
            return []
        stateRecords: list[StateRecord] = []
        if self._used or self.lastTag != self._recordedTag or self._again:
            until = self._queueLog.wall() + round(self.redelivery * 1_000_000) if self._used else 0
            stateRecords.append(QueueDelivered(self.key, self.lastTag - self._volatile, self._again, until))
            self._recordedTag, self._used, self._again = self.lastTag, False, array("Q")
        if self._gone:
            stateRecords.append(QueueAcknowledged(self.key, self._gone))
            self._gone = array("Q")
        return stateRecords

    def lowest(self) -> int:
        """Return the lowest offset that is needed, 0 if the queue needs none."""
        if not (self._inFlight or self._returned or self._dead):
            return self._backlog.lowest()
        offsets = [delivery.message.offset for delivery in (*self.delivered(), *self._dead.values())]
        low = min((offset for offset in offsets if offset), default=0)
        return low or self._backlog.lowest()

    def writeInto(self, state: QueueState) -> None:
        """Write the part of this queue that is in the journal into a state."""
        wall, now = self._queueLog.wall(), self._seconds()
        state.lastTag = self.lastTag - self._volatile
        if not (self._ages or len(self._backlog) or self._inFlight or self._returned or self._dead):
            return  # quickly, as a checkpoint describes all queues in one turn
        state.onDisk = self._backlog.offsets()
        delivered = [each for each in (*self.delivered(), *self._dead.values()) if each.message.offset]
        tags = self._tagsWithoutVolatile(delivered)
        state.handed = {each.message.offset: tag for each, tag in zip(delivered, tags, strict=True)}
        state.attempts = {tag: each.attempts for each, tag in zip(delivered, tags, strict=True) if each.attempts != 1}
        if not state.isSubscription:
            due = self._inFlight.dues()
            state.due = {
                tag: wall + round((due[each.tag] - now) * 1e6)
                for each, tag in zip(delivered, tags, strict=True)
                if each.tag in due
            }
        if self._ages is not None:
            fewer = self._volatile + self._backlog.volatile
            state.ages.extend((tag - fewer, wall - round((now - time) * 1e6)) for tag, time in self._ages)

    def _tagsWithoutVolatile(self, delivered: Sequence[QueueDelivery]) -> list[int]:
        """Return the tags that these deliveries would have if all messages had been in the journal.

        Only their order matters: clients never see them, since only work queues, where messages have ids, contain
        volatile ones.
        """
        tags = [each.tag for each in delivered]
        if not self._volatile:
            return tags
        first = self.lastTag - self._volatile - len(tags) + 1
        new = {tag: place for place, tag in enumerate(sorted(tags), first)}
        return [new[tag] for tag in tags]

    def restore(self, state: QueueState) -> list[QueueDelivery]:
        """Restore a state, and return its deliveries; those whose hidden time has not ended are in flight again."""
        wall, now = self._queueLog.wall(), self._seconds()
        self.lastTag = self._recordedTag = state.lastTag
        self._backlog.restore(state.onDisk)
        again, flying = [], []
        for offset, tag in state.handed.items():
            message = _new(Message, (_ONLY_IN_JOURNAL, Content.BYTES, 1, None, None, None, False, False, offset))
            delivery = _new(QueueDelivery, (tag, message, state.attempts.get(tag, 1)))
            due = state.due.get(tag, 0)
            if due > wall:
                flying.append((min(due, wall + round(self.redelivery * 1e6)), tag, delivery))
            else:
                again.append(delivery)
        flying.sort()
        for due, _, delivery in flying:
            self._inFlight.addAgain([delivery], now + (due - wall) / 1e6, None)
        if flying:
            self._arm((flying[0][0] - wall) / 1e6)
        if self._ages is not None:
            self._restoreAges(self._ages, state, wall, now)
        found = [delivery for _, _, delivery in flying]
        self.size += cost([delivery.message for delivery in (*again, *found)])
        self._returned.add(again)
        return [*again, *found]

    def _restoreAges(self, ages: MessageAges, state: QueueState, wall: int, now: float) -> None:
        """Restore when messages arrived; those that did not expire before the restart count from now on."""
        for tag, time in state.ages:
            ages.add(tag, now - max(0, wall - time) / 1e6)  # the system clock may have been set back
        last = self.lastTag + len(self._backlog)
        isKnown = bool(state.ages) and state.ages[-1][0] >= last
        if not isKnown and (len(self._backlog) or state.handed):
            ages.add(last, now)
        if ages:
            self._expireLater(ages)

    def know(self, tag: int, message: Message) -> bool:
        """Set the id of a delivery restored with this tag; False if it is not in the queue any more."""
        place = _placeOf(message)
        deliveries: InFlight | Returned = self._inFlight if tag in self._inFlight else self._returned
        delivery = deliveries.get(tag)
        if delivery is not None and delivery.message.payload is _ONLY_IN_JOURNAL:
            self.size += costOf(place) - costOf(delivery.message)
            deliveries.replace(_new(QueueDelivery, (tag, place, delivery.attempts)))
        return delivery is not None


def _placeOf(message: Message) -> Message:
    """Return a message without contents if it can be read again, else the message itself."""
    if not message.offset:
        return message
    return _new(
        Message,
        (_ONLY_IN_JOURNAL, message.content, message.qos, message.message_id, None, None, False, False, message.offset),
    )
