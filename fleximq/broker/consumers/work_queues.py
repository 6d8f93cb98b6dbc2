"""All work queues of a broker: they are made for topics, acknowledged by ids, restored, and expire.

A queue without a consumer expires after a while, unless that would delete messages; a *reply queue* expires with its
messages, since a requester that left never reads them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from fleximq.broker.consumers.delivered_ids import DeliveredIds
from fleximq.broker.consumers.work_queue import REPLIES, WorkQueue
from fleximq.broker.deadlines import TOLERANCE, Deadline
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.topics.topic_table import SYSTEM
from fleximq.errors import NoCapacity
from fleximq.interfaces import IJournalRead
from fleximq.limits import DEAD, TOPIC_BYTES
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY

#: Counted for the messages dropped with a queue.
DROPPED_EXPIRED = CountedEvent(EventFamily.DROPPED, "queue expired")
#: Ids read from the journal at once.
_LEARNT = 4096
_LEARNT_BYTES = 4 << 20
#: Seconds without a consumer after which empty queues and reply queues expire, unless an operator sets another time.
IDLE_SECONDS = 3600.0


@dataclass(eq=False, repr=False)
class WorkQueues:
    """All work queues of a broker.

    ``onOverflow`` is called with the name of a full queue that begins to drop its oldest messages.

    :param maxQueues: maximum number of queues, and of dead-letter queues in addition.
    :param expiry: seconds without a consumer after which a queue expires with its messages. None: only reply queues do,
        and other queues while they are empty, after :data:`IDLE_SECONDS`. Dead-letter queues never expire.
    :param idOf: returns a message's own id if it is valid in MiniMQ, otherwise a new one.
    :param lasts: tells whether the queue of this topic never expires.
    :param onLetters: called with a queue of dead letters and those that it just received.
    :param onExpired: called with an expired queue, when it is closed and removed, and how many messages it dropped.
    """

    _makeQueue: QueueFactory
    _: KW_ONLY
    maxQueues: int
    expiry: float | None
    idOf: Callable[[Message], str]
    onExpired: Callable[[WorkQueue, int], None] = lambda queue, dropped: None
    lasts: Callable[[str], bool] = lambda topic: False
    onLetters: Callable[[Queue, Sequence[Message]], None] | None = None
    onOverflow: Callable[[str], None] = lambda name: None
    _ids: DeliveredIds = field(default_factory=DeliveredIds)
    _byTopic: dict[str, WorkQueue] = field(default_factory=dict)
    _expiries: dict[str, Deadline] = field(default_factory=dict)
    _replyTopics: dict[str, None] = field(default_factory=dict)
    _dead: int = 0
    _unknown: deque[tuple[WorkQueue, QueueDelivery]] = field(default_factory=deque)
    _early: list[tuple[str, Callable[[str], bool] | None]] = field(default_factory=list)
    _afterwards: list[Callable[[], None]] = field(default_factory=list)
    _learning: bool = False

    def __len__(self) -> int:
        return len(self._byTopic)

    def __iter__(self) -> Iterator[WorkQueue]:
        """Iterate over all queues, oldest first; the loop may make and remove some."""
        return iter(list(self._byTopic.values()))

    def get(self, topic: str) -> WorkQueue | None:
        """Return the queue of this topic, None if it has none."""
        return self._byTopic.get(topic)

    def ensure(self, topic: str) -> WorkQueue:
        """Return the queue of this topic; the caller subscribes a new one. Raises NoCapacity if there are too many."""
        queue = self._byTopic.get(topic)
        if queue is not None:
            return queue
        dead = topic.startswith(DEAD)
        if (self._dead if dead else len(self._byTopic) - self._dead) >= self.maxQueues:
            raise NoCapacity(f"there are {self.maxQueues} queues already")
        forReplies = topic in self._replyTopics
        self._replyTopics.pop(topic, None)
        return self._add(topic, forReplies=forReplies)

    def expectReplies(self, topic: str) -> None:
        """Let :meth:`ensure` make a reply queue if it makes the queue of this topic; remembers ``maxQueues`` topics."""
        if topic not in self._byTopic and len(topic) <= TOPIC_BYTES and not topic.startswith((SYSTEM, DEAD)):
            self._replyTopics[topic] = None
            if len(self._replyTopics) > self.maxQueues:
                del self._replyTopics[next(iter(self._replyTopics))]

    def restore(self, state: QueueState, idle: float) -> WorkQueue:
        """Restore a queue, ``idle`` for so many seconds, from the journal; call :meth:`learn` after all of them."""
        queue = self._add(state.topic, idle, state.key.startswith(REPLIES))
        self._unknown.extend([(queue, delivery) for delivery in queue.restore(state, idle)])
        self._learning = bool(self._unknown)
        return queue

    def learn(self, journal: IJournalRead) -> None:
        """Read the ids of messages delivered before a restart; acknowledgements are postponed until then."""
        portion = [self._unknown.popleft() for _ in range(min(_LEARNT, len(self._unknown)))]
        if not portion:
            self._learning = False
            early, self._early = self._early, []
            for id, may in early:
                self.acknowledge([id], may)
            calls, self._afterwards = self._afterwards, []
            for call in calls:
                call()
            return
        offsets = sorted(delivery.message.offset for _, delivery in portion)
        journal.fetch(offsets, _LEARNT_BYTES, partial(self._learnt, journal, portion))

    def whenIdsRead(self, call: Callable[[], None]) -> bool:
        """Call after postponed acknowledgements were handled; False if none were postponed."""
        if self._early:
            self._afterwards.append(call)
            return True
        return False

    def _learnt(
        self, journal: IJournalRead, portion: Sequence[tuple[WorkQueue, QueueDelivery]], messages: Sequence[Message]
    ) -> None:
        found = {message.offset: message for message in messages}
        until = messages[-1].offset if messages else ANY
        for queue, delivery in portion:
            message = found.get(delivery.message.offset)
            if message is not None:
                queue.know(delivery.tag, message)
            elif delivery.message.offset > until:
                self._unknown.append((queue, delivery))
        self.learn(journal)

    @property
    def _idleSeconds(self) -> float:
        return IDLE_SECONDS if self.expiry is None else self.expiry

    def _add(self, topic: str, idle: float = 0.0, forReplies: bool = False) -> WorkQueue:
        queue = self._byTopic[topic] = WorkQueue(
            topic,
            makeQueue=self._makeQueue,
            seconds=self._makeQueue.deadlines.seconds,
            ids=self._ids,
            idOf=self.idOf,
            forReplies=forReplies,
            onLetters=self.onLetters,
            onOverflow=lambda name: self.onOverflow(name),
        )
        if topic.startswith(DEAD):
            self._dead += 1
        elif not self.lasts(topic):
            self._watch(queue, max(0.0, self._idleSeconds - idle))
        return queue

    def acknowledge(self, ids: Iterable[str], may: Callable[[str], bool] | None = None) -> int:
        """Remove for each id the message that is longest in flight, else one that returned or is a dead letter; return
        how many were known.

        :param may: tells whether messages of this topic may be removed; None: all may.
        """
        found = self._ids.take(ids, may, lambda id: self._unknownId(id, may))
        return sum(len(tags) - len(queue.acknowledgeMany(tags)) for queue, tags in found.items())

    def _unknownId(self, id: str, may: Callable[[str], bool] | None) -> None:
        if self._learning:
            self._early.append((id, may))

    def _watch(self, queue: WorkQueue, delay: float) -> None:
        self._expiries[queue.name] = self._makeQueue.deadlines.callLater(delay, partial(self._comeUp, queue))

    def _comeUp(self, queue: WorkQueue) -> None:
        """Expire the queue, or set a new deadline: consuming moves no deadline, so this one may be early."""
        now = self._makeQueue.deadlines.seconds()
        if queue.queue.waiting:
            queue.lastUsed = now
        left = queue.lastUsed + self._idleSeconds - now
        if left > TOLERANCE or self._mustStay(queue):
            self._watch(queue, left if left > TOLERANCE else self._idleSeconds)
            return
        del self._expiries[queue.name]
        del self._byTopic[queue.name]
        dropped = queue.close()
        if dropped:
            self._makeQueue.counted(DROPPED_EXPIRED, dropped)
        self.onExpired(queue, dropped)

    def _mustStay(self, queue: WorkQueue) -> bool:
        """Tell whether an unused queue does not expire, since it has messages that are to be stored."""
        if self.expiry is not None or queue.forReplies or queue.name.startswith(SYSTEM):
            return False
        return queue.queue.kept > 0
