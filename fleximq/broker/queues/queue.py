"""A bounded queue that delivers messages, hides them, and takes them back.

A delivered message is *in flight*: hidden until it is acknowledged, until its holder leaves, or until its lease ends,
``redelivery`` seconds unless the consumer says otherwise. Then it returns to the head, in the original order and with
the same tag. A consumer may give it back, to be delivered again after a delay, or reject it. After too many deliveries
it becomes a dead letter. Messages that were never delivered are in the queue's backlog. A durable queue has a backlog
that leaves most of them on disk, and a recorder: it writes the queue's state to the journal and reads messages back.

Taking and acknowledging a message in batches of 100 cost 0.5 us together (Python 3.11, one core), adding one 0.1 us in
runs of 1000. A queue has one deadline for redelivery, one for its time to live, and one for messages with an expiry of
their own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import chain, repeat
from operator import itemgetter

from zope.interface import implementer

from fleximq.broker.deadlines import TOLERANCE, Deadlines
from fleximq.broker.envelope import LastDelivery, QueueDelivery
from fleximq.broker.queues.attempt_notes import AttemptNotes
from fleximq.broker.queues.backlog import Backlog, Dropped, MemoryBacklog
from fleximq.broker.queues.bounds import Bounds
from fleximq.broker.queues.delivery_limit import DeliveryLimit
from fleximq.broker.queues.expiry import Expiry
from fleximq.broker.queues.in_flight import InFlight
from fleximq.broker.queues.key_order import PARKED_AT_ONCE, KeyOrder, keyOf
from fleximq.broker.queues.message_place import placeOf, placesOf
from fleximq.broker.queues.own_expiries import OwnExpiries
from fleximq.broker.queues.queued_form import QUEUED
from fleximq.broker.queues.recorder import Recorder
from fleximq.broker.queues.stored_messages import StoredMessages
from fleximq.broker.queues.waiting_consumers import WaitingConsumers
from fleximq.interfaces import ISubscriber
from fleximq.limits import DEAD
from fleximq.values import message_loops
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, cost, costOf
from fleximq.values.message_run import MessageRun, headOf
from fleximq.values.publication_head import PRIORITY

#: Counted for repeated deliveries.
REDELIVERED = CountedEvent(EventFamily.REDELIVERED)

_new = tuple.__new__
# In C, since many messages are delivered by it.
_delivery: Callable[[tuple[int, Message, int]], QueueDelivery] = partial(_new, QueueDelivery)
ONCE = repeat(1)
#: Messages taken from the backlog at a time, in the order of keys: the limit of parked ones is checked between them.
_FEW = 1000


# Slots take a third of the memory of a dict: a broker may have many queues without a message. Surveys of queues refer
# to them weakly.
@implementer(ISubscriber)
@dataclass(slots=True, weakref_slot=True, eq=False, repr=False, kw_only=True)
class Queue:
    """Messages for consumers that take and acknowledge them.

    ``stored`` has the messages, and ``bounds`` how many it may have. Errors of callbacks are passed to the deadlines'
    ``onError``.

    :param name: the topic; queues with names that begin with :data:`DEAD` make no dead letters.
    :param redelivery: seconds for which a delivery is hidden if :meth:`take` does not say otherwise.
    :param dropsOldest: whether :meth:`deliver` enforces the bounds by dropping; if not, callers ask ``bounds``.
    :param timeToLive: seconds after which a waiting message expires; None: never.
    :param withIds: returns messages with ids, at their first delivery; None if ids are not needed or the backlog's
        messages have them.
    :param subscriptionId: that of the BlipMQ subscription with this queue, 0 for others.
    :param memory: bytes that the messages of a durable queue may take; of others in flight only the offset is stored.
    """

    form = QUEUED

    name: str
    deadlines: Deadlines
    redelivery: float
    limit: "DeliveryLimit[Queue]"
    maxMessages: InitVar[int]
    maxBytes: InitVar[int]
    counted: InitVar[Callable[[str, int], None]]
    dropsOldest: bool = True
    timeToLive: InitVar[float | None] = None
    moved: InitVar[Callable[[QueueDelivery, bool], None]] = lambda delivery, gone: None
    withIds: Callable[[Sequence[Message]], Sequence[Message]] | None = None
    backlog: InitVar[Backlog | None] = None
    recorder: Recorder | None = None
    memory: int = ANY
    subscriptionId: int = 0
    #: Whether all messages that are read from the journal need a head.
    needsHeads: bool = False
    #: Takes runs of another priority than the usual one, for a queue with lanes.
    divert: Callable[[Sequence[Message], int], None] | None = None
    closed: bool = field(init=False, default=False)
    stored: StoredMessages = field(init=False)
    expiry: Expiry | None = field(init=False)
    #: Those of messages with a time of their own; None until the first one.
    ownExpiries: OwnExpiries | None = field(init=False, default=None)
    bounds: Bounds = field(init=False)
    _expiredDie: bool = field(init=False, default=False)
    _isParking: bool = field(init=False, default=False)
    _notes: AttemptNotes = field(init=False)
    _waiters: WaitingConsumers = field(init=False)
    _whenReady: Sequence[Callable[[], object]] = field(init=False, default=())

    def __post_init__(
        self,
        maxMessages: int,
        maxBytes: int,
        counted: Callable[[str, int], None],
        timeToLive: float | None,
        moved: Callable[[QueueDelivery, bool], None],
        backlog: Backlog | None,
    ) -> None:
        if self.name.startswith(DEAD):
            self.limit = DeliveryLimit()
        flying = InFlight(self.deadlines, self._returnOrBury)
        stored = StoredMessages(MemoryBacklog() if backlog is None else backlog, self.recorder, flying, counted, moved)
        self.stored = stored
        self.expiry = None if timeToLive is None else Expiry(timeToLive, self.deadlines, stored, self.prepared)
        self.bounds = Bounds(maxMessages, maxBytes, stored, self.expiry)
        self._notes = AttemptNotes(lambda tag: tag in stored.flying or tag in stored.returned)
        self._waiters = WaitingConsumers(self.deadlines.onError)

    @property
    def durable(self) -> bool:
        """Whether its messages and its state are in the journal."""
        return self.recorder is not None

    def deliver(self, rendered: Sequence[Message], count: int) -> None:
        """Add messages in order; overflow drops the oldest waiting ones, or messages too large for the free bytes."""
        if self.closed or not rendered:
            return
        head = headOf(rendered)
        if head is not None and head.priority != PRIORITY and self.divert is not None:
            self.divert(rendered, count)
            return
        size = self.stored.backlog.append(rendered)
        self.stored.size += size
        if self.dropsOldest and self.bounds.isOver(0, 0):
            self.bounds.enforce(rendered, size)
        if self.expiry is not None:
            self.expiry.arrived()
        if head is not None and not self.name.startswith(DEAD):
            self._expireEach(rendered)
        if self._waiters:
            self._waiters.wake(self.available)

    def _expireEach(self, messages: Sequence[Message]) -> None:
        """Let each of the last messages in the backlog expire at its own time, if it has one."""
        head = headOf(messages)
        isOne = type(messages) is MessageRun or head is messages[-1].head  # mostly a run has one head
        if (head is not None and head.expires) if isOne else any(each.head and each.head.expires for each in messages):
            self.makeOwnExpiries().arrived(messages)

    def makeOwnExpiries(self) -> OwnExpiries:
        """Return the expiries of messages with a time of their own, made at the first one."""
        if self.ownExpiries is None:
            bury = self._bury if self._expiredDie else None
            self.ownExpiries = OwnExpiries(self.deadlines, self.stored, self.prepared, bury)
            self.bounds.ownExpiries = self.ownExpiries
        return self.ownExpiries

    def expireAfter(self, seconds: float | None) -> None:
        """Let waiting messages expire after so many seconds; None: never. Messages that could not expire before count
        as arrived now.
        """
        before = self.expiry
        if seconds == (None if before is None else before.timeToLive):
            return
        self.expiry = None if seconds is None else Expiry(seconds, self.deadlines, self.stored, self.prepared)
        self.bounds.expiry = self.expiry
        if before is not None:
            before.cancel()
        if self.expiry is None:
            return
        self.expiry.bury = self._bury if self._expiredDie else None
        for number, time in () if before is None else before.ages:
            self.expiry.ages.add(number, time)
        if before is None and self.stored.all:
            self.expiry.arrived()
        self.expiry.watch()

    @property
    def expiredDie(self) -> bool:
        """Whether expired messages become dead letters, unless the queue makes none."""
        return self._expiredDie

    @expiredDie.setter
    def expiredDie(self, die: bool) -> None:
        self._expiredDie = die and self.limit.onDead is not None
        for expiry in (self.expiry, self.ownExpiries):
            if expiry is not None:
                expiry.bury = self._bury if self._expiredDie else None

    # -- waiting -----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """The number of waiting callbacks."""
        return len(self._waiters)

    @property
    def isOrdered(self) -> bool:
        """Whether of messages with the same key only one is delivered at a time, in the order of their arrival."""
        return self.stored.order is not None

    @isOrdered.setter
    def isOrdered(self, isOrdered: bool) -> None:
        stored, order = self.stored, self.stored.order
        if isOrdered and order is None:
            stored.order = KeyOrder()
            for delivery in sorted(stored.flying.deliveries(), key=itemgetter(0)):
                stored.order.meet(delivery)
        elif not isOrdered and order is not None:
            stored.order = None
            stored.returned.add([*order])
            self.wake()

    @property
    def preparing(self) -> bool:
        """Whether the next message is not ready: it is only on disk, or many older ones that expired are dropped first.
        Consumers wait with :meth:`whenPrepared`.
        """
        if self.ownExpiries is not None and self.ownExpiries.isDue:
            return True
        if self.expiry is not None and self.expiry.isNextTooOld:
            return True
        return self.recorder is not None and self.stored.isNextOnDisk

    @property
    def isReturning(self) -> bool:
        """Whether messages may be ready in the next turns, without others: those of a consumer that left, those whose
        time is over, or those after many that are parked.
        """
        flying = self.stored.flying
        if flying.leaving or self._isParking:
            return True
        due = flying.firstDue()
        return due is not None and due <= self.deadlines.seconds() + TOLERANCE

    def whenPrepared(self, call: Callable[[], object]) -> None:
        """Call once when the next message may be ready; at once unless the queue is ``preparing``."""
        if not self.preparing:
            call()
            return
        self._whenReady = [*self._whenReady, call]
        if self.expiry is not None and self.expiry.isNextTooOld:
            self.expiry.soon()
        elif self.ownExpiries is not None and self.ownExpiries.isDue:
            self.ownExpiries.soon()
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

    def whenReady(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call once when a message arrives, in the order of requests, one call for each message; return a function that
        cancels this.
        """
        return self._waiters.add(callback)

    def wake(self) -> None:
        """Call consumers that wait, for each message that can be taken."""
        if self._waiters:
            self._waiters.wake(self.available)

    def available(self) -> int:
        """Return how many messages can be taken now."""
        stored = self.stored
        if self.preparing:
            return 0
        return len(stored.returned) + (0 if stored.order and stored.order.isFull else stored.backlog.available)

    # -- delivery ----------------------------------------------------------------------------------------

    def takeMany(
        self, holder: object, number: int, most: int = ANY, lease: float | None = None, ofAnyKey: bool = False
    ) -> list[QueueDelivery]:
        """As :meth:`take`, but return single deliveries. 0.2 us more for each."""
        return list(map(_delivery, zip(*self.take(holder, number, most, lease, ofAnyKey=ofAnyKey), strict=False)))

    def take(
        self,
        holder: object,
        number: int,
        most: int = ANY,
        lease: float | None = None,
        consumer: str = "",
        ofAnyKey: bool = False,
    ) -> tuple[Sequence[int], Sequence[Message], Iterable[int]]:
        """Deliver and hide up to ``number`` of the oldest messages, until they cost ``most`` bytes.

        Returns their tags, the messages, and how often each was delivered; none while the queue is ``preparing``.
        ``holder`` is the consumer, any hashable object, remembered until :meth:`release`, or None. They are hidden for
        ``lease`` seconds, 0: until the holder leaves; None: for ``redelivery`` seconds. ``consumer`` is the name in the
        stories of dead letters, by default the holder's ``name``, if it has one. ``ofAnyKey``: also those that
        wait for others of their key.
        """
        stored, recorder = self.stored, self.recorder
        again: Sequence[QueueDelivery]
        tags: Sequence[int]
        messages: Sequence[Message]
        if self.expiry is not None and self.expiry.isNextTooOld:
            self.expiry.expire()
            if self.expiry.isNextTooOld:
                return (), (), ()
        if self.ownExpiries is not None and self.ownExpiries.isDue:
            self.ownExpiries.expire()
            if self.ownExpiries.isDue:
                return (), (), ()
        flying, returned = stored.flying, stored.returned
        while flying.leaving and len(returned) < number:
            flying.takeBack()
        if ofAnyKey:
            stored.unpark()
        if recorder is not None and self.preparing:
            recorder.load()
        if stored.order is not None and not ofAnyKey:
            again, tags, messages = self._nextInOrder(stored.order, number, most)
        else:
            again = returned.take(number, most) if returned else ()
            tags = messages = ()
            if not returned:  # otherwise it is enough, or the next one must be read first
                most -= cost([message for _, message, _ in again]) if again else 0
                tags, messages = stored.backlog.take(number - len(again), most if most < stored.size else ANY)
                if self.withIds is not None:  # messages dropped earlier never need an id
                    messages = self._exchanged(messages, self.withIds(messages))
        hidden, hiddenAgain = messages, again
        if stored.size > self.memory:
            hidden = self._exchanged(messages, placesOf(messages))
            hiddenAgain = [_new(QueueDelivery, (tag, placeOf(message), attempts)) for tag, message, attempts in again]
            self._exchanged([each.message for each in again], [each.message for each in hiddenAgain])
        seconds = self.redelivery if lease is None else lease
        due = self.deadlines.seconds() + seconds if seconds else None
        if again or self.limit.deliveries == 1:
            self._noteLast(again, tags, consumer or getattr(holder, "name", ""))
        if again:
            stored.counted(REDELIVERED, len(again))
            flying.addAgain(hiddenAgain, due, holder)
        if stored.order is None:
            flying.add(tags, hidden, due, holder)
        else:  # there are parked messages between them
            for tag, message in zip(tags, hidden, strict=True):
                flying.add((tag,), (message,), due, holder)
        if recorder is not None:
            if tags or again or stored.order is not None:
                # A lease does not outlive its holder's connection, which ends with the broker.
                recorder.delivered(again, seconds if lease is None else 0.0)
            recorder.load()
        if not again:
            return tags, messages, ONCE
        tagsAgain, messagesAgain, attempts = zip(*again, strict=True)
        return [*tagsAgain, *tags], [*messagesAgain, *messages], chain(attempts, ONCE)

    def _noteLast(self, again: Sequence[QueueDelivery], tags: Sequence[int], consumer: str) -> None:
        """Note who has the last deliveries of messages."""
        if not consumer:
            return
        last = [each.tag for each in self.limit.last(again)]
        if last or self.limit.deliveries == 1:
            self._notes.last([*last, *tags] if self.limit.deliveries == 1 else last, consumer)

    def _fresh(self, number: int, most: int) -> tuple[Sequence[int], Sequence[Message]]:
        tags, messages = self.stored.backlog.take(number, most)
        return tags, messages if self.withIds is None else self._exchanged(messages, self.withIds(messages))

    def _nextInOrder(
        self, order: KeyOrder, number: int, most: int
    ) -> tuple[Sequence[QueueDelivery], Sequence[int], Sequence[Message]]:
        """Remove and return the next deliveries of messages that returned, then tags and messages of the backlog.

        A message whose key a consumer already holds is parked.
        """
        returned, again = self.stored.returned, list[QueueDelivery]()
        fresh: list[tuple[int, Message]] = []
        parked: list[QueueDelivery] = []
        while not order.unread and len(again) < number and (found := returned.take(1, most)):
            delivery = found[0]
            if order.admits(delivery.tag, keyOf(delivery.message)):
                again.append(delivery)
                most -= costOf(delivery.message)
            else:
                self._park(order, *delivery)
        while not (returned or order.unread or order.isFull) and (left := number - len(again) - len(fresh)) > 0:
            some = [*zip(*self._fresh(min(left, _FEW), most), strict=True)]
            if not some:
                break
            for tag, message in some:
                if order.admits(tag, keyOf(message)):
                    fresh.append((tag, message))
                    most -= costOf(message)
                else:
                    parked.append(self._park(order, tag, message))
            if len(parked) >= PARKED_AT_ONCE:
                self._isParking = True
                self.deadlines.callLater(0, self._goOn)
                break
        if parked and self.recorder is not None:
            self.recorder.parked(parked)
        return again, [tag for tag, _ in fresh], [message for _, message in fresh]

    def _goOn(self) -> None:
        """Continue after a part of the messages was parked."""
        self._isParking = False
        self.wake()

    def _park(self, order: KeyOrder, tag: int, message: Message, attempts: int = 1) -> QueueDelivery:
        """Park a message instead of this attempt; only its place if the memory is full."""
        key = keyOf(message)
        if self.stored.size > self.memory:
            [message] = self._exchanged([message], [placeOf(message)])
        delivery = QueueDelivery(tag, message, attempts - 1)
        order.park(delivery, key)
        return delivery

    def _exchanged(self, before: Sequence[Message], messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages that take the place of others, and account for their cost."""
        if messages is not before:
            self.stored.size += cost(messages) - cost(before)
        return messages

    def identify(self, tag: int, messageId: str | None) -> None:
        """Change the id of a message in flight."""
        delivery = self.stored.flying.get(tag)
        if delivery is not None:
            [message] = self._exchanged([delivery.message], [delivery.message._replace(message_id=messageId)])
            self.stored.flying.replace(delivery._replace(message=message))

    # -- the end of messages -----------------------------------------------------------------------------

    def acknowledge(self, tag: int) -> bool:
        """Remove the message with this tag, even if it has returned; False if it is unknown."""
        return not self.acknowledgeMany([tag])

    def acknowledgeRange(self, tags: range) -> list[int]:
        """As :meth:`acknowledgeMany`, for neighbours: in one step for those of a run."""
        stored = self.stored
        runs = stored.flying.removeRuns(tags)
        if runs is None:
            return self.acknowledgeMany([*tags])
        for run in runs:
            stored.size -= cost(run)
            if self.recorder is not None and run.first:
                self.recorder.gone(run.offsets)
        if stored.order is not None:
            self.ended(tags)
        return []

    def acknowledgeMany(self, tags: list[int]) -> list[int]:
        """Remove the messages with these tags, even if they have returned or are dead letters; return the tags that are
        unknown.
        """
        stored = self.stored
        found, unknown = stored.flying.removeMany(tags), []
        if not all(found):
            for place, tag in enumerate(tags):
                if found[place] is None:
                    delivery = stored.removeWaiting(tag)
                    if delivery is None:
                        unknown.append(tag)
                    else:
                        found[place] = delivery.message
        messages = [message for message in found if message is not None] if unknown else found
        stored.size -= cost(messages)  # type: ignore[arg-type]  # there is no None
        if self.recorder is not None and messages:
            self.recorder.gone(message_loops.offsetsOf(messages))  # type: ignore[arg-type]
        if stored.order is not None:
            self.ended(tags)
        return [tag for tag in unknown if not self.limit.withdraw(self, stored, tag)] if unknown else unknown

    def withdraw(self, number: int, offset: int, isIt: Callable[[Message], bool]) -> bool:
        """Remove a message that was never delivered; False if it is not there.

        :param number: the value of ``stored.arrived`` when it had arrived, and ``offset`` its offset in the journal.
        """
        size = self.stored.backlog.withdraw(number, offset, isIt)
        if size is not None:
            self.stored.undelivered(Dropped(1, size, [offset]))
        return size is not None

    def retryMany(self, tags: Sequence[int], delay: float = 0.0) -> list[int]:
        """Give messages in flight back: they are delivered again after ``delay`` seconds, before all that arrived
        later. After too many deliveries a message becomes a dead letter at once. Return the tags that are not in
        flight.
        """
        stored, recorder = self.stored, self.recorder
        again = stored.flying.takeEach(tags)
        known = {delivery.tag for delivery in again}
        if recorder is not None and again:
            recorder.moved(again, delay)
        if delay > 0:
            last = {delivery.tag for delivery in self.limit.last(again)}
            delayed = [delivery for delivery in again if delivery.tag not in last]
            again = [delivery for delivery in again if delivery.tag in last]
            now = self.deadlines.seconds()
            for delivery in delayed:
                stored.flying.delay(delivery, now + delay)
                stored.moved(delivery, False)
            self._notes.ended(delayed, now)
        if again:
            self._returnOrBury(again)
        return [tag for tag in tags if tag not in known]

    def extend(self, tag: int, seconds: float, holder: object) -> bool:
        """Hide a delivery of this holder for so many seconds from now; False if it is not in flight."""
        return self.stored.flying.extend(tag, self.deadlines.seconds() + seconds, holder)

    def reject(self, tag: int, words: str = "", consumer: str = "", reason: DeathReason = DeathReason.REJECTED) -> bool:
        """As :meth:`rejectMany`; False if the message is not in flight."""
        return not self.rejectMany([tag], [words], consumer, reason)

    def rejectMany(
        self,
        tags: Sequence[int],
        words: Sequence[str],
        consumer: str = "",
        reason: DeathReason = DeathReason.REJECTED,
    ) -> list[int]:
        """Make dead letters of the messages in flight with these tags, however often they were delivered. Return the
        tags that are not in flight.

        :param words: for each tag, the reason of its consumer, which has the name ``consumer``, for the dead letter.
        """
        wordsOf = dict(zip(tags, words, strict=True))
        dead = [LastDelivery(*each, reason, consumer, wordsOf[each.tag]) for each in self.stored.flying.takeEach(tags)]
        self.stored.size -= cost([delivery.message for delivery in dead])
        if dead:
            self._bury(dead)
            if self.stored.order is not None:
                self.wake()
        known = {delivery.tag for delivery in dead}
        return [tag for tag in tags if tag not in known]

    def _bury(self, dead: Sequence[LastDelivery]) -> None:
        last = []
        for delivery in dead:
            first, consumer = self._notes.take(delivery.tag)
            last.append(delivery._replace(first=first, consumer=delivery.consumer or consumer))
        self.limit.bury(self, self.stored, last)

    def ended(self, tags: Iterable[int]) -> None:
        """Record that messages which were delivered have left for good; parked ones of their keys are next."""
        if self.stored.ended(tags):
            self.wake()
            if self.recorder is not None and self.preparing:
                self.recorder.load()

    def release(self, holder: object) -> None:
        """Take back all deliveries of this holder at once, many in slices: to the head, in order, or to the dead
        letters.
        """
        self.stored.flying.release(holder)

    def _returnOrBury(self, deliveries: list[QueueDelivery]) -> None:
        """Return deliveries to the head, or make dead letters of them; callbacks find the queue consistent."""
        if self.ownExpiries is not None:
            deliveries = self.ownExpiries.returned(deliveries)
        stored, again = self.stored, deliveries
        dead = self.limit.last(deliveries)
        if dead:
            last = {delivery.tag for delivery in dead}
            again = [delivery for delivery in deliveries if delivery.tag not in last]
        stored.returned.add(again)
        self._notes.ended(again, self.deadlines.seconds())
        stored.size -= cost([delivery.message for delivery in dead])
        for delivery in again:
            stored.moved(delivery, False)
        if dead:
            self._bury(dead)
        if self.expiry is not None:
            self.expiry.expire()
        self.wake()
        if self.recorder is not None and self.preparing:
            self.recorder.load()

    def close(self) -> int:
        """Drop all messages and waiting callbacks, and refuse new ones; return how many messages were dropped."""
        dropped = self.stored.all
        self.closed = True
        if self.expiry is not None:
            self.expiry.cancel()
        if self.ownExpiries is not None:
            self.ownExpiries.clear()
        if self.recorder is not None:
            self.recorder.close()
        self.stored.clear()
        self._notes.clear()
        self._waiters.clear()
        self._whenReady = ()
        return dropped
