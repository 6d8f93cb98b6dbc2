"""One queue per topic, shared by all its consumers, as MiniMQ has it.

The rules are those of the MiniMQ document and of docs/dialects.rst: a message is hidden from its delivery until it
is acknowledged by its id, from whatever connection, or until the time is over; a consumer that leaves returns
nothing earlier. A queue that nobody consumes is no place to lose disk or memory to: full, it drops its oldest, and
after a while it expires.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from zope.interface import implementer

from fleximq.broker.consumers.delivered_ids import DeliveredIds, DeliveryIndex
from fleximq.broker.deadlines import TOLERANCE, Deadline
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.durable_queue import DurableQueue
from fleximq.broker.queues.queue import QUEUED, Queue
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.queues.waiting_messages import ANY
from fleximq.broker.topics.topic_table import SYSTEM
from fleximq.errors import NoCapacity
from fleximq.interfaces import IJournalRead, ISubscriber
from fleximq.limits import DEAD
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Message

#: What is counted when a queue takes messages with it.
DROPPED_EXPIRED = CountedEvent(EventFamily.DROPPED, "queue expired")


#: So many ids are read back at once.
_LEARNT = 4096
_LEARNT_BYTES = 4 << 20


def keyOf(topic: str) -> str:
    """Return the key by which the journal knows a topic's queue; "" for topics that are never in it."""
    return "" if topic.startswith(SYSTEM) else f"q:{topic}"


