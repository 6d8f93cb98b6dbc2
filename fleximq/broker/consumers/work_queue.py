"""A work queue: messages that several consumers share, those of its own topic unless a definition names other sources.

The rules are those of the MiniMQ document and of docs/reference/dialects.rst: a delivered message is hidden until any
connection acknowledges it by its id, or until the time is over, even if the consumer leaves earlier. A queue that was
never consumed drops its oldest messages when it is full.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar

from zope.interface import implementer

from fleximq.broker.consumers.delivered_ids import DeliveredIds
from fleximq.broker.consumers.lanes import STEP, Lanes, innerDeliveries, laneKey, outerDeliveries, priorityIn
from fleximq.broker.consumers.message_ids import MessageIds
from fleximq.broker.consumers.queue_consumer import QueueConsumer
from fleximq.broker.consumers.queue_distribution import Distribution
from fleximq.broker.consumers.queue_owner import QueueOwner
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.bounds import DROPPED
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.queues.queued_form import QUEUED, SOURCED
from fleximq.broker.queues.run_deque import FEW
from fleximq.interfaces import IGuard, ISubscriber
from fleximq.limits import DEAD, SYSTEM
from fleximq.values import message_loops
from fleximq.values.death import shortWords
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY
from fleximq.values.queue_definition import QueueDefinition

#: Seconds after a request for a message during which a queue has a consumer.
ATTENDED = 60.0
#: Prefix of the key of a reply queue in the journal, so that it is one after a restart too.
REPLIES = "r:"
# The same of all other work queues.
_WORK = "q:"

D = TypeVar("D", float, float | None)


@implementer(ISubscriber, IGuard)
class WorkQueue(QueueOwner):
    """The queue of one topic, ``name``, used when it is made and when a consumer asks for a message.

    ``definition`` is None for a queue that nobody defined. ``distribution`` has its consumers, ``ids`` those of its
    messages. ``forReplies``: it was
    made because a message named its topic as ReplyTo. Every message that :meth:`consumeMany`
    returns has a ``message_id`` that is valid in MiniMQ.
    """

    form = QUEUED
    id = 0
    qos = 1
    owner = None

    def __init__(
        self,
        name: str,
        *,
        makeQueue: QueueFactory,
        seconds: Callable[[], float],
        ids: DeliveredIds,
        idOf: Callable[[Message], str],
        forReplies: bool = False,
        definition: QueueDefinition | None = None,
        onLetters: Callable[[Queue, Sequence[Message]], None] | None = None,
        onOverflow: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.name = name
        self.forReplies = forReplies
        self.lastUsed = seconds()
        #: When a client has last asked for a message, without being a consumer; of this process.
        self._asked = -ATTENDED
        self._seconds = seconds
        self.ids = MessageIds(idOf, ids, always=name.startswith(DEAD))
        self._onOverflow = onOverflow
        self._isOverflowing = False
        self._counted = makeQueue.counted
        # The broker's own topics are never in the journal.
        volatile = name.startswith(SYSTEM) or (definition is not None and definition.durable is False)
        key = "" if volatile else (REPLIES if forReplies else _WORK) + name
        self._makeQueue = makeQueue
        self.definition: QueueDefinition | None = None
        #: The consumers of deliveries with a lease, by tag.
        self._leased: dict[int, QueueConsumer] = {}
        super().__init__(self._makeLane(key))
        self.lanes = Lanes(self.queue, lambda priority: self._makeLane(key and laneKey(name, priority)))
        self._hasLanes = not (forReplies or name.startswith(DEAD))
        if self._hasLanes:
            self.queue.divert = self._divert
        self.distribution = Distribution(self, makeQueue.deadlines.onError)
        self._onLetters = onLetters if name.startswith(DEAD) else None
        if definition is not None:
            self.define(definition)

    def _makeLane(self, key: str) -> Queue:
        def moved(delivery: QueueDelivery, gone: bool) -> None:
            self._moved(lane, delivery, gone)

        lane = self._makeQueue(self.name, key, moved=moved, withIds=self.ids.added, counted=self._count)
        self._bound(lane)
        return lane

    def _divert(self, rendered: Sequence[Message], count: int) -> None:
        """Deliver messages of another priority than the usual one to their lane."""
        head = rendered[0].head
        assert head is not None
        lane = self.lanes.of(head.priority)
        if self.distribution.waiting:
            self.watch()
        lane.deliver(rendered, count)

    @property
    def isDefined(self) -> bool:  # type: ignore[override]
        return self.definition is not None

    def define(self, definition: QueueDefinition) -> None:
        """Apply a definition, except its sources (:mod:`fleximq.broker.consumers.queue_sources`)."""
        self.definition = definition
        isOrdered = definition.ordered_by is not None
        self.queue.divert = None if isOrdered or not self._hasLanes else self._divert
        self.queue.isOrdered = isOrdered
        self.form = QUEUED if definition.sources == (self.name,) else SOURCED
        for lane in self.lanes:
            self._bound(lane)

    def _bound(self, lane: Queue) -> None:
        """Give a lane the bounds of the definition."""
        definition, make = self.definition, self._makeQueue
        if definition is None:
            return
        lane.bounds.maxMessages = definition.max_messages or make.maxMessages
        lane.bounds.maxBytes = definition.max_bytes or make.maxBytes
        lane.expiredDie = definition.expired == "dead"
        seconds = definition.message_ttl
        lane.expireAfter(make.timeToLiveOf(self.name) if seconds is None else seconds)
        lane.needsHeads = definition.sources != (self.name,)
        lane.dropsOldest = not self.refuses
        most = definition.max_attempts
        if not self.name.startswith(DEAD):
            lane.limit = make.limit if most is None else replace(make.limit, deliveries=most)

    @property
    def refuses(self) -> bool:
        """Whether a full queue refuses all publications, of any dialect."""
        return self.definition is not None and self.definition.when_full == "refuse"

    @property
    def deliver(self) -> Callable[[Sequence[Message], int], None]:
        """The queue's method itself, so that a delivery costs no further call; letters are reported too."""
        return self.queue.deliver if self._onLetters is None else self._deliverLetters

    @property
    def depth(self) -> int:
        return sum(lane.stored.depth for lane in self.lanes)

    @property
    def inFlight(self) -> int:
        return sum(len(lane.stored.flying) for lane in self.lanes)

    @property
    def size(self) -> int:
        return sum(lane.stored.size for lane in self.lanes)

    @property
    def preparing(self) -> bool:
        return next((lane.preparing for lane in self.lanes if lane.preparing or lane.available()), False)

    @property
    def isReturning(self) -> bool:
        """Whether messages may be ready in the next turns, without others."""
        return any(lane.isReturning for lane in self.lanes)

    def whenPrepared(self, call: Callable[[], object]) -> None:
        next((lane for lane in self.lanes if lane.preparing), self.queue).whenPrepared(call)

    @property
    def idle(self) -> float:
        return self._seconds() - self.lastUsed

    def admits(self, count: int, size: int) -> str | None:
        """Return the reason why messages of MiniMQ are refused; None: accepted. A queue that was never consumed drops
        its oldest messages, so it refuses only messages that exceed the bounds alone.
        """
        if self.everConsumed or self.refuses:
            return self.queue.bounds.admits(count, size)
        return self.queue.bounds.admitsAlone(count, size)

    def _use(self) -> None:
        if not self.everConsumed and self.queue.recorder is not None:
            self.queue.recorder.use()
        self.everConsumed = True
        self._isOverflowing = False
        self.lastUsed = self._seconds()

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics and patterns whose messages it receives."""
        return (self.name,) if self.definition is None else self.definition.sources

    # -- consumers that ask --------------------------------------------------------------------------

    def consumeMany(self, number: int, most: int = ANY, consumer: str = "") -> list[QueueDelivery]:
        """Deliver up to ``number`` of the oldest messages until they cost ``most`` bytes; the queue counts as used."""
        self._use()
        self._asked = self.lastUsed
        if self.definition is not None:
            number = min(number, self._room)
        found: list[QueueDelivery] = []
        for _, lane, taken in self.lanes.take(None, number, most, None, consumer) if number > 0 else ():
            deliveries = self.ids.taken(lane, innerDeliveries(taken))
            found = [*found, *deliveries] if found else deliveries
        return found

    def whenReady(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call once when a message can be taken, in the order of requests; return a function that cancels this."""
        return self.distribution.whenReady(call)

    # -- consumers with a prefetch -------------------------------------------------------------------

    @property
    def isBlocked(self) -> bool:
        """Whether nothing is delivered: the queue is paused, or has the maximum number of unsettled deliveries."""
        return self._room <= 0

    @property
    def _room(self) -> int:
        definition = self.definition
        if definition is None:
            return ANY
        if definition.paused:
            return 0
        if definition.max_in_flight is None:
            return ANY
        return definition.max_in_flight - self.inFlight + sum(lane.stored.flying.delayed for lane in self.lanes)

    @property
    def available(self) -> int:
        return self.lanes.available if self.definition is None else min(self.lanes.available, self._room)

    def takeFor(self, consumer: QueueConsumer, number: int, most: int) -> Sequence[QueueDelivery]:
        self._use()
        lease = 0.0
        if self.definition is not None:
            number, lease = min(number, self._room), self.definition.lease
        lease = consumer.lease(lease)
        found: Sequence[QueueDelivery] = ()
        for priority, _, taken in self.lanes.take(consumer, number, most, lease):
            deliveries = outerDeliveries(priority, taken)
            found = [*found, *deliveries] if found else deliveries
        if lease:
            self._leased.update(dict.fromkeys([delivery.tag for delivery in found], consumer))
        return found

    def consumers(self, now: float) -> int:
        """Return the number of consumers: those with a prefetch, and those that wait, or one if any has asked for a
        message in the last :data:`ATTENDED` seconds.
        """
        found = len(self.distribution.consumers) + self.distribution.asking
        return found or int(now - self._asked < ATTENDED)

    def watch(self) -> None:
        if not self.isBlocked:
            self.lanes.watch(self.distribution.wake)

    def settle(
        self,
        consumer: QueueConsumer,
        acks: Sequence[int],
        retries: Sequence[tuple[int, float | None]],
        rejects: Sequence[tuple[int, str]],
        extends: Sequence[tuple[int, float]],
    ) -> list[int]:
        """See :meth:`fleximq.broker.broker.Broker.settle`."""
        others = self._acknowledge(consumer, acks) if acks else []
        if retries or rejects or extends:
            others += self._settleOthers(consumer, retries, rejects, extends)
        self.lastUsed = self._seconds()
        self.distribution.hasRoom(consumer)
        return others

    def _acknowledge(self, consumer: QueueConsumer, acks: Sequence[int]) -> list[int]:
        """Acknowledge deliveries, and return the tags that are not the consumer's."""
        if len(acks) >= FEW and not (self._leased or self.ids):
            tags = message_loops.stepping(acks, STEP)
            if tags is not None and consumer.removeRuns(tags):
                return self.lanes.acknowledgeRuns(tags)
        mine, others = consumer.remove(acks)
        if self._leased:
            for tag in mine:
                self._leased.pop(tag, None)
        for lane, inner in self.lanes.divided(mine):
            if self.ids:
                self.ids.forget(lane, inner)
            if unknown := lane.acknowledgeMany(inner):
                gone = frozenset(unknown)  # searched once for each tag
                others += [tag for tag in mine if self.lanes.isOneOf(lane, gone, tag)]
        return others

    def _settleOthers(
        self,
        consumer: QueueConsumer,
        retries: Sequence[tuple[int, float | None]],
        rejects: Sequence[tuple[int, str]],
        extends: Sequence[tuple[int, float]],
    ) -> list[int]:
        """Settle deliveries that are not acknowledged; return the tags that are not the consumer's."""
        others: list[int] = []
        for delay, tags in _grouped(retries).items():
            others += self._apart(consumer, tags, partial(self._retry, delay))
        if rejects:
            reject = partial(self._reject, dict(reversed(rejects)), consumer.name)
            others += self._apart(consumer, [tag for tag, _ in rejects], reject)
        return others + [tag for tag, seconds in extends if not self._extend(consumer, tag, seconds)]

    def _apart(
        self, consumer: QueueConsumer, tags: Sequence[int], act: Callable[[Queue, list[int], Sequence[int]], object]
    ) -> list[int]:
        """Act on deliveries that are not acknowledged, those of each lane together, with their tags in the lane and
        those of the consumer. Return the tags that are not the consumer's.
        """
        mine, others = consumer.remove(tags)
        if self._leased:
            for tag in mine:
                self._leased.pop(tag, None)
        for lane, inner in self.lanes.divided(mine):
            some = frozenset(inner)
            act(
                lane,
                inner,
                mine if len(some) == len(mine) else [tag for tag in mine if self.lanes.isOneOf(lane, some, tag)],
            )
        return others

    def _retry(self, delay: float | None, lane: Queue, tags: list[int], outer: Sequence[int]) -> None:
        """Deliver messages again after a delay; None: as the definition says."""
        if delay is not None:
            lane.retryMany(tags, delay)
            return
        for each, some in _grouped([(tag, self._delayOf(lane, tag)) for tag in tags]).items():
            lane.retryMany(some, each)

    def _delayOf(self, lane: Queue, tag: int) -> float:
        """Return the seconds until the next delivery of a message, as the definition says."""
        delivery = lane.stored.flying.get(tag)
        retry = None if self.definition is None else self.definition.retry
        return 0.0 if retry is None or delivery is None else retry.after(delivery.attempts)

    def _reject(
        self, words: Mapping[int, str], consumer: str, lane: Queue, tags: list[int], outer: Sequence[int]
    ) -> None:
        lane.rejectMany(tags, [shortWords(words[tag]) for tag in outer], consumer)

    def _extend(self, consumer: QueueConsumer, tag: int, seconds: float) -> bool:
        """Extend the lease of a delivery, if its queue has leases; False if it is not the consumer's."""
        if tag not in consumer.unsettled:
            return False
        if tag not in self._leased:
            return True
        return all(lane.extend(inner[0], seconds, consumer) for lane, inner in self.lanes.divided([tag]))

    def _leaseEnded(self, tag: int) -> None:
        """Take a delivery whose lease has ended from its consumer, which then has room for others."""
        consumer = self._leased.pop(tag, None)
        if consumer is not None and consumer.remove([tag])[0]:
            if consumer.leaseEnded is not None:
                consumer.leaseEnded(tag)
            self._makeQueue.deadlines.callLater(0, partial(self.distribution.hasRoom, consumer))

    def leave(self, consumer: QueueConsumer) -> None:
        """Remove a consumer; its deliveries return to the head at once."""
        self.distribution.remove(consumer)
        for lane in self.lanes:
            lane.release(consumer)
        self.distribution.wake()

    def forgetDelivery(self, lane: Queue, delivery: QueueDelivery) -> None:
        """Remove a message of a lane that was delivered to an operator."""
        self._moved(lane, delivery, True)
        lane.acknowledge(delivery.tag)

    def discard(self, number: int) -> int:
        discarded = 0
        for _, lane, taken in self.lanes.take(None, number):
            discarded += self._drop(lane, innerDeliveries(taken))
        for lane in self.lanes:  # after those before them: consumers may have others of their keys for long
            discarded += self._drop(lane, [*islice(lane.stored.order or (), number - discarded)])
        return discarded

    def _drop(self, lane: Queue, deliveries: Sequence[QueueDelivery]) -> int:
        """Drop messages of a lane that were taken from it or are parked; return how many."""
        for delivery in deliveries:
            self._moved(lane, delivery, True)
        lane.acknowledgeMany([delivery.tag for delivery in deliveries])
        return len(deliveries)

    def close(self) -> int:
        """Drop all messages and refuse new ones; return how many were dropped."""
        dropped = 0
        for lane in self.lanes:
            for delivery in lane.stored.delivered():
                self._moved(lane, delivery, True)
            dropped += lane.close()
        return dropped

    def restore(self, state: QueueState, idle: float) -> list[QueueDelivery]:
        """Restore a lane; the queue was ``idle`` for so many seconds. Return its deliveries, still without ids."""
        self.everConsumed |= state.consumed
        self.lastUsed = self._seconds() - idle
        lane = self.lanes.of(priorityIn(state.key))
        return [] if lane.recorder is None else lane.recorder.restore(state)

    def _count(self, event: str, number: int) -> None:
        """Count an event, and report the first messages that are dropped since a consumer took some."""
        self._counted(event, number)
        if event == DROPPED and number and not self._isOverflowing:
            self._isOverflowing = True
            self._onOverflow(self.name)

    def _deliverLetters(self, rendered: Sequence[Message], count: int) -> None:
        self.queue.deliver(rendered, count)
        assert self._onLetters is not None
        self._onLetters(self.queue, rendered)

    def _moved(self, lane: Queue, delivery: QueueDelivery, gone: bool) -> None:
        self.ids.moved(lane, delivery, gone)
        if self._leased:
            self._leaseEnded(self.lanes.outer(lane, delivery.tag, delivery.attempts))


def _grouped(pairs: Iterable[tuple[int, D]]) -> dict[D, list[int]]:
    """Return the tags of each delay."""
    found: dict[D, list[int]] = {}
    for tag, delay in pairs:
        found.setdefault(delay, []).append(tag)
    return found
