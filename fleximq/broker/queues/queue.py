"""A bounded first-in first-out queue that hands messages out, hides them, and takes them back.

What is handed out is *in flight*: hidden from others until it is acknowledged, until its holder is gone, or until
``retryAfter`` seconds have passed. Then it returns to the head, in the original order and with the same tag. What
came back too often goes to the dead letters. Nothing here knows a dialect: BlipMQ's subscriptions and MiniMQ's
topic queues are built on it, in files of their own.

Measured on Python 3.11 and one core: taking and acknowledging a message cost 0.9 us together, in batches of 100
0.6 us; putting one in costs 0.03 us in runs of 1000. There is one deadline per queue, armed by a delivery and
left standing until it comes up, since arming it anew for each message would cost more than all the rest.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from zope.interface import implementer

from fleximq.broker.deadlines import TOLERANCE, Deadline, Deadlines
from fleximq.broker.envelope import Envelope, QueueDelivery
from fleximq.broker.queues.in_flight import HeldTags, InFlight, Returned
from fleximq.broker.queues.waiting_consumers import WaitingConsumers
from fleximq.broker.queues.waiting_messages import (
    ANY,
    IN_FLIGHT_OVERHEAD,
    OVERHEAD,
    MessageAges,
    WaitingMessages,
    cost,
    costOf,
)
from fleximq.interfaces import IForm, ISubscriber
from fleximq.limits import DEAD
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Message

#: Why a queue refuses.
FULL = "queue is full"
#: What is counted.
DROPPED = CountedEvent(EventFamily.DROPPED, "queue full")
DEAD_LETTERS = CountedEvent(EventFamily.DEAD_LETTERS)
EXPIRED = CountedEvent(EventFamily.EXPIRED, "time to live")
REDELIVERED = CountedEvent(EventFamily.REDELIVERED)
#: So many deliveries are taken back at once when their time is over: about 5 ms.
PORTION = 10_000

_new = tuple.__new__


@implementer(IForm)
class _Queued:
    """The form of queues: single messages, each with the QoS of its envelope and its place in the journal."""

    def render(self, envelope: Envelope, body: Any, count: int) -> Sequence[Message]:
        """Return the run's messages; only those are made anew that have another QoS, or a place in the journal."""
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


def _ignore(delivery: QueueDelivery, gone: bool) -> None:
    """Nobody wants to know."""


