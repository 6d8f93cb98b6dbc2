"""A broker with a client and messages, below the pages of the API."""

from fleximq.broker.envelope import Envelope, LastDelivery
from fleximq.broker.presence import OwnMessages
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Content, Message
from tests.broker.queueing import World
from tests.web.asking import SiteCase


class ApiCase(SiteCase):
    """A broker with a client and messages."""

    def setUp(self) -> None:
        """A client that publishes."""
        super().setUp()
        self.ann = self.broker.join("minimq", principal="ann", address="192.0.2.1:5")

    def produce(self, topic: str, *payloads: bytes) -> None:
        """Put messages into the work queue of a topic."""
        for payload in payloads:
            message = Message(payload, Content.BYTES, 1, payload.decode())
            self.broker.produce(Envelope(self.broker.topics.get(topic), self.ann, OwnMessages()), message, 1)

    def consumed(self, topic: str) -> list[bytes]:
        """Take what is in a work queue, and be done with it."""
        found = []
        while (delivery := self.broker.consume(self.ann, topic)) is not None:
            found.append(delivery.message.payload)
            self.broker.acknowledgeMessages([delivery.message.message_id or ""])
        return found

    def bury(self, topic: str, *payloads: bytes) -> None:
        """Make dead letters."""
        queue = World().makeQueue()(topic)
        for tag, payload in enumerate(payloads, 1):
            message = Message(payload, Content.BYTES, 1, payload.decode())
            self.broker.deadLetters.add(queue, LastDelivery(tag, message, 3, DeathReason.ATTEMPTS))