@implementer(ISubscriber)
class WorkQueue:
    """The queue of one topic. Every message in it has a ``message_id`` that MiniMQ can spell.

    ``name`` is its topic. ``everConsumed`` tells whether anybody ever asked it for a message, ``lastUsed`` the
    clock's seconds when somebody last did, or when it was made.
    """

    form = QUEUED

    def __init__(
        self,
        name: str,
        *,
        makeQueue: QueueFactory,
        seconds: Callable[[], float],
        ids: DeliveredIds,
        idOf: Callable[[Message], str],
    ) -> None:
        self.name = name
        self.everConsumed = False
        self.lastUsed = seconds()
        self._seconds = seconds
        self._ids = ids
        self._idOf = idOf
        self._queue = makeQueue(name, keyOf(name), moved=self._moved, named=self._named)

    @property
    def depth(self) -> int:
        """The number of messages that can be consumed now."""
        return self._queue.depth

    @property
    def inFlight(self) -> int:
        """The number of messages that were consumed and wait for their acknowledgement."""
        return self._queue.inFlight

    @property
    def size(self) -> int:
        """The cost in bytes of everything waiting and in flight."""
        return self._queue.size

    @property
    def waiting(self) -> int:
        """The number of consumers that wait for a message."""
        return self._queue.waiting

    @property
    def kept(self) -> bool:
        """Whether it outlives the process."""
        return isinstance(self._queue, DurableQueue)

    @property
    def queue(self) -> Queue:
        """The queue behind it."""
        return self._queue

    @property
    def loading(self) -> bool:
        """Whether the next message cannot be consumed before it was read, see :meth:`whenLoaded`."""
        return self._queue.loading

    def whenLoaded(self, call: Callable[[], object]) -> None:
        """Call once what is being read has come; to be asked for while ``loading``."""
        self._queue.whenLoaded(call)

    def admits(self, count: int, size: int) -> str | None:
        """Return why ``count`` more messages with ``size`` bytes in them are refused; None if they are not.

        Asked for what MiniMQ itself produces. A queue that was ever consumed refuses when it is full; one that
        never was only refuses what would be too much for it alone, since all else in it can make room.
        """
        if self.everConsumed:
            return self._queue.admits(count, size)
        return self._queue.admitsAlone(count, size)

    def deliver(self, rendered: Sequence[Message], count: int) -> None:
        """Put all of these in; those without an id get one when they are handed out. Overflow drops the oldest."""
        self._queue.deliver(rendered, count)

    def consume(self) -> QueueDelivery | None:
        """Hand out the oldest message, None if there is none; either way the queue is in use now."""
        self._use()
        delivery = self._queue.take()
        if delivery is not None:
            self._ids.delivered(delivery.message.message_id or "", DeliveryIndex(self._queue, delivery.tag))
        return delivery

    def consumeMany(self, number: int, most: int = ANY) -> list[QueueDelivery]:
        """Hand out the oldest messages, ``number`` of them or as many as there are; as :meth:`consume` for each.

        :param most: no more are handed out when these cost so many bytes.
        """
        self._use()
        deliveries = self._queue.takeMany(None, number, most)
        self._ids.deliveredMany(self._queue, deliveries)
        return deliveries

    def whenReady(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` once when a message can be consumed and its turn has come.

        Who waits uses the queue: it does not expire meanwhile. See :meth:`fleximq.broker.queues.queue.Queue.whenReady`.
        """
        return self._queue.whenReady(callback)

    def handTo(self, holder: object, number: int) -> list[QueueDelivery]:
        """Hand the oldest messages to an operator, which is no use of the queue: as many as can be taken now."""
        return self._queue.takeMany(holder, number)

    def settle(self, delivery: QueueDelivery) -> None:
        """Be done with what was handed to an operator."""
        self._moved(delivery, True)
        self._queue.acknowledge(delivery.tag)

    def giveUp(self, holder: object) -> None:
        """Take back at once what an operator has and is not done with."""
        self._queue.release(holder)

    def discard(self, number: int) -> int:
        """Throw the oldest messages away, so many or as many as can be taken now, and return how many those were."""
        deliveries = self.handTo(None, number)
        for delivery in deliveries:
            self.settle(delivery)
        return len(deliveries)

    def close(self) -> int:
        """Drop everything and take nothing in any more; return how many messages were dropped."""
        for delivery in self._queue.delivered():
            self._moved(delivery, True)
        return self._queue.close()

    def restore(self, state: QueueState, idle: float) -> list[QueueDelivery]:
        """Become what the journal knows of it, and return what was handed out once, without their ids.

        :param idle: seconds that nobody consumed.
        """
        self.everConsumed = state.consumed
        self.lastUsed = self._seconds() - idle
        return self._queue.restore(state) if isinstance(self._queue, DurableQueue) else []

    def know(self, tag: int, message: Message) -> None:
        """Learn the id of what was handed out with this tag before a restart."""
        named = self._named(message)
        if isinstance(self._queue, DurableQueue) and self._queue.know(tag, named):
            self._ids.delivered(named.message_id or "", DeliveryIndex(self._queue, tag))

    def _use(self) -> None:
        if not self.everConsumed and isinstance(self._queue, DurableQueue):
            self._queue.use()
        self.everConsumed = True
        self.lastUsed = self._seconds()

    def _named(self, message: Message) -> Message:
        id = self._idOf(message)
        return message if id == message.message_id else message._replace(message_id=id)

    def _moved(self, delivery: QueueDelivery, gone: bool) -> None:
        note = self._ids.forget if gone else self._ids.returned
        note(delivery.message.message_id or "", DeliveryIndex(self._queue, delivery.tag))


class WorkQueues:
    """All topic queues of a broker.

    :param makeQueue: makes the queue behind each of them.
    :param maxQueues: how many queues there may be, and how many more of dead letters, for a dead letter must not
        get lost because somebody else made too many queues.
    :param expiry: seconds without a consumer after which a queue expires; those of dead letters never do.
    :param idOf: returns a message's own id if MiniMQ can use it, otherwise a new one.
    :param lasts: tells whether the queue of this topic never expires.
    :param onExpired: is given a queue that expired, when it is closed and no longer found.
    """

    def __init__(
        self,
        makeQueue: QueueFactory,
        *,
        maxQueues: int,
        expiry: float,
        idOf: Callable[[Message], str],
        onExpired: Callable[[WorkQueue], None],
        lasts: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        self._makeQueue = makeQueue
        self._deadlines = makeQueue.deadlines
        self._counted = makeQueue.counted
        self._lasts = lasts
        self.maxQueues = maxQueues
        self._expiry = expiry
        self._idOf = idOf
        self._onExpired = onExpired
        self._ids = DeliveredIds()
        self._byTopic: dict[str, WorkQueue] = {}
        self._expiries: dict[str, Deadline] = {}
        self._dead = 0
        self._unknown: deque[tuple[WorkQueue, QueueDelivery]] = deque()
        self._early: list[tuple[str, Callable[[str], bool] | None]] = []
        self._afterwards: list[Callable[[], None]] = []
        self._learning = False

    def __len__(self) -> int:
        """Return the number of queues."""
        return len(self._byTopic)

    def __iter__(self) -> Iterator[WorkQueue]:
        """Iterate over all queues, oldest first; the loop may make and remove some."""
        return iter(list(self._byTopic.values()))

    def get(self, topic: str) -> WorkQueue | None:
        """Return the queue of this topic, None if it has none."""
        return self._byTopic.get(topic)

    def ensure(self, topic: str) -> tuple[WorkQueue, bool]:
        """Return the queue of this topic, and whether it was made just now; then the caller subscribes it.

        :raises NoCapacity: when there are too many queues to make one more.
        """
        queue = self._byTopic.get(topic)
        if queue is not None:
            return queue, False
        dead = topic.startswith(DEAD)
        if (self._dead if dead else len(self._byTopic) - self._dead) >= self.maxQueues:
            raise NoCapacity(f"there are {self.maxQueues} queues already")
        return self._add(topic), True

    def restore(self, state: QueueState, idle: float) -> WorkQueue:
        """Make a queue what the journal knows of it; :meth:`learn` is called when all are there.

        :param idle: seconds that nobody consumed from it.
        """
        queue = self._add(state.topic, idle)
        self._unknown.extend([(queue, delivery) for delivery in queue.restore(state, idle)])
        self._learning = bool(self._unknown)
        return queue

    def learn(self, journal: IJournalRead) -> None:
        """Read back the ids of what was handed out before a restart; acknowledgements are remembered until then."""
        portion = [self._unknown.popleft() for _ in range(min(_LEARNT, len(self._unknown)))]
        if not portion:
            self._learning = False
            early, self._early = self._early, []
            for id, may in early:
                self.acknowledge(id, may)
            afterwards, self._afterwards = self._afterwards, []
            for call in afterwards:
                call()
            return
        offsets = sorted(delivery.message.offset for _, delivery in portion)
        journal.fetch(offsets, _LEARNT_BYTES, partial(self._learnt, journal, portion))

    def whenLearnt(self, call: Callable[[], None]) -> bool:
        """Call when acknowledgements that came too early were taken; False if there are none such."""
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

    def _add(self, topic: str, idle: float = 0.0) -> WorkQueue:
        queue = self._byTopic[topic] = WorkQueue(
            topic, makeQueue=self._makeQueue, seconds=self._deadlines.seconds, ids=self._ids, idOf=self._idOf
        )
        if topic.startswith(DEAD):
            self._dead += 1
        elif not self._lasts(topic):
            self._watch(queue, max(0.0, self._expiry - idle))
        return queue

    def consume(self, topic: str, holder: object = None) -> QueueDelivery | None:
        """Hand out the oldest message of this topic's queue; None if there is none, or no queue.

        The message has the id by which it is acknowledged as its ``message_id``. ``holder`` does not matter:
        what a consumer has in flight stays hidden when it leaves.
        """
        queue = self._byTopic.get(topic)
        return None if queue is None else queue.consume()

    def consumeMany(self, topic: str, number: int, holder: object = None, most: int = ANY) -> list[QueueDelivery]:
        """Hand out ``number`` messages or as many as there are; as :meth:`consume` for each, but quicker.

        :param most: no more are handed out when these cost so many bytes.
        """
        queue = self._byTopic.get(topic)
        return [] if queue is None else queue.consumeMany(number, most)

    def acknowledge(self, id: str, may: Callable[[str], bool] | None = None) -> bool:
        """Remove a delivered message with this id for good: the one longest in flight, else one that returned.

        :param may: tells whether it may be one of this topic's; None: of any.
        :return: whether there was one; MiniMQ's clients are not told.
        """
        place = self._ids.meant(id, may)
        if place is None:
            if self._learning:
                self._early.append((id, may))
            return False
        self._ids.forget(id, place)
        return place.queue.acknowledge(place.tag)

    def close(self) -> None:
        """Close all queues, without a word to ``onExpired``."""
        for expiry in self._expiries.values():
            expiry.cancel()
        for queue in self._byTopic.values():
            queue.close()
        self._expiries.clear()
        self._byTopic.clear()
        self._unknown.clear()
        self._dead = 0

    def _watch(self, queue: WorkQueue, delay: float) -> None:
        self._expiries[queue.name] = self._deadlines.call(delay, partial(self._comeUp, queue))

    def _comeUp(self, queue: WorkQueue) -> None:
        """Let the queue expire, or come again when it may: consuming moves no deadline, so this one is early."""
        now = self._deadlines.seconds()
        if queue.waiting:
            queue.lastUsed = now
        left = queue.lastUsed + self._expiry - now
        if left > TOLERANCE:
            self._watch(queue, left)
            return
        del self._expiries[queue.name]
        del self._byTopic[queue.name]
        dropped = queue.close()
        if dropped:
            self._counted(DROPPED_EXPIRED, dropped)
        self._onExpired(queue)
