"""A queue that outlives the process: its messages are in the journal, and so is what became of them.

It keeps little in memory: what is near its head, and what was handed out as long as there is room. Of all else it knows
only the place in the journal, and reads it back in time. Who asks for a message that is not read yet finds the queue
``loading`` and asks again when it was (:meth:`DurableQueue.whenLoaded`).

A message's tag is its arrival number, whatever happens, so tags are the same after a restart.
"""

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.durable_backlog import DurableBacklog
from fleximq.broker.queues.in_flight import InFlight, Returned
from fleximq.broker.queues.queue import DEAD_LETTERS, DROPPED, FULL, REDELIVERED, Queue
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.queues.waiting_messages import ANY, cost, costOf
from fleximq.interfaces import IJournal
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Content, Message
from fleximq.values.state_records import QueueAcknowledged, QueueDelivered, StateRecord

#: What is counted when the journal does not give a message back.
LOST = CountedEvent(EventFamily.LOST, "damaged journal")
#: What is counted when a dead letter cannot be kept, so that the message stays where it is.
DEAD_LETTERS_REFUSED = "dead letters that could not be kept"

#: Bytes and messages that are read back at once.
READ_BYTES = 1 << 20
READ_MESSAGES = 4096

#: The payload of a message that is only in the journal; known by identity.
_ELSEWHERE = b"(in the journal)"
_new = tuple.__new__


class QueueLog(Protocol):
    """What a kept queue needs of who keeps it."""

    journal: IJournal

    def wall(self) -> int:
        """Return the microseconds since 1970."""

    def changed(self, queue: "DurableQueue") -> None:
        """Ask the queue for its notes soon."""

    def deadLetter(self, name: str, message: Message, kept: Callable[[str | None], None]) -> None:
        """Bring a message to the dead letters; tell whether it is kept there, or why not."""


def _asItIs(message: Message) -> Message:
    return message


