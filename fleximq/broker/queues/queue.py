"""A bounded first-in first-out queue that delivers messages, hides them, and takes them back.

A delivered message is *in flight*: hidden until it is acknowledged, until its holder leaves, or until ``redelivery``
seconds have passed. Then it returns to the head, in the original order and with the same tag. After too many deliveries
it becomes a dead letter.

Taking and acknowledging a message in batches of 100 cost 0.5 us together (Python 3.11, one core), adding one 0.1 us in
runs of 1000. A queue has one deadline for redelivery and one for its times to live, not moved before they are due:
setting one for each message would cost more than all the rest.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

from zope.interface import implementer

from fleximq.broker.deadlines import TOLERANCE, Deadline, Deadlines
from fleximq.broker.envelope import Envelope, QueueDelivery
from fleximq.broker.queues.in_flight import InFlight, Returned
from fleximq.broker.queues.waiting import IN_FLIGHT_OVERHEAD, MessageAges, WaitingConsumers, WaitingMessages
from fleximq.interfaces import IForm, ISubscriber
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
#: Deliveries taken back, and messages that expire, at once when they are due: about 5 ms.
SLICE = 10_000
#: Minimum seconds between two searches for expired messages, except when the queue is full or a consumer takes some.
_SEARCHES = 1.0

_new = tuple.__new__
# In C, since many messages are delivered by it.
_delivery: Callable[[tuple[int, Message, int]], QueueDelivery] = partial(_new, QueueDelivery)
_ONCE = repeat(1)


@implementer(IForm)
class _Queued:
    """The form of queues: single messages, each with the QoS of its envelope and its offset in the journal."""

    def render(self, envelope: Envelope, body: Any, count: int) -> Sequence[Message]:
        """Return the run's messages; only those that need another QoS or an offset are copied."""
        messages = envelope.source.messages(body)
        qos = envelope.qos
        if envelope.offset:
            return [
                _new(Message, (payload, content, qos, id, correlation, replyTo, legacy, line, offset))
                for offset, (payload, content, _, id, correlation, replyTo, legacy, line, _) in enumerate(
                    messages, envelope.offset
                )
            ]
        for message in messages:
            if message.qos != qos:
                return [message if message.qos == qos else message._replace(qos=qos) for message in messages]
        return messages


#: The form in which every queue takes its deliveries.
QUEUED = _Queued()


