"""All work queues of a broker: clients make and consume them, and acknowledge messages by ids; they expire.

A queue without a consumer expires after a while, unless that would delete messages; a *reply queue* expires with its
messages, since a requester that left never reads them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from fleximq.broker.authorization import permit, permits
from fleximq.broker.consumers import queue_sources
from fleximq.broker.consumers.delivered_ids import DeliveredIds
from fleximq.broker.consumers.lanes import priorityIn
from fleximq.broker.consumers.restored_ids import RestoredIds
from fleximq.broker.consumers.state_log import StateLog
from fleximq.broker.consumers.work_queue import REPLIES, WorkQueue
from fleximq.broker.deadlines import TOLERANCE, Deadline
from fleximq.broker.envelope import ConnectedClient, Envelope, QueueDelivery
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.topics.names import isBrokerTopic
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import BadRequest, Conflict, InvalidTopic, NoCapacity, NotFound, NotPermitted
from fleximq.limits import DEAD, SYSTEM, TOPIC_BYTES
from fleximq.rights import UNRESTRICTED, Action
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY
from fleximq.values.queue_definition import QueueDefinition

#: Counted for the messages dropped with a queue.
DROPPED_EXPIRED = CountedEvent(EventFamily.DROPPED, "queue expired")
DROPPED_DELETED = CountedEvent(EventFamily.DROPPED, "queue deleted")
#: Seconds without a consumer after which empty queues and reply queues expire, unless an operator sets another time.
IDLE_SECONDS = 3600.0


@dataclass(eq=False, repr=False)
class WorkQueues:
    """All work queues of a broker.

    ``onOverflow`` is called with the name of a full queue that begins to drop its oldest messages, ``onExpired`` with
    an expired queue, when it is closed and removed, and how many messages it dropped, ``onRestored`` when all queues
    are restored from the journal, ``onDefined`` with a queue whose definition has changed, before it delivers from new
    sources. ``restoredIds`` are those of messages delivered before a restart.

    :param maxQueues: maximum number of queues, and of dead-letter queues in addition.
    :param expiry: seconds without a consumer after which a queue expires with its messages. None: only reply queues do,
        and other queues while they are empty, after :data:`IDLE_SECONDS`. Dead-letter queues never expire.
    :param idOf: returns a message's own id if it is valid in MiniMQ, otherwise a new one.
    :param lasts: tells whether the queue of this topic never expires.
    :param onLetters: called with a queue of dead letters and those that it just received.
    """

    _makeQueue: QueueFactory
    _topics: TopicTable
    _stateLog: StateLog
    _: KW_ONLY
    maxQueues: int
    expiry: float | None
    idOf: Callable[[Message], str]
    onExpired: Callable[[WorkQueue, int], None] = lambda queue, dropped: None
    lasts: Callable[[str], bool] = lambda topic: False
    onLetters: Callable[[Queue, Sequence[Message]], None] | None = None
    onOverflow: Callable[[str], None] = lambda name: None
    onRestored: Callable[[], None] = lambda: None
    onDefined: Callable[[WorkQueue], None] = lambda queue: None
    _ids: DeliveredIds = field(default_factory=DeliveredIds)
    _byTopic: dict[str, WorkQueue] = field(default_factory=dict)
    _expiries: dict[str, Deadline] = field(default_factory=dict)
    _replyTopics: dict[str, None] = field(default_factory=dict)
    _dead: int = 0
    #: Definitions of queues that are restored next.
    _restored: dict[str, QueueDefinition] = field(default_factory=dict)
    restoredIds: RestoredIds = field(init=False)

    def __post_init__(self) -> None:
        self.restoredIds = RestoredIds(lambda messageId, may: self._acknowledge([messageId], may))

    def __len__(self) -> int:
        return len(self._byTopic)

    def __iter__(self) -> Iterator[WorkQueue]:
        """Iterate over all queues, oldest first; the loop may make and remove some."""
        return iter(list(self._byTopic.values()))

    def seconds(self) -> float:
        """Return the seconds of the clock."""
        return self._makeQueue.deadlines.seconds()

    def get(self, topic: str) -> WorkQueue | None:
        """Return the queue of this topic, None if it has none."""
        return self._byTopic.get(topic)

    def existing(self, topic: str) -> WorkQueue:
        """Return the queue of this topic; raises NotFound if it has none."""
        queue = self._byTopic.get(topic)
        if queue is None:
            raise NotFound(f"there is no queue of {topic!r}")
        return queue

    def letterTopic(self, name: str) -> str:
        """Return the topic of the dead letters of a queue."""
        queue = self._byTopic.get(name)
        definition = None if queue is None else queue.definition
        return DEAD + name if definition is None else definition.dead_letters or DEAD + name

    def ensure(self, name: str) -> WorkQueue:
        """Return the queue of a topic, made if need be; raises InvalidTopic, or NoCapacity if there are too many."""
        queue = self._byTopic.get(name)
        if queue is None:
            self._topics.get(name)
            queue = self._make(name)
            self._open(queue)
        return queue

    def _make(self, topic: str, definition: QueueDefinition | None = None) -> WorkQueue:
        dead = topic.startswith(DEAD)
        if (self._dead if dead else len(self._byTopic) - self._dead) >= self.maxQueues:
            raise NoCapacity(f"there are {self.maxQueues} queues already")
        forReplies = topic in self._replyTopics
        self._replyTopics.pop(topic, None)
        return self._add(topic, forReplies=forReplies and definition is None, definition=definition)

    def _open(self, queue: WorkQueue) -> None:
        self._stateLog.opened(queue)
        queue_sources.subscribe(self._topics, queue)

    def ensureFor(self, client: ConnectedClient, name: str, source: str | None = None) -> WorkQueue:
        """As :meth:`ensure`; raises NoCapacity also if the client's principal may make no more topics.

        :param source: a source of a new queue, besides the topic of its name.
        """
        queue = self._byTopic.get(name)
        if queue is None and source not in (None, name):
            self.define(client, QueueDefinition(name, (source or name,)))
        self._topics.make(name, client.principal, client.rights.limits.topics)
        return self.ensure(name)

    def define(self, client: ConnectedClient, definition: QueueDefinition) -> None:
        """Set the definition of a queue, made if need be. From now on, publications that the journal commits fill it
        from its new sources.

        :raises Conflict: the queue exists, and is not as durable as the definition says.
        :raises BadRequest: it cannot be durable; errors as :meth:`ensureFor`.
        """
        self.check(definition)
        queue = self._byTopic.get(definition.name)
        for topic in queue_sources.divided(definition.name, definition.sources)[0]:
            self._topics.make(topic, client.principal, client.rights.limits.topics)
        if queue is None:
            queue = self._make(definition.name, definition)
            self._stateLog.defined(definition)
            self._open(queue)
        elif queue.definition != definition:
            self._stateLog.defined(definition)
            queue_sources.unsubscribe(self._topics, queue)
            queue.define(definition)
            queue_sources.subscribe(self._topics, queue)
            self.onDefined(queue)
        queue.distribution.wake()

    def check(self, definition: QueueDefinition) -> None:
        """Check a definition against the broker and its present queue; errors as :meth:`define`."""
        queue_sources.check(definition)
        queue = self._byTopic.get(definition.name)
        if definition.durable and not self._stateLog.journal.onDisk:
            raise BadRequest("durable is true, but the broker has no journal")
        if queue is not None and definition.durable not in (None, queue.durable):
            raise Conflict(f"the queue {definition.name!r} exists, and is {'' if queue.durable else 'not '}durable")

    def redefine(self, definition: QueueDefinition) -> None:
        """Restore a definition from the journal, before the states of queues are restored; volatile queues are made."""
        if definition.durable is False or not self._stateLog.journal.onDisk:
            queue_sources.subscribe(self._topics, self._add(definition.name, definition=definition))
        else:
            self._restored[definition.name] = definition

    def restore(self, state: QueueState, idle: float) -> WorkQueue:
        """Restore a queue, ``idle`` for so many seconds, or a lane of it; then ``restoredIds`` are to be read."""
        queue = self._byTopic.get(state.topic)
        if queue is None:
            definition = self._restored.pop(state.topic, None)
            queue = self._add(state.topic, idle, state.key.startswith(REPLIES), definition)
            queue_sources.subscribe(self._topics, queue)
        lane = queue.lanes.of(priorityIn(state.key))
        self.restoredIds.expect(partial(queue.ids.know, lane), queue.restore(state, idle))
        return queue

    def allRestored(self) -> None:
        """Make the queues whose definitions are in the journal, but not their states."""
        restored, self._restored = self._restored, {}
        for definition in restored.values():
            self._open(self._add(definition.name, definition=definition))
        self.onRestored()

    def _idleSecondsOf(self, queue: WorkQueue) -> float:
        if queue.definition is not None and queue.definition.expiry is not None:
            return queue.definition.expiry
        return IDLE_SECONDS if self.expiry is None else self.expiry

    def _add(
        self, topic: str, idle: float = 0.0, forReplies: bool = False, definition: QueueDefinition | None = None
    ) -> WorkQueue:
        queue = self._byTopic[topic] = WorkQueue(
            topic,
            makeQueue=self._makeQueue,
            seconds=self._makeQueue.deadlines.seconds,
            ids=self._ids,
            idOf=self.idOf,
            forReplies=forReplies,
            definition=definition,
            onLetters=self.onLetters,
            onOverflow=lambda name: self.onOverflow(name),
        )
        if topic.startswith(DEAD):
            self._dead += 1
        elif definition is not None or not self.lasts(topic):
            self._watch(queue, max(0.0, self._idleSecondsOf(queue) - idle))
        return queue

    # -- acts of clients -----------------------------------------------------------------------------

    def mayConsume(self, client: ConnectedClient, queue: WorkQueue) -> bool:
        """Tell whether a client may consume from a queue: from its topic, and from all its sources."""
        return all(permits(client, Action.CONSUME, each) for each in queue.sources)

    def permitConsuming(self, client: ConnectedClient, name: str, source: str | None = None) -> None:
        """Check :meth:`mayConsume` for the queue of this name; raises NotPermitted, without the names of its sources.

        :param source: that of a new queue.
        """
        permit(client, Action.CONSUME, name)
        queue = self._byTopic.get(name)
        if queue is None:
            permit(client, Action.CONSUME, source or name)
        elif queue.definition is not None and not self.mayConsume(client, queue):
            raise NotPermitted(f"consuming from {name!r} is not permitted without the right to all its sources", name)

    def refusal(self, queue: WorkQueue, envelope: Envelope, body: Any, count: int) -> str | None:
        """Return why a queue refuses a publication for workers, of any dialect; None if it accepts it."""
        size = envelope.source.size(body, count)
        most = envelope.publisher.rights.limits.queueBytes
        if most is not None and not queue.durable and queue.queue.bounds.isHeavier(most - size):
            return "the queue is as full as the limits of its publisher permit"
        if queue.everConsumed:
            return queue.admits(envelope.topic.pendingCount + count, envelope.topic.pendingBytes + size)
        return queue.admits(count, size)

    def expectReplies(self, client: ConnectedClient, name: str) -> None:
        """Make the reply queue of a topic, so that it stores replies that arrive before its first CONSUME.

        A no-op for the broker's own topics, for those from which the client may not consume, for names that are too
        long, and if the broker has the maximum number of queues.
        """
        if not isBrokerTopic(name) and permits(client, Action.CONSUME, name):
            self.markForReplies(name)
            with suppress(InvalidTopic, NoCapacity):
                self.ensureFor(client, name)

    def markForReplies(self, topic: str) -> None:
        """Let :meth:`ensure` make a reply queue if it makes the queue of this topic; remembers ``maxQueues`` topics."""
        if topic not in self._byTopic and len(topic) <= TOPIC_BYTES and not topic.startswith((SYSTEM, DEAD)):
            self._replyTopics[topic] = None
            if len(self._replyTopics) > self.maxQueues:
                del self._replyTopics[next(iter(self._replyTopics))]

    def consume(self, client: ConnectedClient, name: str, number: int, most: int = ANY) -> Sequence[QueueDelivery]:
        """Deliver up to ``number`` messages of a topic's work queue, made if need be, until they cost ``most`` bytes.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not consume from it, or from a source of it.
        :raises NoCapacity: the broker has the maximum number of queues.
        """
        self.permitConsuming(client, name)
        queue = self.ensureFor(client, name)
        deliveries = queue.consumeMany(number, most, client.name)
        for delivery in deliveries:
            if delivery.message.reply_to:  # the consumer's reply may make its queue
                self.markForReplies(delivery.message.reply_to)
        if deliveries and queue.durable:
            client.consumed = True
        return deliveries

    def whenAvailable(self, client: ConnectedClient, name: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call once when a queue has a message; return a function that cancels this. Errors as :meth:`consume`."""
        self.permitConsuming(client, name)
        return self.ensureFor(client, name).whenReady(call)

    def acknowledge(self, ids: Iterable[str], client: ConnectedClient | None = None) -> int:
        """Remove for each id the message that is longest in flight, else one that returned or is a dead letter; return
        how many were known. Ids in queues forbidden to the client are ignored.

        :param client: its ``whenCommitted`` waits until the acknowledgement is on disk.
        """
        if client is None:
            return self._acknowledge(ids, None)
        client.consumed = client.settled = self._stateLog.journal.onDisk
        restricted = client.rights not in UNRESTRICTED
        return self._acknowledge(ids, partial(client.rights.may, Action.CONSUME) if restricted else None)

    def _acknowledge(self, ids: Iterable[str], may: Callable[[str], bool] | None) -> int:
        """As :meth:`acknowledge`; ``may`` tells whether messages of this topic may be removed; None: all may."""
        found = self._ids.take(ids, may, lambda messageId: self.restoredIds.postpone(messageId, may))
        known = 0
        for lane, tags in found.items():
            known += len(tags) - len(lane.acknowledgeMany(tags))
            queue = self._byTopic.get(lane.name)
            if queue is not None and queue.definition is not None:
                queue.distribution.wake()
        return known

    # -- expiry ----------------------------------------------------------------------------------------

    def _watch(self, queue: WorkQueue, delay: float) -> None:
        self._expiries[queue.name] = self._makeQueue.deadlines.callLater(delay, partial(self._comeUp, queue))

    def _comeUp(self, queue: WorkQueue) -> None:
        """Expire the queue, or set a new deadline: consuming moves no deadline, so this one may be early."""
        now = self._makeQueue.deadlines.seconds()
        if queue.distribution.waiting or queue.distribution.consumers:
            queue.lastUsed = now
        idle = self._idleSecondsOf(queue)
        left = queue.lastUsed + idle - now
        if left > TOLERANCE or self._mustStay(queue):
            self._watch(queue, left if left > TOLERANCE else idle)
            return
        self.onExpired(queue, self.remove(queue, DROPPED_EXPIRED))

    def remove(self, queue: WorkQueue, event: str = DROPPED_DELETED) -> int:
        """Remove a queue with its definition; return the number of its messages, which are counted by this event."""
        expiry = self._expiries.pop(queue.name, None)
        if expiry is not None:
            expiry.cancel()
        del self._byTopic[queue.name]
        if queue.name.startswith(DEAD):
            self._dead -= 1
        dropped = queue.close()
        if dropped:
            self._makeQueue.counted(event, dropped)
        self._stateLog.ended(queue)
        queue_sources.unsubscribe(self._topics, queue)
        return dropped

    def _mustStay(self, queue: WorkQueue) -> bool:
        """Tell whether an unused queue does not expire: it is defined, or has messages that are to be stored."""
        if queue.definition is not None:
            return queue.definition.expiry is None
        if self.expiry is not None or queue.forReplies or queue.name.startswith(SYSTEM):
            return False
        return any(lane.stored.all > 0 for lane in queue.lanes)
