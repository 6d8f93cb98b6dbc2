"""Presence: joins, leaves and new topics as publications of the broker."""

from typing import Any

import msgpack
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import BROKER_ID, ConnectedClient
from fleximq.broker.presence import OwnMessages, Presence
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.interfaces import IBrokerObserver, ISource
from fleximq.limits import Limits
from fleximq.values.message import Content, Message
from tests.broker.parts import Collector, makeBroker


class PresenceTests(SynchronousTestCase):
    """What is told, to whom."""

    def setUp(self) -> None:
        """A broker and somebody who listens."""
        self.broker = makeBroker(Clock())
        self.listener = self.broker.join("any")
        self.taker = Collector()

    def listen(self, name: str) -> None:
        """Subscribe the listener."""
        self.broker.subscribe(self.listener, self.taker, name)

    def told(self) -> list[Any]:
        """Return what was told."""
        return [msgpack.unpackb(payload) for payload in self.taker.payloads()]

    def test_interfaces(self) -> None:
        """It is an observer, and its messages come from a source."""
        verifyObject(IBrokerObserver, Presence(TopicTable(1, lambda topic: None), self.listener, lambda *run: None))
        source = OwnMessages()
        verifyObject(ISource, source)
        message = Message(b"", Content.MESSAGEPACK)
        self.assertEqual((list(source.messages(message)), source.pick(message, [0])), ([message], message))

    def test_joined(self) -> None:
        """id, dialect and name, of every dialect."""
        self.listen("$sys/clients/joined")
        client = self.broker.join("identity", user=True)
        self.assertEqual(self.told(), [{"client_id": client.id, "dialect": "identity", "name": client.name}])

    def test_left(self) -> None:
        """And the reason; each leave once."""
        client = self.broker.join("minimq")
        self.listen("$sys/clients/left")
        self.broker.leave(client, "client closed")
        self.broker.leave(client, "again")
        self.assertEqual(
            self.told(),
            [{"client_id": client.id, "dialect": "minimq", "name": f"minimq-{client.id}", "reason": "client closed"}],
        )

    def test_created(self) -> None:
        """New topics, the broker's own left out."""
        self.listen("$sys/topics/created")
        for name in ("a", "b", "a", "$mine"):
            self.broker.topicFor(self.listener, name)
        self.listen("$sys/clients/joined")
        self.listen("x.*")
        self.assertEqual(self.told(), [{"topic": "a"}, {"topic": "b"}, {"topic": "$mine"}])

    def test_fromTheBroker(self) -> None:
        """They are MessagePack from client 1."""
        publishers: list[ConnectedClient] = []
        form = self.taker.form
        render = form.render

        def spy(envelope: Any, body: Any, count: int) -> Any:
            publishers.append(envelope.publisher)
            return render(envelope, body, count)

        form.render = spy  # type: ignore[method-assign]
        self.listen("$sys/#")
        self.broker.join("any")
        self.assertEqual([publisher.id for publisher in publishers], [BROKER_ID])
        self.assertEqual(self.taker.messages[0].content, Content.MESSAGEPACK)

    def test_noTopics(self) -> None:
        """Where nobody listens no topic comes into being, so none of the others is pushed out."""
        self.broker = makeBroker(Clock(), limits=Limits(topics=1))
        self.broker.topicFor(self.broker.join("any"), "t")
        self.broker.leave(self.broker.join("any"), "reason")
        self.assertEqual([topic.name for topic in self.broker.topics], ["t"])

    def test_oneselfNot(self) -> None:
        """Who leaves is not told that it left."""
        self.listen("$sys/#")
        self.broker.leave(self.listener, "reason")
        self.assertEqual(self.told(), [])
