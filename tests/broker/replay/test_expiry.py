"""Replays leave out what is older than its retention, before its file is removed, and tell who missed something."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.replay.feed import DeferredForm
from fleximq.broker.replay.replay import Start
from fleximq.errors import NoLongerKept
from tests.broker.parts import makeBroker, text
from tests.broker.replay.test_feed import Reader, WithOffsets
from tests.slow_journal import SlowJournal


class AgeTests(SynchronousTestCase):
    """Messages of d.short are stored for 10 seconds, those of d.long for 1,000, others for ever; r.a is retained."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.journal = SlowJournal()
        self.journal.now = 0
        self.broker: Broker = makeBroker(
            self.clock,
            journal=self.journal,
            durable=("d.#",),
            retain=("r.#",),
            retentions=(("d.short", 10.0), ("d.sized", 0.0), ("d.long", 1000.0), ("r.#", 10.0)),
        )
        self.publisher = self.broker.join("any")

    def publish(self, topic: str, count: int = 1) -> None:
        """Publish messages, which are committed."""
        envelope = Envelope(self.broker.topicFor(self.publisher, topic), self.publisher, MessageSource())
        self.broker.publish(envelope, text(*"x" * count), count)
        self.journal.commit()

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        self.journal.now += round(seconds * 1_000_000)

    def reader(self) -> Reader:
        """Return a connection."""
        reader = Reader()
        reader.chunkBytes, reader.form = 1000, DeferredForm(WithOffsets())
        return reader

    def follow(self, name: str, start: Start) -> Reader:
        """Return a client's connection that has subscribed."""
        reader = self.reader()
        self.broker.follow(self.broker.join("fleximq"), reader, name, start)
        for _ in range(3):
            reader.settle()
        return reader

    def first(self, reader: Reader) -> int:
        """Return the offset that ends its subscription."""
        [(_, error)] = reader.failures
        assert isinstance(error, NoLongerKept), error
        return error.first

    def test_leftOut(self) -> None:
        """From their age on; at the age itself they are still delivered."""
        self.publish("d.short", 2)
        self.later(5)
        self.publish("d.short")
        self.later(5)
        self.assertEqual(self.follow("d.short", Start("first")).offsets, [1, 2, 3])
        self.later(0.000001)
        for start in (Start("first"), Start("time", 0)):
            reader = self.follow("d.short", start)
            self.assertEqual((reader.offsets, reader.failures), ([3], []))

    def test_byTopic(self) -> None:
        """Each topic has its own age, or none."""
        for topic in ("d.short", "d.sized", "d.long", "d.other"):
            self.publish(topic)
        self.later(11)
        self.assertEqual(self.follow("d.#", Start("first")).offsets, [2, 3, 4])
        self.later(1000)
        self.assertEqual(self.follow("d.#", Start("offset", 1)).offsets, [2, 4])

    def test_resumed(self) -> None:
        """Who resumes at an offset that is too old is told the first that is not."""
        self.publish("d.short", 3)
        self.publish("d.other")
        self.later(11)
        self.publish("d.other")
        self.publish("d.short")
        reader = self.follow("d.short", Start("offset", 2))
        self.assertEqual((reader.offsets, self.first(reader)), ([], 5))
        self.assertEqual(self.follow("d.short", Start("offset", 5)).offsets, [6])

    def test_nothingMissed(self) -> None:
        """Who has received all that is too old goes on."""
        self.publish("d.short", 3)
        self.publish("d.other", 3)
        self.later(11)
        self.publish("d.short")
        reader = self.follow("d.short", Start("offset", 4))
        self.assertEqual((reader.offsets, reader.failures), ([7], []))

    def test_overtaken(self) -> None:
        """A reader that is slower than the retention ends; others of its connection go on."""
        reader = self.reader()
        client = self.broker.join("fleximq")
        self.publish("d.short", 2)
        self.publish("d.other", 2)
        reader.full = True
        for name in ("d.short", "d.other"):
            self.broker.follow(client, reader, name, Start("first"))
        self.later(11)
        self.publish("d.other")
        reader.relieve()
        for _ in range(6):
            reader.settle()
        self.assertEqual((reader.offsets, [name for name, _ in reader.failures]), ([3, 4, 5], ["d.short"]))
        self.assertEqual(self.first(reader), 5)

    def test_retained(self) -> None:
        """The latest message of a topic that retains it stays."""
        self.publish("r.a", 3)
        self.later(11)
        self.assertEqual(self.follow("r.a", Start("first")).offsets, [3])