@implementer(ISubscriber)
class Queue:
    """Messages waiting for consumers who take and acknowledge them.

    :param name: the topic; queues whose name begins with :data:`DEAD` have no dead letters of their own.
    :param retryAfter: seconds for which a delivery is hidden.
    :param maxDeliveries: how often a message is handed out before it is dead; 0 for no end.
    :param maxMessages: bound of what is waiting and in flight together.
    :param maxBytes: the same in bytes, as :mod:`fleximq.broker.queues.waiting_messages` counts them.
    :param onDead: is given the queue's name and the message that is dead; None for no end to deliveries.
    :param counted: is told what is worth counting: :data:`DROPPED`, :data:`DEAD_LETTERS` ...
    :param dropsOldest: whether :meth:`deliver` keeps the bounds by dropping; if not, the caller keeps them by
        asking :meth:`admits` first.
    :param lives: seconds after which a message that waits is not worth handing out any more; None for no end.
    :param moved: is told of each delivery that is in flight no longer though nobody acknowledged it: waiting
        again (False) or gone (True: dead, or dropped while it waited again). Closing tells nobody.
    :param named: gives a message the id that it is handed out with, and keeps; None if none is needed.

    ``size`` is the cost in bytes of everything waiting and in flight; ``lastTag`` the tag of the latest first
    delivery, 0 before it. Errors of callbacks go to the deadlines' ``onError``.
    """

    form = QUEUED

    def __init__(
        self,
        *,
        name: str,
        deadlines: Deadlines,
        retryAfter: float,
        maxDeliveries: int,
        maxMessages: int,
        maxBytes: int,
        onDead: Callable[[str, Message], object] | None,
        counted: Callable[[str, int], None],
        dropsOldest: bool = True,
        lives: float | None = None,
        moved: Callable[[QueueDelivery, bool], None] = _ignore,
        named: Callable[[Message], Message] | None = None,
    ) -> None:
        self.name = name
        self.maxMessages = maxMessages
        self.maxBytes = maxBytes
        self.size = 0
        self.lastTag = 0
        self._retryAfter = retryAfter
        self._onDead = None if name.startswith(DEAD) else onDead
        self._maxDeliveries = maxDeliveries if self._onDead is not None else 0
        self._counted = counted
        self._dropsOldest = dropsOldest
        self._moved = moved
        self._naming = named
        self._deadlines = deadlines
        self._seconds = deadlines.seconds
        self._deadline: Deadline | None = None
        self._backlog = WaitingMessages()
        self._returned = Returned()
        self._inFlight = InFlight()
        self._waiters = WaitingConsumers(deadlines.onError)
        self._ages = None if lives is None else MessageAges(lives)
        self._left: deque[tuple[HeldTags, list[int]]] = deque()
        self._closed = False
        self._thrown = 0

    @property
    def depth(self) -> int:
        """The number of messages that can be taken now."""
        return len(self._returned) + len(self._backlog)

    @property
    def weight(self) -> int:
        """What counts against ``maxBytes``: ``size``, and :data:`IN_FLIGHT_OVERHEAD` for each message in flight."""
        return self.size + IN_FLIGHT_OVERHEAD * len(self._inFlight)

    @property
    def inFlight(self) -> int:
        """The number of messages that are handed out and hidden."""
        return len(self._inFlight)

    @property
    def returned(self) -> int:
        """The number of messages that were handed out and wait again."""
        return len(self._returned)

    @property
    def untried(self) -> int:
        """The number of messages that were never handed out."""
        return len(self._backlog)

    @property
    def arrived(self) -> int:
        """How many messages have come so far, about: what was thrown away and had no tag yet is among them."""
        return self.lastTag + len(self._backlog) + self._thrown

    @property
    def oldest(self) -> int | None:
        """The how-manieth message that came is the oldest that waits; None if none does."""
        returned = self._returned.first()
        if returned is not None:
            return returned.tag
        return self.lastTag + self._thrown + 1 if len(self._backlog) else None

    @property
    def loading(self) -> bool:
        """Whether a message waits that cannot be taken before it was read, see :meth:`whenLoaded`; never here."""
        return False

    def whenLoaded(self, call: Callable[[], object]) -> None:
        """Call once what is read for this queue has come; here at once."""
        call()

    @property
    def waiting(self) -> int:
        """The number of callbacks that wait for a message."""
        return len(self._waiters)

    def isInFlight(self, tag: int) -> bool:
        """Tell whether the message with this tag is handed out and hidden."""
        return tag in self._inFlight

    def delivered(self) -> list[QueueDelivery]:
        """Return what was handed out and not acknowledged, whether in flight or waiting again."""
        return self._inFlight.deliveries() + self._returned.deliveries()

    def admits(self, count: int, size: int) -> str | None:
        """Return None if ``count`` more messages with ``size`` bytes in them fit, else why they do not."""
        return FULL if self._exceeds(count, size + OVERHEAD * count) else None

    def admitsAlone(self, count: int, size: int) -> str | None:
        """Return None if so much would fit were nothing else here, else why it would not."""
        alone = count <= self.maxMessages and size + OVERHEAD * count <= self.maxBytes
        return None if alone else FULL

    def deliver(self, rendered: Sequence[Message], count: int) -> None:
        """Put all of these in, in order; what is too much then is dropped, oldest first, and counted.

        What is in flight is never dropped. A message that would not even fit if nothing else were waiting is
        dropped itself and leaves the others alone.
        """
        if self._closed:
            return
        size = cost(rendered)
        if self._dropsOldest and self._exceeds(count, size):
            self._squeezeIn(rendered)
        else:
            self._backlog.append(rendered, size)
            self.size += size
        if self._ages is not None:
            self._ages.add(self.lastTag + len(self._backlog), self._seconds())
        if self._waiters:
            self._waiters.wake(self._available)

    def take(self, holder: object = None) -> QueueDelivery | None:
        """Hand out the oldest message and hide it for ``retryAfter`` seconds; None if there is none.

        :param holder: who takes it, any hashable object, remembered until :meth:`release`; None for nobody.
        """
        if self._ages is not None:
            self._expire(self._ages)
        while self._left and not self._returned:
            self._takeBackPortion()
        if self._returned:
            self._counted(REDELIVERED, 1)
            return self._takeAgain(holder)
        message = self._backlog.popleft()
        if message is None:
            return None
        if self._naming is not None:
            (message,) = self._withIds(self._naming, [message])
        self.lastTag = tag = self.lastTag + 1
        delivery: QueueDelivery = _new(QueueDelivery, (tag, message, 1))
        self._inFlight.hand(delivery, self._seconds() + self._retryAfter, holder)
        if self._deadline is None:
            self._arm(self._retryAfter)
        return delivery

    def takeMany(self, holder: object, number: int, most: int = ANY) -> list[QueueDelivery]:
        """Hand out the oldest messages, ``number`` of them or as many as there are; as :meth:`take` for each.

        :param most: no more are handed out when these cost so many bytes.
        """
        if self._ages is not None:
            self._expire(self._ages)
        while self._left and len(self._returned) < number:
            self._takeBackPortion()
        deliveries: list[QueueDelivery] = []
        while self._returned and len(deliveries) < number and most > 0:
            again = self._takeAgain(holder)
            if again is not None:
                deliveries.append(again)
                most -= costOf(again.message)
        if deliveries:
            self._counted(REDELIVERED, len(deliveries))
        messages = self._backlog.popMany(number - len(deliveries), most)
        if self._naming is not None:
            messages = self._withIds(self._naming, messages)
        first = [_new(QueueDelivery, (tag, message, 1)) for tag, message in enumerate(messages, self.lastTag + 1)]
        self.lastTag += len(first)
        self._inFlight.handMany(first, self._seconds() + self._retryAfter, holder)
        deliveries += first
        if self._deadline is None and deliveries:
            self._arm(self._retryAfter)
        return deliveries

    def _withIds(self, naming: Callable[[Message], Message], messages: list[Message]) -> list[Message]:
        """Give messages their ids, which count from now on; those that are dropped before never need one."""
        named = [naming(message) for message in messages]
        self.size += cost(named) - cost(messages)
        return named

    def acknowledge(self, tag: int) -> bool:
        """Remove the message with this tag for good, also if it has returned meanwhile.

        :return: False if there is no such delivery (any more).
        """
        delivery = self._inFlight.remove(tag)
        if delivery is None:
            delivery = self._returned.remove(tag)
            if delivery is None:
                return False
        self.size -= costOf(delivery.message)
        return True

    def deadLetter(self, tag: int) -> None:
        """Move what is in flight with this tag to the dead letters, however often it was handed out."""
        delivery = self._inFlight.remove(tag)
        if delivery is not None:
            self.size -= costOf(delivery.message)
            self._moved(delivery, True)
            self._bury([delivery])

    def release(self, holder: object) -> None:
        """Take back at once what this holder has in flight: to the head, in order, or to the dead letters.

        Very much is taken back in portions, in turns of their own.
        """
        held, tags = self._inFlight.leave(holder)
        if tags:
            self._left.append((held, tags))
            if len(self._left) == 1:
                self._takeBackLeft()

    def _takeBackLeft(self) -> None:
        """Take back a portion of what those had who left, and the rest in a moment."""
        self._takeBackPortion()
        if self._left:
            self._deadlines.call(0, self._takeBackLeft)

    def whenReady(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` once, the next time that something becomes available and its turn has come.

        Who waits longest is called first, one for each message there is. It is not called for what is available
        already, and never after :meth:`close`.

        :return: a function that gives the waiting up.
        """
        return self._waiters.add(callback)

    def close(self) -> int:
        """Drop everything, forget who waits, take nothing in any more.

        :return: how many messages were dropped, those in flight included.
        """
        dropped = self.depth + len(self._inFlight)
        self._closed = True
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._backlog.clear()
        self._returned.clear()
        self._inFlight.clear()
        self._waiters.clear()
        self._left.clear()
        self.size = 0
        return dropped

    def _takeAgain(self, holder: object) -> QueueDelivery | None:
        delivery = self._returned.popleft()
        if delivery is None:
            return None
        delivery = _new(QueueDelivery, (delivery.tag, delivery.message, delivery.attempts + 1))
        self._inFlight.hand(delivery, self._seconds() + self._retryAfter, holder)
        if self._deadline is None:
            self._arm(self._retryAfter)
        return delivery

    def _arm(self, delay: float) -> None:
        self._deadline = self._deadlines.call(delay, self._comeUp)

    def _comeUp(self) -> None:
        """Take back what is due and stand by for what comes next; with nothing in flight the deadline rests.

        Very much at once is taken back in portions, between which the broker does other things.
        """
        self._deadline = None
        now = self._seconds()
        due = self._remove(self._inFlight.due(now + TOLERANCE, PORTION))
        first = self._inFlight.firstDue()
        if first is not None:
            self._arm(max(0.0, first - now))
        self._takeBack(due)

    def _takeBackPortion(self) -> None:
        """Take back a portion of what those had who left; what others were given meanwhile is theirs."""
        if not self._left:
            return
        held, tags = self._left[0]
        if len(tags) > PORTION:
            self._left[0] = held, tags[PORTION:]
        else:
            self._left.popleft()
        inFlight = self._inFlight
        mine = [tag for tag in tags[:PORTION] if inFlight.isHeld(tag, held)]
        self._takeBack(self._remove(mine))

    def _expire(self, ages: MessageAges) -> None:
        """Throw away what waits and is too old; the tags of what is thrown away are not given."""
        until = ages.before(self._seconds())
        expired = self._expireReturned(until) + self._expireBacklog(until)
        if expired:
            self._counted(EXPIRED, expired)

    def _expireBacklog(self, until: int) -> int:
        expired = 0
        while self.lastTag < until and len(self._backlog):
            self.size -= self._backlog.dropOldest()
            self.lastTag += 1
            expired += 1
        return expired

    def _expireReturned(self, until: int) -> int:
        expired = 0
        while (delivery := self._returned.first()) is not None and delivery.tag <= until:
            self._drop(delivery)
            expired += 1
        return expired

    def _drop(self, delivery: QueueDelivery) -> None:
        """Throw away what waits again."""
        self._returned.remove(delivery.tag)
        self.size -= costOf(delivery.message)
        self._moved(delivery, True)

    def _remove(self, tags: list[int]) -> list[QueueDelivery]:
        deliveries = [self._inFlight.remove(tag) for tag in tags]
        return [delivery for delivery in deliveries if delivery is not None]

    def _takeBack(self, deliveries: list[QueueDelivery]) -> None:
        """Put what was in flight back at the head, or bury it; callbacks find the queue consistent."""
        again, dead = deliveries, []
        if self._maxDeliveries:
            again = [delivery for delivery in deliveries if delivery.attempts < self._maxDeliveries]
            dead = [delivery for delivery in deliveries if delivery.attempts >= self._maxDeliveries]
        self._returned.add(again)
        self.size -= cost([delivery.message for delivery in dead])
        for delivery in again:
            self._moved(delivery, False)
        for delivery in dead:
            self._moved(delivery, True)
        if dead:
            self._bury(dead)
        if self._waiters:
            self._waiters.wake(self._available)

    def _bury(self, dead: list[QueueDelivery]) -> None:
        self._counted(DROPPED if self._onDead is None else DEAD_LETTERS, len(dead))
        if self._onDead is None:
            return
        for delivery in dead:
            try:
                self._onDead(self.name, delivery.message)
            except Exception as error:
                self._deadlines.onError(error)

    def _available(self) -> int:
        return self.depth

    def _exceeds(self, count: int, size: int) -> bool:
        """Tell whether that much more would be over a bound."""
        kept = len(self._backlog) + len(self._returned) + len(self._inFlight)
        return kept + count > self.maxMessages or self.weight + size > self.maxBytes

    def _squeezeIn(self, messages: Sequence[Message]) -> None:
        """Put in what can fit at all, then drop the oldest until the bounds hold again."""
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
        self._counted(DROPPED, dropped + self._dropUntried())

    def _dropUntried(self) -> int:
        """Drop what was never handed out, oldest first, until the bounds hold; return how many."""
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
            self._thrown += dropped
        return dropped

    def _dropOldest(self) -> bool:
        """Drop the oldest of what waits; False if nothing does."""
        delivery = self._returned.first()
        if delivery is not None:
            self._drop(delivery)
            return True
        size = self._backlog.dropOldest()
        self.size -= size
        if size and self._ages is not None:
            self.lastTag += 1
        elif size:
            self._thrown += 1
        return size > 0
