"""A broker with a journal on disk, below the pages of the API."""

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.rules import BrokerRules
from fleximq.journal.files.file_system import Files
from fleximq.values.message import Content, Message
from tests.journal.at_once import JournalAtOnce
from tests.web.api.api_case import ApiCase


class JournalCase(ApiCase):
    """All topics are durable, and those below ``last`` retained."""

    def makeBroker(self) -> Broker:
        self.errors: list[Exception] = []
        self.time = 1_700_000_000_000_000
        self.journal = JournalAtOnce(Files(), self.mktemp(), now=lambda: self.time)
        broker = Broker(
            self.clock, self.journal, lambda digits: "0" * digits, lambda message: message.message_id or "x",
            self.errors.append, rules=BrokerRules(durable=("#",), retain=("last.#",)),
        )  # fmt: skip
        self.journal.open(broker.checkpointer)
        self.journal.begin()
        self.addCleanup(self.journal.close)
        return broker

    def store(
        self, topic: str, *payloads: bytes, content: Content = Content.TEXT, client: ConnectedClient | None = None
    ) -> None:
        """Publish messages, each in a commit of its own, one second after the other."""
        publisher = client or self.ann
        for payload in payloads:
            envelope = Envelope(self.broker.topicFor(publisher, topic), publisher, MessageSource())
            self.broker.publish(envelope, [Message(payload, content, 1)], 1)
            self.journal.worker.step()
            self.time += 1_000_000
