"""A bounded queue that delivers messages, hides them, and takes them back.

A delivered message is *in flight*: hidden until it is acknowledged, until its holder leaves, or until ``redelivery``
seconds have passed. Then it returns to the head, in the original order and with the same tag. After too many deliveries
it becomes a dead letter. Messages that were never delivered are in the queue's backlog. A durable queue has a backlog
that leaves most of them on disk, and a recorder: it writes the queue's state to the journal and reads messages back.

Taking and acknowledging a message in batches of 100 cost 0.5 us together (Python 3.11, one core), adding one 0.1 us in
runs of 1000. A queue has one deadline for redelivery and one for its times to live.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import chain, islice, repeat

from zope.interface import implementer

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.backlog import Backlog, Dropped, MemoryBacklog
from fleximq.broker.queues.in_flight import IN_FLIGHT_OVERHEAD, SLICE, InFlight
from fleximq.broker.queues.message_ages import Expiry
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL, offsetsOf, placeOf
from fleximq.broker.queues.queued_form import QUEUED
from fleximq.broker.queues.recorder import Recorder
from fleximq.broker.queues.returned import Returned
from fleximq.broker.queues.waiting_consumers import WaitingConsumers
from fleximq.interfaces import ISubscriber
from fleximq.limits import DEAD
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, OVERHEAD, cost, costOf

#: Why a queue refuses.
FULL = "queue is full"
#: Counted events.
DROPPED = CountedEvent(EventFamily.DROPPED, "queue full")
DEAD_LETTERS = CountedEvent(EventFamily.DEAD_LETTERS)
EXPIRED = CountedEvent(EventFamily.EXPIRED, "time to live")
REDELIVERED = CountedEvent(EventFamily.REDELIVERED)

_new = tuple.__new__
# In C, since many messages are delivered by it.
_delivery: Callable[[tuple[int, Message, int]], QueueDelivery] = partial(_new, QueueDelivery)
_ONCE = repeat(1)


# Slots take a third of the memory of a dict: a broker may have many queues without a message. Surveys of queues refer
# to them weakly.
@implementer(ISubscriber)
@dataclass(slots=True, weakref_slot=True, eq=False, repr=False, kw_only=True)
class Queue:
    """Messages for consumers that take and acknowledge them.

    ``size`` is the cost in bytes of all messages in memory, waiting and in flight. Errors of callbacks are passed to
    the deadlines' ``onError``. The other parts of the wing change its parts: ``backlog`` has the messages that were
    never delivered, ``flying`` those in flight, and ``returning`` those that wait again.

    :param name: the topic; queues whose name begins with :data:`DEAD` make no dead letters.
    :param redelivery: seconds for which a delivery is hidden.
    :param maxDeliveries: deliveries after which a message becomes a dead letter; 0: unlimited.
    :param maxMessages: maximum number of messages waiting and in flight together, and ``maxBytes`` their maximum cost,
        in a durable queue only that of volatile ones.
    :param onDead: called with the queue and the last delivery of a dead message; None: deliveries are unlimited.
    :param withdrawLetter: removes the dead letter of this queue's message with a tag, since its acknowledgement arrived
        late, and tells whether there was one; None: dead messages cannot be acknowledged.
    :param dropsOldest: whether :meth:`deliver` enforces the bounds by dropping; if not, callers ask :meth:`admits`.
    :param timeToLive: seconds after which a waiting message expires; None: never.
    :param moved: called with each delivery that ends without acknowledgement, and with False if it waits again or is a
        dead letter that can be withdrawn, True if it was dropped. Not called by :meth:`close`.
    :param withIds: returns messages with ids, at their first delivery; None if ids are not needed or the backlog's
        messages have them.
    :param memory: bytes that the messages of a durable queue may take; of others in flight only the offset is stored.
    """

    form = QUEUED

    name: str
    deadlines: Deadlines
    redelivery: float
    maxDeliveries: int
    maxMessages: int
    maxBytes: int
    onDead: Callable[["Queue", QueueDelivery], object] | None
    counted: Callable[[str, int], None]
    withdrawLetter: Callable[["Queue", int], bool] | None = None
    dropsOldest: bool = True
    timeToLive: InitVar[float | None] = None
    moved: Callable[[QueueDelivery, bool], None] = lambda delivery, gone: None
    withIds: Callable[[Sequence[Message]], Sequence[Message]] | None = None
    backlog: Backlog = field(default_factory=MemoryBacklog)
    recorder: Recorder | None = None
    memory: int = ANY
    size: int = field(init=False, default=0)
    closed: bool = field(init=False, default=False)
    flying: InFlight = field(init=False)
    returning: Returned = field(init=False, default_factory=Returned)
    expiry: Expiry | None = field(init=False)
    _waiters: WaitingConsumers = field(init=False)
    _whenReady: Sequence[Callable[[], object]] = field(init=False, default=())

    def __post_init__(self, timeToLive: float | None) -> None:
        if self.name.startswith(DEAD):
            self.onDead = None
        if self.onDead is None:
            self.maxDeliveries = 0
        self.flying = InFlight(self.deadlines, self._returnOrBury)
        self._waiters = WaitingConsumers(self.deadlines.onError)
        self.expiry = None if timeToLive is None else Expiry(timeToLive, self.deadlines, self._expireSlice)

    # -- its state -----------------------------------------------------------------------------------

    @property
    def durable(self) -> bool:
        """Whether its messages and its state are in the journal."""
        return self.recorder is not None

    @property
    def depth(self) -> int:
        """The number of messages that wait."""
        return len(self.returning) + len(self.backlog) - self.backlog.gaps

    @property
    def inFlight(self) -> int:
        """The number of messages that are delivered and hidden."""
        return len(self.flying)

    @property
    def returned(self) -> int:
        """The number of messages that were delivered and wait again."""
        return len(self.returning)

    @property
    def kept(self) -> int:
        """The number of all messages, also of those whose dead letters are not stored yet."""
        return self.depth + len(self.flying) + (0 if self.recorder is None else self.recorder.dying)

    @property
    def weight(self) -> int:
        """The cost of all messages in memory, and :data:`IN_FLIGHT_OVERHEAD` for each one in flight."""
        return self.size + IN_FLIGHT_OVERHEAD * len(self.flying)

    @property
    def waiting(self) -> int:
        """The number of waiting callbacks."""
        return len(self._waiters)

    @property
    def lastTag(self) -> int:
        """The tag of the latest message that was delivered for the first time or dropped, 0 before it."""
        return self.backlog.lastTag

    @property
    def arrived(self) -> int:
        """How many messages have arrived, except those that were withdrawn."""
        return self.backlog.lastTag + len(self.backlog)

    @property
    def oldest(self) -> int | None:
        """The arrival number of the oldest waiting message; None if the queue is empty."""
        returned = self.returning.first()
        if returned is not None:
            return returned.tag
        return self.backlog.lastTag + 1 if len(self.backlog) else None

    def first(self, number: int) -> list[tuple[Message, int]]:
        """Return up to ``number`` of the oldest waiting messages, up to one that is only on disk, with their deliveries
        so far; they stay in the queue.
        """
        found: list[tuple[Message, int]] = []
        for delivery in self.returning.firsts(number):
            if delivery.message.payload is ONLY_IN_JOURNAL:
                return found
            found.append((delivery.message, delivery.attempts))
        return found + [(message, 0) for message in islice(self.backlog, number - len(found))]

    def isInFlight(self, tag: int) -> bool:
        """Tell whether the message with this tag is delivered and hidden."""
        return tag in self.flying

    def delivered(self) -> list[QueueDelivery]:
        """Return the unacknowledged deliveries, in flight or waiting again."""
        return [*self.flying.deliveries(), *self.returning.values()]

    # -- arrival and bounds --------------------------------------------------------------------------

    def admits(self, count: int, size: int) -> str | None:
        """Return None if ``count`` more messages with ``size`` bytes fit, else the reason of the refusal."""
        return FULL if self._exceeds(count, size + OVERHEAD * count) else None

    def admitsAlone(self, count: int, size: int) -> str | None:
        """Return None if so many messages would fit into an empty queue, else the reason of the refusal."""
        alone = count <= self.maxMessages and self.backlog.occupied(size + OVERHEAD * count) <= self.maxBytes
        return None if alone else FULL

    def deliver(self, rendered: Sequence[Message], count: int) -> None:
        """Add messages in order; overflow drops the oldest waiting ones, or messages too large for the free bytes."""
        if self.closed or not rendered:
            return
        size = self.backlog.append(rendered)
        self.size += size
        if self.dropsOldest and self._isOver(0, 0):
            self._makeRoom(rendered, size)
        if self.expiry is not None:
            self.expiry.arrived(self.backlog.lastTag + len(self.backlog))
        if self._waiters:
            self._waiters.wake(self._available)

    def _exceeds(self, count: int, size: int) -> bool:
        """Tell whether so many more messages and bytes exceed the bounds. Before they do, messages that are too old are
        dropped, about twice as many as it takes.
        """
        if not self._isOver(count, size):
            return False
        self.expire(2 * (count + size // OVERHEAD))
        return self._isOver(count, size)

    def _isOver(self, count: int, size: int) -> bool:
        backlog, flying = self.backlog, len(self.flying)
        kept = len(backlog) - backlog.gaps + len(self.returning) + flying + count
        if self.recorder is not None:
            kept += self.recorder.dying
        return kept > self.maxMessages or (
            backlog.occupied(self.size + size + IN_FLIGHT_OVERHEAD * flying) > self.maxBytes
        )

    def _makeRoom(self, run: Sequence[Message], size: int) -> None:
        """Drop messages that are too old, those of the run just added that can never fit, then the oldest ones."""
        if self.expiry is not None and self.expire(2 * (len(run) + size // OVERHEAD)) and not self._isOver(0, 0):
            return
        large = self.backlog.dropLarge(run, size, self.returning.size, self._excess())
        self.size -= large.size
        number = large.number
        while self.returning and self._isOver(0, 0):
            self._drop(self.returning.first())
            number += 1
        oldest = self.backlog.drop(self.kept - self.maxMessages, self._excess())
        self._undelivered(oldest)
        self.counted(DROPPED, number + oldest.number)

    def _excess(self) -> int:
        return self.backlog.occupied(self.weight) - self.maxBytes

    def _undelivered(self, dropped: Dropped) -> None:
        """Account for messages that left the backlog undelivered."""
        self.size -= dropped.size
        if self.recorder is not None:
            self.recorder.gone(dropped.offsets)

    def _drop(self, delivery: QueueDelivery | None) -> None:
        """Drop a delivery that returned."""
        if delivery is not None:
            self.returning.remove(delivery.tag)
            self.size -= costOf(delivery.message)
            self.moved(delivery, True)
            if self.recorder is not None:
                self.recorder.gone(offsetsOf([delivery.message]))

    # -- messages that are too old ---------------------------------------------------------------------

    def expire(self, few: int = 0) -> int:
        """Drop a slice of the waiting messages that are too old, or ``few`` while others are dropped in slices already;
        return how many. Any that remain are dropped in later turns.
        """
        if self.expiry is None or not self._isNextTooOld():
            return 0
        expired = self._expireUpTo(few if self.expiry.isSoon else SLICE + few)
        if self._isNextTooOld():
            self.expiry.soon()
        return expired

    def _expireUpTo(self, most: int) -> int:
        until = 0 if self.expiry is None else self.expiry.until()
        expired = 0
        while expired < most and (delivery := self.returning.first()) is not None and delivery.tag <= until:
            self._drop(delivery)
            expired += 1
        if expired < most and self.backlog.lastTag < until:
            dropped = self.backlog.expire(until, most - expired)
            self._undelivered(dropped)
            expired += dropped.number
        if expired:
            self.counted(EXPIRED, expired)
        return expired

    def _isNextTooOld(self) -> bool:
        if self.expiry is None or not (self.returning or len(self.backlog)):
            return False
        delivery = self.returning.first()
        return (self.backlog.lastTag + 1 if delivery is None else delivery.tag) <= self.expiry.until()

    def _expireSlice(self) -> bool:
        self._expireUpTo(SLICE)
        if self._isNextTooOld():
            return True
        self.prepared()
        return False

    # -- delivery --------------------------------------------------------------------------------------

    @property
    def preparing(self) -> bool:
        """Whether the next message is not ready: it is only on disk, or many older ones that expired are dropped first.
        Consumers wait with :meth:`whenPrepared`.
        """
        if self.expiry is not None and self._isNextTooOld():
            return True
        delivery = self.returning.first() if self.returning else None
        if delivery is not None:
            return delivery.message.payload is ONLY_IN_JOURNAL
        return not self.backlog.available and len(self.backlog) > 0

    def whenPrepared(self, call: Callable[[], object]) -> None:
        """Call once when the next message may be ready; at once unless the queue is ``preparing``."""
        if not self.preparing:
            call()
            return
        self._whenReady = [*self._whenReady, call]
        if self.expiry is not None and self._isNextTooOld():
            self.expiry.soon()
        elif self.recorder is not None:
            self.recorder.load()

    def prepared(self) -> None:
        """Continue after messages that are too old were dropped, or others were read."""
        calls, self._whenReady = self._whenReady, ()
        for call in calls:
            try:
                call()
            except Exception as error:
                self.deadlines.onError(error)
        self.wake()

    def wake(self) -> None:
        """Call consumers that wait, for each message that can be taken."""
        if self._waiters:
            self._waiters.wake(self._available)

    def _available(self) -> int:
        return 0 if self.preparing else len(self.returning) + self.backlog.available

    def takeMany(self, holder: object, number: int, most: int = ANY) -> list[QueueDelivery]:
        """As :meth:`take`, but return single deliveries. 0.2 us more for each."""
        return list(map(_delivery, zip(*self.take(holder, number, most), strict=False)))

    def take(
        self, holder: object, number: int, most: int = ANY
    ) -> tuple[Sequence[int], Sequence[Message], Iterable[int]]:
        """Deliver and hide up to ``number`` of the oldest messages, until they cost ``most`` bytes.

        Returns their tags, the messages, and how often each was delivered; none while the queue is ``preparing``.
        ``holder`` is the consumer, any hashable object, remembered until :meth:`release`, or None.
        """
        if self.expiry is not None and self._isNextTooOld():
            self.expire()
            if self._isNextTooOld():
                return (), (), ()
        flying, recorder = self.flying, self.recorder
        while flying.leaving and len(self.returning) < number:
            flying.takeBack()
        if recorder is not None and self.preparing:
            recorder.load()
        again: Sequence[QueueDelivery] = self._takeAgain(number, most) if self.returning else ()
        tags: Sequence[int] = ()
        messages: Sequence[Message] = ()
        if not self.returning:  # otherwise it is enough, or the next one must be read first
            most -= cost([message for _, message, _ in again]) if again else 0
            tags, messages = self.backlog.take(number - len(again), most if most < self.size else ANY)
            if self.withIds is not None:
                messages = self._named(self.withIds, messages)
        hidden, hiddenAgain = messages, again
        if self.size > self.memory:
            hidden, hiddenAgain = self._onlyPlaces(messages, again)
        due = self.deadlines.seconds() + self.redelivery
        if again:
            flying.addAgain(hiddenAgain, due, holder)
        flying.add(tags, hidden, due, holder)
        if recorder is not None:
            if tags or again:
                recorder.delivered(again)
            recorder.load()
        if not again:
            return tags, messages, _ONCE
        tagsAgain, messagesAgain, attempts = zip(*again, strict=True)
        return [*tagsAgain, *tags], [*messagesAgain, *messages], chain(attempts, _ONCE)

    def _takeAgain(self, number: int, most: int) -> list[QueueDelivery]:
        """Remove and return deliveries that returned, up to one that must be read first."""
        again: list[QueueDelivery] = []
        while len(again) < number and most > 0 and (delivery := self.returning.first()) is not None:
            tag, message, attempts = delivery
            if message.payload is ONLY_IN_JOURNAL:
                break
            self.returning.remove(tag)
            again.append(_new(QueueDelivery, (tag, message, attempts + 1)))
            most -= costOf(message)
        if again:
            self.counted(REDELIVERED, len(again))
        return again

    def _named(
        self, naming: Callable[[Sequence[Message]], Sequence[Message]], messages: Sequence[Message]
    ) -> Sequence[Message]:
        """Set the ids of messages, which add to their cost; messages dropped earlier never need one."""
        named = naming(messages)
        if named is not messages:
            self.size += cost(named) - cost(messages)
        return named

    def _onlyPlaces(
        self, messages: Sequence[Message], again: Sequence[QueueDelivery]
    ) -> tuple[Sequence[Message], Sequence[QueueDelivery]]:
        """Return only the places of those messages that can be read again."""
        places = [placeOf(message) for message in messages]
        placesAgain = [_new(QueueDelivery, (tag, placeOf(message), attempts)) for tag, message, attempts in again]
        self.size += cost(places) - cost(messages)
        self.size += cost([each.message for each in placesAgain]) - cost([each.message for each in again])
        return places, placesAgain

    def whenReady(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call once when a message arrives, in the order of requests, one call for each message; return a function that
        cancels this.
        """
        return self._waiters.add(callback)

    # -- the end of messages -----------------------------------------------------------------------------

    def acknowledge(self, tag: int) -> bool:
        """Remove the message with this tag, even if it has returned; False if it is unknown."""
        return not self.acknowledgeMany([tag])

    def acknowledgeMany(self, tags: list[int]) -> list[int]:
        """Remove the messages with these tags, even if they have returned or are dead letters; return the tags that are
        unknown.
        """
        found, unknown = self.flying.removeMany(tags), []
        if not all(found):
            for place, tag in enumerate(tags):
                if found[place] is None:
                    delivery = self.returning.remove(tag)
                    if delivery is None:
                        unknown.append(tag)
                    else:
                        found[place] = delivery.message
        messages = [message for message in found if message is not None] if unknown else found
        self.size -= cost(messages)  # type: ignore[arg-type]  # there is no None
        if self.recorder is not None and messages:
            self.recorder.gone(offsetsOf(messages))  # type: ignore[arg-type]
        return [tag for tag in unknown if not self._acknowledgeLate(tag)] if unknown else unknown

    def _acknowledgeLate(self, tag: int) -> bool:
        """Withdraw the dead letter of the message with this tag; False if there is none."""
        dying = self.recorder is not None and self.recorder.withdraw(tag)
        return (self.withdrawLetter is not None and self.withdrawLetter(self, tag)) or dying

    def withdraw(self, number: int, offset: int, isIt: Callable[[Message], bool]) -> bool:
        """Remove a message that was never delivered; False if it is not there.

        :param number: the value of ``arrived`` when it had arrived, and ``offset`` its offset in the journal.
        """
        withdrawn = self.backlog.withdraw(number, offset, isIt)
        if withdrawn is None:
            return False
        self.size -= withdrawn.size
        if self.expiry is not None and withdrawn.tag:
            self.expiry.removed(withdrawn.tag)
        if self.recorder is not None:
            self.recorder.gone([offset])
        return True

    def deadLetter(self, tag: int) -> None:
        """Make a dead letter of the message in flight with this tag, however often it was delivered."""
        delivery = self.flying.remove(tag)
        if delivery is not None:
            self.size -= costOf(delivery.message)
            self._bury([delivery])

    def release(self, holder: object) -> None:
        """Take back all deliveries of this holder at once, many in slices: to the head, in order, or to the dead
        letters.
        """
        self.flying.release(holder)

    def _returnOrBury(self, deliveries: list[QueueDelivery]) -> None:
        """Return deliveries to the head, or make dead letters of them; callbacks find the queue consistent."""
        again, dead = deliveries, []
        if self.maxDeliveries:
            again = [delivery for delivery in deliveries if delivery.attempts < self.maxDeliveries]
            dead = [delivery for delivery in deliveries if delivery.attempts >= self.maxDeliveries]
        self.returning.add(again)
        self.size -= cost([delivery.message for delivery in dead])
        for delivery in again:
            self.moved(delivery, False)
        if dead:
            self._bury(dead)
        self.expire()
        self.wake()
        if self.recorder is not None and self.preparing:
            self.recorder.load()

    def _bury(self, dead: Sequence[QueueDelivery]) -> None:
        """Publish dead letters, or drop the messages where nothing takes them."""
        isFinal = self.onDead is None or self.withdrawLetter is None
        for delivery in dead:  # for good if no late acknowledgement can withdraw their dead letters
            self.moved(delivery, isFinal)
        if self.onDead is None:
            self.counted(DROPPED, len(dead))
            if self.recorder is not None:
                self.recorder.gone(offsetsOf([delivery.message for delivery in dead]))
        elif self.recorder is not None:
            self.recorder.bury(dead)
        else:
            self.counted(DEAD_LETTERS, len(dead))
            for delivery in dead:
                try:
                    self.onDead(self, delivery)
                except Exception as error:
                    self.deadlines.onError(error)

    def close(self) -> int:
        """Drop all messages and waiting callbacks, and refuse new ones; return how many messages were dropped."""
        dropped = self.kept
        self.closed = True
        if self.expiry is not None:
            self.expiry.cancel()
        if self.recorder is not None:
            self.recorder.close()
        for part in (self.backlog, self.returning, self.flying, self._waiters):
            part.clear()
        self._whenReady = ()
        self.size = 0
        return dropped
