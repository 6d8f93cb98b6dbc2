"""A consumer for the tests of named queues, which remembers its deliveries."""

from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource, QueueDelivery
from fleximq.errors import BrokerError
from tests.broker.parts import makeBroker
from tests.broker.queueing import messages, names


class Worker:
    """A client that consumes queues; ``got`` are its deliveries, ``batches`` their numbers in each call."""

    def __init__(self, broker: Broker, **settings: Any) -> None:
        self.broker = broker
        self.client: ConnectedClient = broker.join("fleximq", **settings)
        self.got: list[QueueDelivery] = []
        self.batches: list[int] = []
        self.errors: list[BrokerError] = []

    def consume(self, name: str = "t", prefetch: int = 1, source: str | None = None) -> "Worker":
        """Become a consumer of a queue."""
        self.broker.consumeFrom(self.client, name, self.deliver, self.errors.append, prefetch, source)
        return self

    def deliver(self, deliveries: Sequence[QueueDelivery]) -> None:
        """Remember deliveries."""
        self.got += deliveries
        self.batches.append(len(deliveries))

    @property
    def names(self) -> str:
        """The names of all messages so far."""
        return names(self.got)

    def tags(self, letters: str) -> list[int]:
        """Return the tags of the latest deliveries of messages with these names."""
        found = {names([each]): each.tag for each in self.got}
        return [found[letter] for letter in letters]

    def ack(self, letters: str, name: str = "t") -> list[int]:
        """Acknowledge messages by their names."""
        return self.broker.settle(self.client, name, self.tags(letters))


class ConsumingCase(SynchronousTestCase):
    """A broker with a publisher; the queue t exists."""

    rules: dict[str, Any] = {}

    def setUp(self) -> None:
        self.clock = Clock()
        self.broker = makeBroker(self.clock, **self.rules)
        self.publisher = self.broker.join("fleximq")
        self.queue = self.broker.queues.ensure("t")

    def publish(self, letters: str, topic: str = "t") -> None:
        """Publish one message for each letter."""
        envelope = Envelope(self.broker.topicFor(self.publisher, topic), self.publisher, MessageSource())
        self.broker.publish(envelope, messages(letters), len(letters))

    def worker(self, prefetch: int = 1, name: str = "t", **settings: Any) -> Worker:
        """Return a new consumer."""
        return Worker(self.broker, **settings).consume(name, prefetch)