class DurableQueue(Queue):
    """As :class:`fleximq.broker.queues.queue.Queue`, in the journal.

    ``maxBytes`` bounds only what is not in the journal; for all else the bound is ``maxMessages``, and the journal's
    own. ``size`` is the cost of what is in memory.

    :param key: by which the journal knows it.
    :param memory: bytes that its messages may take; beyond it there are only their places.
    :param named: gives a message that was read back what it had when it came.
    """

    _backlog: DurableBacklog  # type: ignore[assignment]  # it takes the place of the other

    def __init__(
        self,
        *,
        key: str,
        keeping: QueueLog,
        memory: int,
        named: Callable[[Message], Message] = _asItIs,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.key = key
        self._keeping = keeping
        self._memory = memory
        self._named = named
        self._backlog = DurableBacklog(memory // 2)
        self._buried: dict[int, QueueDelivery] = {}
        self._reading = False
        self._whenLoaded: list[Callable[[], object]] = []
        self._noted = 0
        self._unkept = 0
        self._used = False
        self._telling = False
        self._again = array("Q")
        self._acknowledged = array("Q")

    # -- what is here and what is not --------------------------------------------------------------

    @property
    def depth(self) -> int:
        """The number of messages that wait."""
        return super().depth - self._backlog.holes

    @property
    def loading(self) -> bool:
        """Whether a message waits that cannot be taken before it was read."""
        again = self._returned.first()
        if again is not None:
            return again.message.payload is _ELSEWHERE
        return not self._backlog.near and len(self._backlog) > 0

    def whenLoaded(self, call: Callable[[], object]) -> None:
        """Call once what is being read has come; to be asked for while ``loading``."""
        self._whenLoaded.append(call)
        self._load()

    def admits(self, count: int, size: int) -> str | None:
        """Return None if ``count`` more messages fit, else why they do not."""
        return super().admits(count, 0)

    def admitsAlone(self, count: int, size: int) -> str | None:
        """Return None if so many would fit were nothing else here, else why they would not."""
        return FULL if count > self.maxMessages else None

    def _exceeds(self, count: int, size: int) -> bool:
        kept = self.depth + len(self._inFlight) + len(self._buried)
        return kept + count > self.maxMessages or self._backlog.unkeptSize > self.maxBytes

    def _available(self) -> int:
        return 0 if self.loading else len(self._returned) + self._backlog.near

    # -- in and out --------------------------------------------------------------------------------

    def deliver(self, rendered: Sequence[Message], count: int) -> None:
        """Put all of these in, in order; what is too much then is dropped, oldest first, and counted."""
        if self._closed or not rendered:
            return
        if self._named is not _asItIs and not (rendered[0].offset and self._backlog.far):
            rendered = [self._named(message) for message in rendered]
        self.size += self._backlog.append(rendered)
        if self._ages is not None:
            self._ages.add(self.lastTag + len(self._backlog), self._seconds())
        if self._dropsOldest and self._exceeds(0, 0):
            dropped = 0
            while self._exceeds(0, 0) and self._dropOldest():
                dropped += 1
            self._counted(DROPPED, dropped)
        if self._waiters:
            self._waiters.wake(self._available)

    def take(self, holder: object = None) -> QueueDelivery | None:
        """Hand out the oldest message; None if there is none, or none that was read yet."""
        if self._ages is None and not self._left and not self._returned:
            message = self._backlog.popleft()
            if message is not None:
                return self._takeFirst(message, holder)
        deliveries = self.takeMany(holder, 1)
        return deliveries[0] if deliveries else None

    def _takeFirst(self, message: Message, holder: object) -> QueueDelivery:
        """Hand out what was the first of the backlog; the quick way of :meth:`takeMany` for a single message."""
        self.lastTag = tag = self.lastTag + 1
        delivery: QueueDelivery = _new(QueueDelivery, (tag, message, 1))
        if not message.offset:
            self._takenUnkept(1)
        kept = delivery if self.size <= self._memory else self._placesOf([delivery])[0]
        self._inFlight.hand(kept, self._seconds() + self._retryAfter, holder)
        if self._deadline is None:
            self._arm(self._retryAfter)
        self._used = True
        if not self._telling:
            self._tell()
        if self._backlog.isShort:
            self._load()
        return delivery

    def takeMany(self, holder: object, number: int, most: int = ANY) -> list[QueueDelivery]:
        """Hand out the oldest messages, ``number`` of them or as many as there are and were read.

        :param most: no more are handed out when these cost so many bytes.
        """
        if self._ages is not None:
            self._expire(self._ages)
        while self._left and len(self._returned) < number:
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
        if self._backlog.unkept:
            self._takenUnkept(sum(1 for delivery in first if not delivery.message.offset))
        self._hide(first, holder)
        if self._backlog.isShort:
            self._load()
        return deliveries + first if deliveries else first

    def _takeReturned(self, holder: object, number: int, most: int) -> list[QueueDelivery]:
        deliveries: list[QueueDelivery] = []
        while len(deliveries) < number and most > 0:
            delivery = self._returned.first()
            if delivery is None or delivery.message.payload is _ELSEWHERE:
                break
            self._returned.remove(delivery.tag)
            deliveries.append(_new(QueueDelivery, (delivery.tag, delivery.message, delivery.attempts + 1)))
            most -= costOf(delivery.message)
        if deliveries:
            self._counted(REDELIVERED, len(deliveries))
        self._hide(deliveries, holder)
        self._again.extend([delivery.message.offset for delivery in deliveries if delivery.message.offset])
        return deliveries

    def _hide(self, deliveries: list[QueueDelivery], holder: object) -> None:
        if not deliveries:
            return
        kept = deliveries if self.size <= self._memory else self._placesOf(deliveries)
        self._inFlight.handMany(kept, self._seconds() + self._retryAfter, holder)
        if self._deadline is None:
            self._arm(self._retryAfter)
        self._used = True
        self._tell()

    def _placesOf(self, deliveries: list[QueueDelivery]) -> list[QueueDelivery]:
        """Return deliveries that take little memory, of those that can be read back."""
        places = [_new(QueueDelivery, (tag, _placeOf(message), attempts)) for tag, message, attempts in deliveries]
        self.size += cost([each.message for each in places]) - cost([each.message for each in deliveries])
        return places

    def _takenUnkept(self, number: int) -> None:
        """Count what was never in the journal: it must not count there either."""
        self._backlog.unkept -= number
        self._unkept += number

    def use(self) -> None:
        """Note that somebody asked for a message, though there may be none."""
        self._used = True
        self._tell()

    def _tell(self) -> None:
        """Have the journal told at the end of the turn."""
        if not self._telling:
            self._telling = True
            self._keeping.changed(self)

    def acknowledge(self, tag: int) -> bool:
        """Remove the message with this tag for good, also if it has returned meanwhile."""
        delivery = self._inFlight.remove(tag) or self._returned.remove(tag)
        if delivery is None:
            return False
        message = delivery.message
        self.size -= costOf(message)
        if message.offset:
            self._acknowledged.append(message.offset)
            if not self._telling:
                self._tell()
        return True

    def _forget(self, offset: int) -> None:
        """Note that a message is not needed any more."""
        if offset:
            self._acknowledged.append(offset)
        self._tell()

    def close(self) -> int:
        """Drop everything, forget who waits, take nothing in any more."""
        dropped = super().close() + len(self._buried)
        self._buried.clear()
        self._whenLoaded.clear()
        return dropped

    # -- what goes without being handed out --------------------------------------------------------

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
        """Throw away the first of the backlog; False if that is a hole. Its tag is not given."""
        offset, size = self._backlog.dropOldest()
        self.size -= size
        self.lastTag += 1
        if size and not offset:
            self._takenUnkept(1)
        self._forget(offset)
        return bool(offset or size)

    def _expireBacklog(self, until: int) -> int:
        expired = 0
        while self.lastTag < until and len(self._backlog):
            expired += self._dropFirst()
        return expired

    def _bury(self, dead: list[QueueDelivery]) -> None:
        """Bring messages to the dead letters, read back if need be; they stay here until they are kept there."""
        if self._onDead is None:
            self._counted(DROPPED, len(dead))
            for delivery in dead:
                self._forget(delivery.message.offset)
            return
        self._buried.update({delivery.tag: delivery for delivery in dead})
        for delivery in dead:
            if delivery.message.payload is not _ELSEWHERE:
                self._buryOne(delivery.tag, delivery.message)
        self._readBuried([delivery for delivery in dead if delivery.message.payload is _ELSEWHERE])

    def _readBuried(self, dead: Sequence[QueueDelivery]) -> None:
        if dead and not self._closed:
            portion = sorted(dead[:READ_MESSAGES], key=lambda delivery: delivery.message.offset)
            offsets = [delivery.message.offset for delivery in portion]
            self._keeping.journal.fetch(offsets, READ_BYTES, partial(self._buriedCame, portion, dead[READ_MESSAGES:]))

    def _buriedCame(
        self, portion: Sequence[QueueDelivery], rest: Sequence[QueueDelivery], messages: list[Message]
    ) -> None:
        if self._closed:
            return
        found = {message.offset: message for message in messages}
        until = messages[-1].offset if messages else portion[-1].message.offset
        later = []
        for delivery in portion:
            offset = delivery.message.offset
            if offset > until:
                later.append(delivery)
            elif offset in found:
                self._buryOne(delivery.tag, self._named(found[offset]))
            elif self._buried.pop(delivery.tag, None) is not None:
                self._counted(LOST, 1)
                self._forget(offset)
        self._readBuried([*later, *rest])

    def _buryOne(self, tag: int, message: Message) -> None:
        try:
            self._keeping.deadLetter(self.name, message, partial(self._isBuried, tag))
        except Exception as error:
            self._isBuried(tag, str(error))
            self._deadlines.onError(error)

    def _isBuried(self, tag: int, reason: str | None) -> None:
        delivery = self._buried.pop(tag, None)
        if delivery is None:
            return
        if reason is None:
            self._counted(DEAD_LETTERS, 1)
            self._forget(delivery.message.offset)
            return
        self._counted(DEAD_LETTERS_REFUSED, 1)
        self.size += costOf(delivery.message)
        self._returned.add([delivery])
        self._moved(delivery, False)
        if self._waiters:
            self._waiters.wake(self._available)

    # -- reading back ------------------------------------------------------------------------------

    def _load(self) -> None:
        """Read what is due next, unless something is being read already."""
        if self._reading or self._closed:
            return
        again = self._returned.first()
        if again is not None and again.message.payload is _ELSEWHERE:
            self._reading = True
            places = [each for each in self._returned.firsts(READ_MESSAGES) if each.message.payload is _ELSEWHERE]
            offsets = [each.message.offset for each in places]
            self._keeping.journal.fetch(offsets, READ_BYTES, partial(self._returnedCame, places))
        elif self._backlog.isShort:
            wanted = self._backlog.wanted(READ_MESSAGES)
            if wanted:
                self._reading = True
                self._keeping.journal.fetch(wanted, READ_BYTES, partial(self._backlogCame, wanted))
            else:
                self._loaded()

    def _returnedCame(self, places: Sequence[QueueDelivery], messages: list[Message]) -> None:
        self._reading = False
        if self._closed:
            return
        found = {message.offset: message for message in messages}
        until = messages[-1].offset if messages else places[-1].message.offset
        for place in places:
            message = found.get(place.message.offset)
            if message is not None:
                delivery = _new(QueueDelivery, (place.tag, self._named(message), place.attempts))
                if self._returned.replace(delivery):
                    self.size += costOf(delivery.message) - costOf(place.message)
            elif place.message.offset <= until and self._returned.remove(place.tag) is not None:
                self.size -= costOf(place.message)
                self._moved(place, True)
                self._lost([place.message.offset])
        self._loaded()

    def _backlogCame(self, wanted: Sequence[int], messages: list[Message]) -> None:
        self._reading = False
        if self._closed:
            return
        if self._named is not _asItIs:
            messages = [self._named(message) for message in messages]
        size, lost = self._backlog.came(wanted, messages)
        self.size += size
        self._lost(lost)
        self._loaded()

    def _lost(self, offsets: Sequence[int]) -> None:
        if offsets:
            self._counted(LOST, len(offsets))
            for offset in offsets:
                self._forget(offset)

    def _takeBack(self, deliveries: list[QueueDelivery]) -> None:
        super()._takeBack(deliveries)
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
                self._deadlines.onError(error)
        if self._waiters:
            self._waiters.wake(self._available)

    # -- what the journal is told ------------------------------------------------------------------

    def notes(self) -> list[StateRecord]:
        """Return what has happened since the last call."""
        self._telling = False
        if self._closed:
            return []
        notes: list[StateRecord] = []
        if self._used or self.lastTag != self._noted or self._again:
            until = self._keeping.wall() + round(self._retryAfter * 1_000_000)
            notes.append(QueueDelivered(self.key, self.lastTag - self._unkept, self._again, until))
            self._noted, self._used, self._again = self.lastTag, False, array("Q")
        if self._acknowledged:
            notes.append(QueueAcknowledged(self.key, self._acknowledged))
            self._acknowledged = array("Q")
        return notes

    def lowest(self) -> int:
        """Return the lowest offset that is needed, 0 if there is none."""
        offsets = [delivery.message.offset for delivery in (*self.delivered(), *self._buried.values())]
        low = min((offset for offset in offsets if offset), default=0)
        return low or self._backlog.lowest()

    def describe(self, state: QueueState) -> None:
        """Put into a state what of this queue is in the journal."""
        wall, now = self._keeping.wall(), self._seconds()
        state.lastTag = self.lastTag - self._unkept
        state.far = self._backlog.offsets()
        delivered = [each for each in (*self.delivered(), *self._buried.values()) if each.message.offset]
        tags = self._tagsWithoutUnkept(delivered)
        state.handed = {each.message.offset: tag for each, tag in zip(delivered, tags, strict=True)}
        state.attempts = {tag: each.attempts for each, tag in zip(delivered, tags, strict=True) if each.attempts != 1}
        if not state.isSubscription:
            due = dict(self._inFlight.dues())
            state.due = {
                tag: wall + round((due[each.tag] - now) * 1e6)
                for each, tag in zip(delivered, tags, strict=True)
                if each.tag in due
            }
        if self._ages is not None:
            fewer = self._unkept + self._backlog.unkept
            state.ages.extend((tag - fewer, wall - round((now - time) * 1e6)) for tag, time in self._ages)

    def _tagsWithoutUnkept(self, delivered: Sequence[QueueDelivery]) -> list[int]:
        """Return the tags of these as they would be, had all messages been in the journal.

        They are any that keep the order and leave room for what comes, for nobody saw them: only work queues, in which
        messages have ids, take what is not in the journal.
        """
        tags = [each.tag for each in delivered]
        if not self._unkept:
            return tags
        first = self.lastTag - self._unkept - len(tags) + 1
        new = {tag: place for place, tag in enumerate(sorted(tags), first)}
        return [new[tag] for tag in tags]

    def restore(self, state: QueueState) -> list[QueueDelivery]:
        """Become what a state says, and return what is in flight again: what its state has a time for."""
        wall, now = self._keeping.wall(), self._seconds()
        self.lastTag = self._noted = state.lastTag
        self._backlog.restore(state.far)
        again, flying = [], []
        for offset, tag in state.handed.items():
            message = _new(Message, (_ELSEWHERE, Content.BYTES, 1, None, None, None, False, False, offset))
            delivery = _new(QueueDelivery, (tag, message, state.attempts.get(tag, 1)))
            due = state.due.get(tag, 0)
            if due > wall:
                flying.append((min(due, wall + round(self._retryAfter * 1e6)), tag, delivery))
            else:
                again.append(delivery)
        flying.sort()
        for due, _, delivery in flying:
            self._inFlight.hand(delivery, now + (due - wall) / 1e6, None)
        if flying:
            self._arm((flying[0][0] - wall) / 1e6)
        if self._ages is not None:
            for tag, time in state.ages:
                self._ages.add(tag, now - (wall - time) / 1e6)
        found = [delivery for _, _, delivery in flying]
        self.size += cost([delivery.message for delivery in (*again, *found)])
        self._returned.add(again)
        return [*again, *found]

    def know(self, tag: int, message: Message) -> bool:
        """Give what was restored with this tag its id, which was read back meanwhile; False if it is gone."""
        place = _placeOf(message)
        deliveries: InFlight | Returned = self._inFlight if tag in self._inFlight else self._returned
        delivery = deliveries.get(tag)
        if delivery is not None and delivery.message.payload is _ELSEWHERE:
            self.size += costOf(place) - costOf(delivery.message)
            deliveries.replace(_new(QueueDelivery, (tag, place, delivery.attempts)))
        return delivery is not None


def _placeOf(message: Message) -> Message:
    """Return what is remembered of a message that can be read back, else the message itself."""
    if not message.offset:
        return message
    return _new(
        Message,
        (_ELSEWHERE, message.content, message.qos, message.message_id, None, None, False, False, message.offset),
    )
