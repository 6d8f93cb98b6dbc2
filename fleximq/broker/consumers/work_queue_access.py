"""Work queues as clients use them: rights, topics and the journal."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from fleximq.broker.authorization import permit, permits
from fleximq.broker.consumers.state_log import StateLog
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.envelope import ConnectedClient, Envelope, QueueDelivery
from fleximq.broker.topics.names import isBrokerTopic
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import InvalidTopic, NoCapacity
from fleximq.interfaces import IJournal
from fleximq.rights import UNRESTRICTED, Action
from fleximq.values.message_cost import ANY


@dataclass(eq=False, repr=False)
class WorkQueueAccess:
    """Makes, consumes and ends work queues; calls ``onDropped`` with the topic and messages of an expired one."""

    _journal: IJournal
    _topics: TopicTable
    _stateLog: StateLog
    queues: WorkQueues
    onDropped: Callable[[str, int], None] = lambda topic, number: None

    def __post_init__(self) -> None:
        self.queues.onExpired = self._expired

    def ensure(self, name: str) -> WorkQueue:
        """Return the queue of a topic, made if need be; raises InvalidTopic, or NoCapacity if there are too many."""
        queue = self.queues.get(name)
        if queue is None:
            self._topics.get(name)
            queue = self.queues.ensure(name)
            self._stateLog.opened(queue)
            self._topics.subscribe(queue, name, queue=True, durable=queue.durable)
        return queue

    def _ensureFor(self, client: ConnectedClient, name: str) -> WorkQueue:
        """As :meth:`ensure`; raises NoCapacity also if the client's principal may make no more topics."""
        self._topics.make(name, client.principal, client.rights.limits.topics)
        return self.ensure(name)

    def refusal(self, queue: WorkQueue, envelope: Envelope, body: Any, count: int) -> str | None:
        """Return why a queue refuses a MiniMQ PRODUCE to a topic in the table; None if it accepts it."""
        size = envelope.source.size(body)
        most = envelope.publisher.rights.limits.queueBytes
        if most is not None and not queue.durable and queue.queue.weight + size > most:
            queue.queue.expire()
        if most is not None and not queue.durable and queue.queue.weight + size > most:
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
            self.queues.expectReplies(name)
            with suppress(InvalidTopic, NoCapacity):
                self._ensureFor(client, name)

    def consume(self, client: ConnectedClient, name: str) -> QueueDelivery | None:
        """Deliver one message, None if there is none; otherwise as :meth:`consumeMany`."""
        deliveries = self.consumeMany(client, name, 1)
        return deliveries[0] if deliveries else None

    def consumeMany(self, client: ConnectedClient, name: str, number: int, most: int = ANY) -> Sequence[QueueDelivery]:
        """Deliver up to ``number`` messages of a topic's work queue, made if need be, until they cost ``most`` bytes.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not consume from it.
        :raises NoCapacity: the broker has the maximum number of queues.
        """
        permit(client, Action.CONSUME, name)
        queue = self._ensureFor(client, name)
        deliveries = queue.consumeMany(number, most)
        for delivery in deliveries:
            if delivery.message.reply_to:  # the consumer's reply may make its queue
                self.queues.expectReplies(delivery.message.reply_to)
        if deliveries and queue.durable:
            client.consumed = True
        return deliveries

    def whenAvailable(self, client: ConnectedClient, name: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call once when a queue has a message; return a function that cancels this. Errors as :meth:`consumeMany`."""
        permit(client, Action.CONSUME, name)
        return self._ensureFor(client, name).queue.whenReady(call)

    def loading(self, name: str) -> WorkQueue | None:
        """Return a topic's work queue if its next message must first be read from the journal."""
        queue = self.queues.get(name)
        return queue if queue is not None and queue.preparing else None

    def acknowledge(self, ids: Iterable[str], client: ConnectedClient | None = None) -> None:
        """Acknowledge messages by their ids; unknown ids, and ids in queues forbidden to the client, are ignored.

        :param client: its ``whenCommitted`` waits until the acknowledgement is on disk.
        """
        if client is not None:
            client.consumed = client.settled = self._journal.onDisk
        restricted = client is not None and client.rights not in UNRESTRICTED
        self.queues.acknowledge(ids, partial(client.rights.may, Action.CONSUME) if client and restricted else None)

    def _expired(self, queue: WorkQueue, dropped: int) -> None:
        self._stateLog.ended(queue)
        self._topics.unsubscribe(queue, queue.name, queue=True)
        if dropped:
            self.onDropped(queue.name, dropped)
