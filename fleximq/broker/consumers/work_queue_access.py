"""Work queues as clients use them: rights, topics and the journal. The rules are in
:mod:`fleximq.broker.consumers.work_queues`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fleximq.broker.authorization import permit, permits
from fleximq.broker.consumers.state_log import OpeningLog
from fleximq.broker.consumers.work_queues import WorkQueue, WorkQueues
from fleximq.broker.envelope import ConnectedClient, Envelope, QueueDelivery
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.queues.waiting_messages import weigh
from fleximq.broker.rules import BrokerRules
from fleximq.broker.topics.names import isBrokerTopic
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import InvalidTopic, NoCapacity
from fleximq.interfaces import IJournal
from fleximq.rights import EVERYTHING, Action
from fleximq.values.message import Message


class WorkQueueAccess:
    """Makes, consumes and ends work queues; ``queues`` are all of them.

    :param idOf: returns a message's id in a queue: its own, or a new one.
    :param lasts: tells whether the queue of this topic never expires.
    """

    def __init__(
        self,
        rules: BrokerRules,
        journal: IJournal,
        topics: TopicTable,
        openingLog: OpeningLog,
        makeQueue: QueueFactory,
        idOf: Callable[[Message], str],
        lasts: Callable[[str], bool],
    ) -> None:
        self._journal = journal
        self._topics = topics
        self._openingLog = openingLog
        self.queues = WorkQueues(
            makeQueue,
            expiry=rules.queueExpiry,
            maxQueues=rules.limits.queues,
            onExpired=self._expired,
            idOf=idOf,
            lasts=lasts,
        )

    def ensure(self, name: str) -> WorkQueue:
        """Return the queue of a topic, made if need be.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NoCapacity: the broker has the maximum number of queues.
        """
        queue = self.queues.get(name)
        if queue is None:
            self._topics.get(name)
            queue, _ = self.queues.ensure(name)
            self._openingLog.queueOpened(queue)
            self._topics.subscribe(queue, name, queue=True, durable=queue.durable)
        return queue

    def refusal(self, queue: WorkQueue, envelope: Envelope, body: Any, count: int) -> str | None:
        """Return the reason why a queue refuses a MiniMQ PRODUCE; None if it accepts it. The topic must be in the
        table.
        """
        size = weigh(envelope.source.messages(body))
        if queue.everConsumed:
            return queue.admits(envelope.topic.pendingCount + count, envelope.topic.pendingBytes + size)
        return queue.admits(count, size)

    def expectReplies(self, client: ConnectedClient, name: str) -> None:
        """See :meth:`fleximq.broker.broker.Broker.expectReplies`."""
        if not isBrokerTopic(name) and permits(client, Action.CONSUME, name):
            with suppress(InvalidTopic, NoCapacity):
                self.ensure(name)

    def consume(self, client: ConnectedClient, name: str) -> QueueDelivery | None:
        """See :meth:`fleximq.broker.broker.Broker.consume`."""
        permit(client, Action.CONSUME, name)
        queue = self.ensure(name)
        delivery = self.queues.consume(name, client)
        if delivery is not None and queue.durable:
            client.consumed = True
        return delivery

    def consumeMany(self, client: ConnectedClient, name: str, number: int, most: int) -> Sequence[QueueDelivery]:
        """See :meth:`fleximq.broker.broker.Broker.consumeMany`."""
        permit(client, Action.CONSUME, name)
        queue = self.ensure(name)
        deliveries = self.queues.consumeMany(name, number, client, most)
        if deliveries and queue.durable:
            client.consumed = True
        return deliveries

    def whenAvailable(self, client: ConnectedClient, name: str, call: Callable[[], None]) -> Callable[[], None]:
        """See :meth:`fleximq.broker.broker.Broker.whenAvailable`."""
        permit(client, Action.CONSUME, name)
        return self.ensure(name).whenReady(call)

    def loading(self, name: str) -> WorkQueue | None:
        """See :meth:`fleximq.broker.broker.Broker.loadingQueue`."""
        queue = self.queues.get(name)
        return queue if queue is not None and queue.loading else None

    def acknowledge(self, id: str, client: ConnectedClient | None) -> None:
        """See :meth:`fleximq.broker.broker.Broker.acknowledgeMessage`."""
        if client is not None:
            client.consumed = self._journal.onDisk
        restricted = client is not None and client.rights is not EVERYTHING
        self.queues.acknowledge(id, partial(client.rights.may, Action.CONSUME) if client and restricted else None)

    def _expired(self, queue: WorkQueue) -> None:
        self._openingLog.queueExpired(queue)
        self._topics.unsubscribe(queue, queue.name, queue=True)
