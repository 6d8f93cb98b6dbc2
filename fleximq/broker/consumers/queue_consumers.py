"""What clients do with named queues: become a consumer, settle deliveries, leave, define and pause queues."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from fleximq.broker.authorization import permit
from fleximq.broker.consumers.queue_consumer import Deliver, QueueConsumer
from fleximq.broker.consumers.queue_settings import QueueSettings
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.envelope import ConnectedClient, QueueDelivery
from fleximq.broker.observers import QueueWatchers
from fleximq.errors import BrokerError, Conflict, ConsumerEnded
from fleximq.limits import DEAD
from fleximq.rights import Action
from fleximq.values.queue_definition import QueueDefinition

#: Most queues in the row of a client.
_SHOWN = 100


@dataclass(eq=False, repr=False)
class QueueConsumers:
    """The consumers with a prefetch, of all queues."""

    _queues: WorkQueues
    _settings: QueueSettings
    _onDisk: bool
    _watchers: QueueWatchers
    _byClient: dict[ConnectedClient, dict[str, QueueConsumer]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._queues.onDefined = self._defined

    def consume(
        self,
        client: ConnectedClient,
        name: str,
        deliver: Deliver,
        ended: Callable[[BrokerError], None],
        prefetch: int,
        source: str | None,
    ) -> QueueConsumer:
        """See :meth:`fleximq.broker.broker.Broker.consumeFrom`."""
        self._queues.permitConsuming(client, name, source)
        if self._watchers.present:
            deliver = partial(self._deliverWatched, deliver, name, client)
        consumer = self._byClient.get(client, {}).get(name)
        if consumer is not None:
            consumer.setPrefetch(prefetch)
            consumer.deliver, consumer.ended = deliver, ended
            self._queues.ensure(name).distribution.hasRoom(consumer)
            return consumer
        consumer = QueueConsumer(client, prefetch, deliver, ended, self._queues.seconds())
        if self._watchers.present:
            consumer.leaseEnded = partial(self._watchers.leaseEnded, name, client)
        queue = self._queues.ensureFor(client, name, source)
        self._byClient.setdefault(client, {})[name] = consumer
        queue.distribution.add(consumer)
        return consumer

    def _deliverWatched(
        self, deliver: Deliver, name: str, client: ConnectedClient, deliveries: Sequence[QueueDelivery]
    ) -> None:
        self._watchers.delivered(name, client, deliveries)
        deliver(deliveries)

    def settle(
        self,
        client: ConnectedClient,
        name: str,
        acks: Sequence[int],
        retries: Sequence[tuple[int, float | None]],
        rejects: Sequence[tuple[int, str]],
        extends: Sequence[tuple[int, float]],
    ) -> list[int]:
        """See :meth:`fleximq.broker.broker.Broker.settle`."""
        consumer = self._byClient.get(client, {}).get(name)
        queue = self._queues.get(name)
        if consumer is None or queue is None:
            return [*acks, *(tag for tag, _ in (*retries, *rejects, *extends))]
        if self._onDisk and queue.durable:
            client.consumed = client.settled = True
        if self._watchers.present:
            self._watchers.settled(name, client, acks, retries, rejects)
        return queue.settle(consumer, acks, retries, rejects, extends)

    def leave(self, client: ConnectedClient, name: str) -> None:
        """End the consumption of a queue; a no-op without it. Unsettled deliveries return to the head at once."""
        consumers = self._byClient.get(client, {})
        consumer = consumers.pop(name, None)
        if not consumers:
            self._byClient.pop(client, None)
        queue = self._queues.get(name)
        if consumer is not None and queue is not None:
            queue.leave(consumer)
        if consumer is not None and self._watchers.present:
            self._watchers.left(name, client)

    def leaveAll(self, client: ConnectedClient) -> None:
        """End all that a client consumes."""
        for name in list(self._byClient.get(client, ())):
            self.leave(client, name)

    def queuesOf(self, client: ConnectedClient) -> list[str]:
        """Return the names of the queues from which a client consumes, the first :data:`_SHOWN` of them."""
        return list(islice(self._byClient.get(client, ()), _SHOWN))

    def pauseConsumer(self, client: ConnectedClient, name: str, isPaused: bool) -> None:
        """See :meth:`fleximq.broker.broker.Broker.pauseConsuming`."""
        consumer, queue = self._byClient.get(client, {}).get(name), self._queues.get(name)
        if consumer is not None and queue is not None:
            consumer.isPaused = isPaused
            queue.distribution.hasRoom(consumer)

    def narrow(self, client: ConnectedClient) -> None:
        """End the consumption of queues from which a client may not consume any more."""
        for consumer, queue in [
            (each, self._queues.get(name)) for name, each in self._byClient.get(client, {}).items()
        ]:
            if queue is not None:
                self._narrow(consumer, queue)

    def _narrow(self, consumer: QueueConsumer, queue: WorkQueue) -> None:
        if not self._queues.mayConsume(consumer.client, queue):
            self.leave(consumer.client, queue.name)
            consumer.ended(ConsumerEnded(queue.name))

    def _defined(self, queue: WorkQueue) -> None:
        """End the consumption of those without the right to a new source of a queue."""
        for consumer in list(queue.distribution.consumers.values()):
            self._narrow(consumer, queue)

    def define(self, client: ConnectedClient, definition: QueueDefinition, mayReplace: bool) -> QueueDefinition:
        """See :meth:`fleximq.broker.broker.Broker.defineQueue`."""
        for each in (definition.name, *definition.sources):
            permit(client, Action.CONSUME, each)
        if definition.dead_letters not in (None, DEAD + definition.name):
            permit(client, Action.PUBLISH, definition.dead_letters)
        known = self._queues.get(definition.name)
        present = None if known is None else known.definition
        if present is not None and not mayReplace:
            definition = replace(definition, paused=present.paused)
        if present is not None and present != definition and not mayReplace:
            words = f"the queue {definition.name!r} is {present.dump()}, not {definition.dump()}"
            raise Conflict(f"{words}; 'replace' changes that")
        if present is not None and definition.name in self._settings:
            if replace(present, paused=definition.paused) != definition:
                raise Conflict(f"the queue {definition.name!r} is in the broker's settings: {present.dump()}")
        self._queues.define(client, definition)
        return definition

    def bind(self, client: ConnectedClient, name: str, added: Sequence[str], removed: Sequence[str]) -> QueueDefinition:
        """See :meth:`fleximq.broker.broker.Broker.bindQueue`."""
        permit(client, Action.CONSUME, name)
        queue = self._queues.existing(name)
        present = queue.definition or QueueDefinition(name)
        gone = {*removed} - {name}
        return self.define(client, replace(present, sources=tuple({*present.sources, *added} - gone)), mayReplace=True)

    def delete(self, client: ConnectedClient, name: str) -> int:
        """See :meth:`fleximq.broker.broker.Broker.deleteQueue`."""
        permit(client, Action.CONSUME, name)
        queue = self._queues.existing(name)
        if name in self._settings:
            raise Conflict(f"the queue {name!r} is in the broker's settings")
        for consumer in list(queue.distribution.consumers.values()):
            self.leave(consumer.client, name)
            consumer.ended(ConsumerEnded(name, f"the queue {name!r} was deleted"))
        return self._queues.remove(queue)

    def pause(self, client: ConnectedClient, name: str, paused: bool) -> None:
        """See :meth:`fleximq.broker.broker.Broker.pauseQueue`."""
        queue = self._queues.existing(name)
        self._queues.define(client, replace(queue.definition or QueueDefinition(name), paused=paused))
