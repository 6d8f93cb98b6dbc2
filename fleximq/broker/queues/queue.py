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
from itertools import chain, repeat

from zope.interface import implementer

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import LastDelivery, QueueDelivery
from fleximq.broker.queues.backlog import Backlog, Dropped, MemoryBacklog
from fleximq.broker.queues.bounds import Bounds
from fleximq.broker.queues.delivery_limit import DeliveryLimit
from fleximq.broker.queues.expiry import Expiry
from fleximq.broker.queues.first_attempts import FirstAttempts
from fleximq.broker.queues.in_flight import InFlight
from fleximq.broker.queues.message_place import offsetsOf, placeOf
from fleximq.broker.queues.queued_form import QUEUED
from fleximq.broker.queues.recorder import Recorder
from fleximq.broker.queues.stored_messages import StoredMessages
from fleximq.broker.queues.waiting_consumers import WaitingConsumers
from fleximq.interfaces import ISubscriber
from fleximq.limits import DEAD
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, cost, costOf

#: Counted for repeated deliveries.
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

    ``stored`` has the messages, and ``bounds`` how many it may have. Errors of callbacks are passed to the deadlines'
    ``onError``.

    :param name: the topic; queues with names that begin with :data:`DEAD` make no dead letters.
    :param redelivery: seconds for which a delivery is hidden.
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
    closed: bool = field(init=False, default=False)
    stored: StoredMessages = field(init=False)
    expiry: Expiry | None = field(init=False)
    bounds: Bounds = field(init=False)
    _firstAttempts: FirstAttempts = field(init=False)
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
        self._firstAttempts = FirstAttempts(lambda tag: tag in stored.flying or tag in stored.returned)
        self._waiters = WaitingConsumers(self.deadlines.onError)

    @property
    def durable(self) -> bool:
        """Whether its messages and its state are in the journal."""
        return self.recorder is not None

    def deliver(self, rendered: Sequence[Message], count: int) -> None:
        """Add messages in order; overflow drops the oldest waiting ones, or messages too large for the free bytes."""
        if self.closed or not rendered:
            return
        size = self.stored.backlog.append(rendered)
        self.stored.size += size
        if self.dropsOldest and self.bounds.isOver(0, 0):
            self.bounds.enforce(rendered, size)
        if self.expiry is not None:
            self.expiry.arrived()
        if self._waiters:
            self._waiters.wake(self.available)

    # -- waiting -----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """The number of waiting callbacks."""
        return len(self._waiters)

    @property
    def preparing(self) -> bool:
        """Whether the next message is not ready: it is only on disk, or many older ones that expired are dropped first.
        Consumers wait with :meth:`whenPrepared`.
        """
        return (self.expiry is not None and self.expiry.isNextTooOld) or self.stored.isNextOnDisk

    def whenPrepared(self, call: Callable[[], object]) -> None:
        """Call once when the next message may be ready; at once unless the queue is ``preparing``."""
        if not self.preparing:
            call()
            return
        self._whenReady = [*self._whenReady, call]
        if self.expiry is not None and self.expiry.isNextTooOld:
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
        return 0 if self.preparing else len(self.stored.returned) + self.stored.backlog.available

    # -- delivery ----------------------------------------------------------------------------------------

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
        stored, recorder = self.stored, self.recorder
        if self.expiry is not None and self.expiry.isNextTooOld:
            self.expiry.expire()
            if self.expiry.isNextTooOld:
                return (), (), ()
        flying, returned = stored.flying, stored.returned
        while flying.leaving and len(returned) < number:
            flying.takeBack()
        if recorder is not None and self.preparing:
            recorder.load()
        again: Sequence[QueueDelivery] = returned.take(number, most) if returned else ()
        tags: Sequence[int] = ()
        messages: Sequence[Message] = ()
        if not returned:  # otherwise it is enough, or the next one must be read first
            most -= cost([message for _, message, _ in again]) if again else 0
            tags, messages = stored.backlog.take(number - len(again), most if most < stored.size else ANY)
            if self.withIds is not None:  # messages dropped earlier never need an id
                messages = self._exchanged(messages, self.withIds(messages))
        hidden, hiddenAgain = messages, again
        if stored.size > self.memory:
            hidden = self._exchanged(messages, list(map(placeOf, messages)))
            hiddenAgain = [_new(QueueDelivery, (tag, placeOf(message), attempts)) for tag, message, attempts in again]
            self._exchanged([each.message for each in again], [each.message for each in hiddenAgain])
        due = self.deadlines.seconds() + self.redelivery
        if again:
            stored.counted(REDELIVERED, len(again))
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

    def _exchanged(self, before: Sequence[Message], messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages that take the place of others, and account for their cost."""
        if messages is not before:
            self.stored.size += cost(messages) - cost(before)
        return messages

    # -- the end of messages -----------------------------------------------------------------------------

    def acknowledge(self, tag: int) -> bool:
        """Remove the message with this tag, even if it has returned; False if it is unknown."""
        return not self.acknowledgeMany([tag])

    def acknowledgeMany(self, tags: list[int]) -> list[int]:
        """Remove the messages with these tags, even if they have returned or are dead letters; return the tags that are
        unknown.
        """
        stored = self.stored
        found, unknown = stored.flying.removeMany(tags), []
        if not all(found):
            for place, tag in enumerate(tags):
                if found[place] is None:
                    delivery = stored.returned.remove(tag)
                    if delivery is None:
                        unknown.append(tag)
                    else:
                        found[place] = delivery.message
        messages = [message for message in found if message is not None] if unknown else found
        stored.size -= cost(messages)  # type: ignore[arg-type]  # there is no None
        if self.recorder is not None and messages:
            self.recorder.gone(offsetsOf(messages))  # type: ignore[arg-type]
        return [tag for tag in unknown if not self.limit.withdraw(self, stored, tag)] if unknown else unknown

    def withdraw(self, number: int, offset: int, isIt: Callable[[Message], bool]) -> bool:
        """Remove a message that was never delivered; False if it is not there.

        :param number: the value of ``stored.arrived`` when it had arrived, and ``offset`` its offset in the journal.
        """
        withdrawn = self.stored.backlog.withdraw(number, offset, isIt)
        if withdrawn is None:
            return False
        self.stored.undelivered(Dropped(1, withdrawn.size, [offset]))
        if self.expiry is not None and withdrawn.tag:
            self.expiry.ages.removed(withdrawn.tag)
        return True

    def reject(self, tag: int, words: str = "", consumer: str = "", reason: DeathReason = DeathReason.REJECTED) -> bool:
        """Make a dead letter of the message in flight with this tag, however often it was delivered; False if it is not
        in flight.

        :param words: the reason of its consumer, which has the name ``consumer``, for the dead letter.
        """
        delivery = self.stored.flying.remove(tag)
        if delivery is not None:
            self.stored.size -= costOf(delivery.message)
            self._bury([LastDelivery(*delivery, reason, consumer, words)])
        return delivery is not None

    def _bury(self, dead: Sequence[LastDelivery]) -> None:
        firsts = [self._firstAttempts.take(delivery.tag) for delivery in dead]
        last = [delivery._replace(first=first) for delivery, first in zip(dead, firsts, strict=True)]
        self.limit.bury(self, self.stored, last)

    def giveBack(self, tags: Sequence[int]) -> None:
        """Return deliveries to the head at once, or to the dead letters; unknown tags are ignored."""
        flying = self.stored.flying
        self._returnOrBury([delivery for tag in tags if (delivery := flying.remove(tag)) is not None])

    def release(self, holder: object) -> None:
        """Take back all deliveries of this holder at once, many in slices: to the head, in order, or to the dead
        letters.
        """
        self.stored.flying.release(holder)

    def _returnOrBury(self, deliveries: list[QueueDelivery]) -> None:
        """Return deliveries to the head, or make dead letters of them; callbacks find the queue consistent."""
        stored, again = self.stored, deliveries
        dead = self.limit.last(deliveries)
        if dead:
            last = {delivery.tag for delivery in dead}
            again = [delivery for delivery in deliveries if delivery.tag not in last]
        stored.returned.add(again)
        self._firstAttempts.ended(again, self.deadlines.seconds())
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
        if self.recorder is not None:
            self.recorder.close()
        self.stored.clear()
        self._firstAttempts.clear()
        self._waiters.clear()
        self._whenReady = ()
        return dropped