# Slots take a third of the memory of a dict: a broker may have many queues without a message. Surveys of queues refer
# to them weakly.
@implementer(ISubscriber)
@dataclass(slots=True, weakref_slot=True, eq=False, repr=False, kw_only=True)
class Queue:
    """Messages for consumers that take and acknowledge them.

    ``size`` is the cost in bytes of all messages waiting and in flight; ``lastTag`` the tag of the latest first
    delivery, 0 before it. Errors of callbacks are passed to the deadlines' ``onError``.

    :param name: the topic; queues whose name begins with :data:`DEAD` make no dead letters.
    :param redelivery: seconds for which a delivery is hidden.
    :param maxDeliveries: deliveries after which a message becomes a dead letter; 0: unlimited.
    :param maxMessages: maximum number of messages waiting and in flight together, and ``maxBytes`` their maximum cost.
    :param onDead: called with the queue and the last delivery of a dead message; None: deliveries are unlimited.
    :param withdrawLetter: removes the dead letter of this queue's message with a tag, since its acknowledgement arrived
        late, and tells whether there was one; None: dead messages cannot be acknowledged.
    :param dropsOldest: whether :meth:`deliver` enforces the bounds by dropping; if not, callers ask :meth:`admits`.
    :param timeToLive: seconds after which a waiting message expires; None: never.
    :param moved: called with each delivery that ends without acknowledgement, and with False if it waits again or is a
        dead letter that can be withdrawn, True if it was dropped. Not called by :meth:`close`.
    :param withIds: returns messages with ids, at their first delivery; None if ids are not needed.
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
    size: int = field(init=False, default=0)
    lastTag: int = field(init=False, default=0)
    _seconds: Callable[[], float] = field(init=False)
    _deadline: Deadline | None = field(init=False, default=None)
    _expiry: Deadline | None = field(init=False, default=None)
    _backlog: WaitingMessages = field(init=False, default_factory=WaitingMessages)
    _returned: Returned = field(init=False, default_factory=Returned)
    _inFlight: InFlight = field(init=False, default_factory=InFlight)
    _waiters: WaitingConsumers = field(init=False)
    _ages: MessageAges | None = field(init=False)
    _ofGoneHolders: list[list[QueueDelivery]] = field(init=False, default_factory=list)
    _closed: bool = field(init=False, default=False)
    _droppedUntagged: int = field(init=False, default=0)

    def __post_init__(self, timeToLive: float | None) -> None:
        if self.name.startswith(DEAD):
            self.onDead = None
        if self.onDead is None:
            self.maxDeliveries = 0
        self._seconds = self.deadlines.seconds
        self._waiters = WaitingConsumers(self.deadlines.onError)
        self._ages = None if timeToLive is None else MessageAges(timeToLive)

    @property
    def depth(self) -> int:
        """The number of messages that can be taken now."""
        return len(self._returned) + len(self._backlog)

    @property
    def weight(self) -> int:
        """The part of ``maxBytes`` in use: ``size``, and :data:`IN_FLIGHT_OVERHEAD` for each message in flight."""
        return self.size + IN_FLIGHT_OVERHEAD * len(self._inFlight)

    @property
    def inFlight(self) -> int:
        """The number of messages that are delivered and hidden."""
        return len(self._inFlight)

    @property
    def kept(self) -> int:
        """The number of all messages, waiting and in flight."""
        return self.depth + len(self._inFlight)

    @property
    def returned(self) -> int:
        """The number of messages that were delivered and wait again."""
        return len(self._returned)

    @property
    def untried(self) -> int:
        """The number of messages that were never delivered."""
        return len(self._backlog)

    @property
    def arrived(self) -> int:
        """About how many messages have arrived; includes messages dropped before they had a tag."""
        return self.lastTag + len(self._backlog) + self._droppedUntagged

    @property
    def oldest(self) -> int | None:
        """The arrival number of the oldest waiting message; None if the queue is empty."""
        returned = self._returned.first()
        if returned is not None:
            return returned.tag
        return self.lastTag + self._droppedUntagged + 1 if len(self._backlog) else None

    @property
    def loading(self) -> bool:
        """Whether the next message must first be read, see :meth:`whenLoaded`; always False here."""
        return False

    def whenLoaded(self, call: Callable[[], object]) -> None:
        """Call once after the current read; here at once."""
        call()

    @property
    def waiting(self) -> int:
        """The number of waiting callbacks."""
        return len(self._waiters)

    def first(self, number: int) -> list[tuple[Message, int]]:
        """Return up to ``number`` of the oldest waiting messages in memory, with their deliveries so far; they stay
        there.
        """
        found = [(each.message, each.attempts) for each in self._returned.firsts(number)]
        return found + [(message, 0) for message in islice(self._backlog, number - len(found))]

    def isInFlight(self, tag: int) -> bool:
        """Tell whether the message with this tag is delivered and hidden."""
        return tag in self._inFlight

    def delivered(self) -> list[QueueDelivery]:
        """Return the unacknowledged deliveries, in flight or waiting again."""
        return self._inFlight.deliveries() + self._returned.deliveries()

    def admits(self, count: int, size: int) -> str | None:
        """Return None if ``count`` more messages with ``size`` bytes fit, else the reason of the refusal."""
        return FULL if self._exceeds(count, size + OVERHEAD * count) else None

    def admitsAlone(self, count: int, size: int) -> str | None:
        """Return None if so many messages would fit into an empty queue, else the reason of the refusal."""
        alone = count <= self.maxMessages and size + OVERHEAD * count <= self.maxBytes
        return None if alone else FULL

    def deliver(self, rendered: Sequence[Message], count: int) -> None:
        """Add messages in order; overflow drops the oldest waiting ones, or messages too large for the free bytes."""
        if self._closed:
            return
        size = cost(rendered)
        if self.dropsOldest and self._exceeds(count, size):
            self._squeezeIn(rendered)
        else:
            self._backlog.append(rendered, size)
            self.size += size
        if self._ages is not None:
            self._age(self._ages)
        if self._waiters:
            self._waiters.wake(self._available)

    def takeMany(self, holder: object, number: int, most: int = ANY) -> list[QueueDelivery]:
        """As :meth:`take`, but return single deliveries. 0.2 us more for each."""
        return list(map(_delivery, zip(*self.take(holder, number, most), strict=False)))

    def take(
        self, holder: object, number: int, most: int = ANY
    ) -> tuple[Sequence[int], Sequence[Message], Iterable[int]]:
        """Deliver and hide up to ``number`` of the oldest messages, until they cost ``most`` bytes.

        Returns their tags, the messages, and how often each was delivered. ``holder`` is the consumer, any hashable
        object, remembered until :meth:`release`, or None.
        """
        if self._ages is not None:
            self.expire()
        while self._ofGoneHolders and len(self._returned) < number:
            self._takeBackPortion()
        deliveries: list[QueueDelivery] = []
        while len(deliveries) < number and most > 0 and (again := self._returned.popleft()) is not None:
            deliveries.append(_new(QueueDelivery, (again.tag, again.message, again.attempts + 1)))
            most -= costOf(again.message)
        if deliveries:
            self.counted(REDELIVERED, len(deliveries))
        messages: Sequence[Message] = self._backlog.popMany(number - len(deliveries), most)
        if self.withIds is not None:
            messages = self._withIds(self.withIds, messages)
        due = self._seconds() + self.redelivery
        if deliveries:
            self._inFlight.addAgain(deliveries, due, holder)
        tags = range(self.lastTag + 1, self.lastTag + 1 + len(messages))
        self._inFlight.add(tags, messages, due, holder)
        self.lastTag += len(messages)
        if self._deadline is None and (deliveries or messages):
            self._arm(self.redelivery)
        if not deliveries:
            return tags, messages, _ONCE
        tagsAgain, messagesAgain, attempts = zip(*deliveries, strict=True)
        return [*tagsAgain, *tags], [*messagesAgain, *messages], chain(attempts, _ONCE)

    def _withIds(
        self, naming: Callable[[Sequence[Message]], Sequence[Message]], messages: Sequence[Message]
    ) -> Sequence[Message]:
        """Set the ids of messages, which add to their cost; messages dropped earlier never need one."""
        named = naming(messages)
        if named is not messages:
            self.size += cost(named) - cost(messages)
        return named

    def acknowledge(self, tag: int) -> bool:
        """Remove the message with this tag, even if it has returned; False if it is unknown."""
        return not self.acknowledgeMany([tag])

    def acknowledgeMany(self, tags: list[int]) -> list[int]:
        """Remove the messages with these tags, even if they have returned or are dead letters; return the tags that are
        unknown.
        """
        found, unknown = self._inFlight.removeMany(tags), []
        if not all(found):
            for place, tag in enumerate(tags):
                if found[place] is None:
                    delivery = self._returned.remove(tag)
                    if delivery is None:
                        unknown.append(tag)
                    else:
                        found[place] = delivery.message
        self._acknowledged([message for message in found if message is not None] if unknown else found)  # type: ignore[arg-type]
        return [tag for tag in unknown if not self._acknowledgeLate(tag)] if unknown else unknown

    def _acknowledgeLate(self, tag: int) -> bool:
        """Withdraw the dead letter of the message with this tag; False if there is none."""
        return self.withdrawLetter is not None and self.withdrawLetter(self, tag)

    def withdraw(self, number: int, offset: int, isIt: Callable[[Message], bool]) -> bool:
        """Remove a message that was never delivered; False if it is not there.

        :param number: the value of ``arrived`` when it had arrived, and ``offset`` its offset in the journal.
        """
        backlog = self._backlog
        before = backlog.size
        place = backlog.remove(number - self.lastTag - self._droppedUntagged - 1, isIt)
        if place is None:
            return False
        self.size -= before - backlog.size
        if self._ages is not None:
            self._ages.removed(self.lastTag + place + 1)
        return True

    def _acknowledged(self, messages: Sequence[Message]) -> None:
        self.size -= cost(messages)

    def deadLetter(self, tag: int) -> None:
        """Make a dead letter of the message in flight with this tag, however often it was delivered."""
        delivery = self._inFlight.remove(tag)
        if delivery is not None:
            self.size -= costOf(delivery.message)
            self._deadLetterAll([delivery])

    def release(self, holder: object) -> None:
        """Take back all deliveries of this holder at once, many in slices: to the head, in order, or to the dead
        letters.
        """
        held = self._inFlight.forgetHolder(holder)
        if held:
            self._ofGoneHolders.append(held)
            if len(self._ofGoneHolders) == 1:
                self._takeBackSlice()

    def _takeBackSlice(self) -> None:
        self._takeBackPortion()
        if self._ofGoneHolders:
            self.deadlines.callLater(0, self._takeBackSlice)

    def whenReady(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call once when a message arrives, in the order of requests, one call for each message; return a function that
        cancels this.
        """
        return self._waiters.add(callback)

    def close(self) -> int:
        """Drop all messages and waiting callbacks, and refuse new ones; return how many messages were dropped."""
        dropped = self.kept
        self._closed = True
        for deadline in (self._deadline, self._expiry):
            if deadline is not None:
                deadline.cancel()
        self._deadline = self._expiry = None
        self._backlog.clear()
        self._returned.clear()
        self._inFlight.clear()
        self._waiters.clear()
        self._ofGoneHolders.clear()
        self.size = 0
        return dropped

    def _arm(self, delay: float) -> None:
        self._deadline = self.deadlines.callLater(delay, self._onDue)

    def _onDue(self) -> None:
        """Take back a slice of the due deliveries, and set the next deadline if any message is in flight."""
        self._deadline = None
        now = self._seconds()
        due = self._inFlight.takeDue(now + TOLERANCE, SLICE)
        first = self._inFlight.firstDue()
        if first is not None:
            self._arm(max(0.0, first - now))
        self._returnOrDeadLetter(due)

    def _takeBackPortion(self) -> None:
        """Take back a slice of the deliveries of holders that left, except messages delivered to others since."""
        if not self._ofGoneHolders:
            return
        held = self._ofGoneHolders[0]
        if len(held) > SLICE:
            self._ofGoneHolders[0] = held[SLICE:]
        else:
            del self._ofGoneHolders[0]
        mine = [delivery for delivery in held[:SLICE] if self._inFlight.isCurrent(delivery)]
        self._inFlight.removeMany([delivery.tag for delivery in mine])
        self._returnOrDeadLetter(mine)

    def expire(self, most: int = ANY) -> int:
        """Drop up to ``most`` waiting messages that are too old, and return how many; their tags are not used."""
        if self._ages is None:
            return 0
        until = self._ages.before(self._seconds())
        expired = 0
        while expired < most and (delivery := self._returned.first()) is not None and delivery.tag <= until:
            self._drop(delivery)
            expired += 1
        while expired < most and self.lastTag < until and len(self._backlog):  # gaps do not count
            expired += self._expireBacklog(min(until, self.lastTag + most - expired))
        if expired:
            self.counted(EXPIRED, expired)
        return expired

    def _age(self, ages: MessageAges) -> None:
        """Record when the latest messages arrived."""
        ages.add(self.lastTag + len(self._backlog), self._seconds())
        if self._expiry is None:
            self._expireLater(ages)

    def _expireLater(self, ages: MessageAges) -> None:
        left = ages.firstEnd() - self._seconds()
        self._expiry = self.deadlines.callLater(max(_SEARCHES, left), self._expireDue)

    def _expireDue(self) -> None:
        """Drop a slice of the messages that are too old, and set the next deadline if any are left."""
        self._expiry = None
        if self.expire(SLICE) == SLICE:
            self._expiry = self.deadlines.callLater(0, self._expireDue)
        elif self._ages:
            self._expireLater(self._ages)

    def _expireBacklog(self, until: int) -> int:
        expired = 0
        while self.lastTag < until and len(self._backlog):
            self.size -= self._backlog.dropOldest()
            self.lastTag += 1
            expired += 1
        return expired

    def _drop(self, delivery: QueueDelivery) -> None:
        self._returned.remove(delivery.tag)
        self.size -= costOf(delivery.message)
        self.moved(delivery, True)

    def _returnOrDeadLetter(self, deliveries: list[QueueDelivery]) -> None:
        """Return deliveries to the head, or make dead letters of them; callbacks find the queue consistent."""
        again, dead = deliveries, []
        if self.maxDeliveries:
            again = [delivery for delivery in deliveries if delivery.attempts < self.maxDeliveries]
            dead = [delivery for delivery in deliveries if delivery.attempts >= self.maxDeliveries]
        self._returned.add(again)
        self.size -= cost([delivery.message for delivery in dead])
        for delivery in again:
            self.moved(delivery, False)
        if dead:
            self._deadLetterAll(dead)
        self.expire(SLICE)
        if self._waiters:
            self._waiters.wake(self._available)

    def _deadLetterAll(self, dead: list[QueueDelivery]) -> None:
        self._died(dead)
        self.counted(DROPPED if self.onDead is None else DEAD_LETTERS, len(dead))
        if self.onDead is None:
            return
        for delivery in dead:
            try:
                self.onDead(self, delivery)
            except Exception as error:
                self.deadlines.onError(error)

    def _died(self, dead: list[QueueDelivery]) -> None:
        """Report the end of last deliveries: for good if no late acknowledgement can withdraw their dead letters."""
        isFinal = self.onDead is None or self.withdrawLetter is None
        for delivery in dead:
            self.moved(delivery, isFinal)

    def _available(self) -> int:
        return self.depth

    def _exceeds(self, count: int, size: int) -> bool:
        """Tell whether so many more messages and bytes exceed the bounds, without messages that are too old."""
        kept = len(self._backlog) + len(self._returned) + len(self._inFlight)
        isOver = kept + count > self.maxMessages or self.weight + size > self.maxBytes
        return isOver and self._stillExceeds(count, size)

    def _stillExceeds(self, count: int, size: int) -> bool:
        """Drop messages that are too old, and check the bounds again if there were any."""
        return not self.expire() or self._exceeds(count, size)

    def _squeezeIn(self, messages: Sequence[Message]) -> None:
        """Add the messages that can fit at all, then drop the oldest until the bounds hold again."""
        room = self._backlog.size + self._returned.size + self.maxBytes - self.weight
        fitting, size = messages, cost(messages)
        if size > room:
            fitting = [message for message in messages if costOf(message) <= room]
            size = cost(fitting)
        self._backlog.append(fitting, size)
        self.size += size
        dropped = len(messages) - len(fitting)
        while self._returned and self._exceeds(0, 0) and self._dropOldest():
            dropped += 1
        self.counted(DROPPED, dropped + self._dropUntried())

    def _dropUntried(self) -> int:
        """Drop messages that were never delivered, oldest first, until the bounds hold; return how many."""
        backlog = self._backlog
        before = backlog.size
        excess = self.weight - self.maxBytes
        dropped = len(backlog.popMany(len(backlog), excess)) if excess > 0 else 0
        tooMany = len(backlog) + len(self._returned) + len(self._inFlight) - self.maxMessages
        if tooMany > 0:
            dropped += len(backlog.popMany(tooMany))
        self.size -= before - backlog.size
        if self._ages is not None:
            self.lastTag += dropped
        else:
            self._droppedUntagged += dropped
        return dropped

    def _dropOldest(self) -> bool:
        """Drop the oldest waiting message; False if the queue is empty."""
        delivery = self._returned.first()
        if delivery is not None:
            self._drop(delivery)
            return True
        size = self._backlog.dropOldest()
        self.size -= size
        if size and self._ages is not None:
            self.lastTag += 1
        elif size:
            self._droppedUntagged += 1
        return size > 0
