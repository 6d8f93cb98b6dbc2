"""What happens to deliveries that a consumer does not read in time."""

from typing import Any

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.traffic import Traffic
from fleximq.config.option_values import SlowConsumer
from fleximq.dialects.connection.connection_rate import ConnectionRate
from fleximq.dialects.connection.read_pauses import ReadPause, ReadPauses
from fleximq.dialects.connection.slow_consumer import (
    DISCONNECT,
    DROPPED,
    MAX_BLOCK_SECONDS,
    Block,
    Disconnect,
    Drop,
    policyOf,
)
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.outbox import Outbox


class Publisher:
    """Somebody whose read is worked through."""

    def __init__(self, outbox: Outbox | None = None) -> None:
        self.listened: list[bool] = []
        self.transport = StringTransport()
        self.readPauses = ReadPauses(self.transport, self.listened.append)
        self.outbox: Any = outbox

    @property
    def read(self) -> bool:
        """Whether it is read."""
        return self.transport.producerState == "producing"


class PolicyCase(SynchronousTestCase):
    """An outbox with a mark of 1,000 bytes whose peer does not read."""

    def setUp(self) -> None:
        """Let the transport have enough."""
        self.clock = Clock()
        self.turn = WriteTurn(self.clock)
        self.transport = StringTransport()
        self.overflows = 0
        self.counts: dict[str, int] = {}

    def outboxWith(self, policy: Disconnect | Drop | Block) -> Outbox:
        """Return an outbox that holds what it is given."""
        outbox = Outbox(self.transport, self.turn, 1000, self.overflow, policy)
        outbox.messagesWithin = lambda chunk, space: (space // 100 * 100, space // 100)
        outbox.pauseProducing()
        return outbox

    def overflow(self) -> None:
        """Count the calls."""
        self.overflows += 1

    def counted(self, event: str, number: int) -> None:
        """Add up what is counted."""
        self.counts[event] = self.counts.get(event, 0) + number


class WordsTests(PolicyCase):
    """Why a publisher is not read."""

    def test_reasons(self) -> None:
        """Each reason has words, and none is none."""
        publisher = Publisher()
        self.assertEqual(publisher.readPauses.words(), "")
        publisher.readPauses.pause(ReadPause.OVERLOADED)
        publisher.readPauses.pause(self.outboxWith(Block(self.clock)))
        meter: Any = None
        publisher.readPauses.pause(ConnectionRate(meter, Traffic(), self.clock, self.counted))
        words = "a subscriber of its messages reads too slowly, it exceeds its rate, "
        self.assertEqual(publisher.readPauses.words(), words + ReadPause.OVERLOADED.value)


class DisconnectTests(PolicyCase):
    """The consumer is cut off."""

    def test_upToTheMark(self) -> None:
        """A run that ends at the mark is taken, one byte more is too much."""
        outbox = self.outboxWith(DISCONNECT)
        outbox.deliver(bytes(1000), 10)
        self.assertEqual((outbox.waiting, self.overflows), (1000, 0))
        outbox.deliver(b"x", 1)
        self.assertEqual((outbox.waiting, self.overflows), (1000, 1))

    def test_oneMessage(self) -> None:
        """A single message that comes below the mark is taken whole."""
        outbox = self.outboxWith(DISCONNECT)
        outbox.deliver(bytes(999), 1)
        outbox.deliver(bytes(5000), 1)
        self.assertEqual((outbox.waiting, self.overflows), (5999, 0))

    def test_run(self) -> None:
        """A run that would go over it is not."""
        outbox = self.outboxWith(DISCONNECT)
        outbox.deliver(bytes(1001), 2)
        self.assertEqual((outbox.waiting, self.overflows), (0, 1))

    def test_answers(self) -> None:
        """Answers end it at the mark as well, and it is told once."""
        outbox = self.outboxWith(DISCONNECT)
        outbox.take(bytes(1000))
        self.assertEqual(self.overflows, 0)
        outbox.take(b"x")
        outbox.take(b"x")
        self.assertEqual(self.overflows, 1)


class DropTests(PolicyCase):
    """The newest is left out."""

    def test_splitAtTheMark(self) -> None:
        """Of a run what fits is taken, in whole messages, and the rest counted."""
        outbox = self.outboxWith(Drop(self.counted))
        outbox.deliver(bytes(250), 1)
        outbox.deliver(bytes(1000), 10)
        self.assertEqual((outbox.waiting, self.counts), (950, {DROPPED: 3}))

    def test_overTheMark(self) -> None:
        """Over the mark everything is left out, and the consumer stays."""
        outbox = self.outboxWith(Drop(self.counted))
        outbox.deliver(bytes(1500), 1)
        outbox.deliver(bytes(100), 1)
        outbox.deliver(bytes(500), 5)
        self.assertEqual((outbox.waiting, self.counts, self.overflows), (1500, {DROPPED: 6}, 0))

    def test_goesOn(self) -> None:
        """Once it has read, deliveries reach it again, behind what was held."""
        outbox = self.outboxWith(Drop(self.counted))
        outbox.deliver(b"a" * 1000, 1)
        outbox.deliver(b"b" * 100, 1)
        outbox.resumeProducing()
        outbox.deliver(b"c" * 100, 1)
        self.turn.flush()
        self.assertEqual(self.transport.value(), b"a" * 1000 + b"c" * 100)

    def test_nothingFits(self) -> None:
        """A run of which no message fits holds nothing up: what comes when the peer has read is sent."""
        outbox = self.outboxWith(Drop(self.counted))
        outbox.messagesWithin = lambda chunk, space: (0, 0)
        outbox.deliver(bytes(1001), 2)
        self.assertEqual((outbox.waiting, self.counts), (0, {DROPPED: 2}))
        outbox.resumeProducing()
        outbox.deliver(b"next", 1)
        self.turn.flush()
        self.assertEqual(self.transport.value(), b"next")

    def test_answers(self) -> None:
        """Answers are never left out; over twice the mark they end it."""
        outbox = self.outboxWith(Drop(self.counted))
        outbox.take(bytes(2000))
        self.assertEqual((outbox.waiting, self.overflows), (2000, 0))
        outbox.take(b"x")
        self.assertEqual((self.counts, self.overflows), ({}, 1))


class BlockTests(PolicyCase):
    """Publishers are not read."""

    def publish(self, outbox: Outbox, publisher: Publisher, size: int) -> None:
        """Deliver what somebody publishes."""
        self.turn.open = True
        self.turn.reader = publisher
        outbox.deliver(bytes(size), 1)
        self.turn.flush()

    def test_publisher(self) -> None:
        """Whoever publishes over the mark waits until the consumer has caught up; nothing is lost."""
        outbox, first, second, other = self.outboxWith(Block(self.clock)), Publisher(), Publisher(), Publisher()
        self.publish(outbox, other, 1000)
        self.publish(outbox, first, 1)
        self.publish(outbox, second, 500)
        self.assertEqual((first.read, second.read, other.read), (False, False, True))
        outbox.resumeProducing()
        self.assertEqual((first.read, second.read), (True, True))
        self.assertEqual((first.listened, len(self.transport.value()), self.overflows), ([False, True], 1501, 0))

    def test_twoConsumers(self) -> None:
        """Reading goes on when both have caught up."""
        publisher, policy = Publisher(), Block(self.clock)
        one, two = self.outboxWith(policy), Outbox(StringTransport(), self.turn, 1000, self.overflow, policy)
        two.pauseProducing()
        self.publish(one, publisher, 1001)
        self.publish(two, publisher, 1001)
        one.resumeProducing()
        self.assertFalse(publisher.read)
        two.resumeProducing()
        self.assertTrue(publisher.read)

    def test_notForLong(self) -> None:
        """After ten seconds the consumer is cut off, and its publishers go on when it is gone."""
        outbox, publisher = self.outboxWith(Block(self.clock)), Publisher()
        self.publish(outbox, publisher, 1001)
        self.clock.advance(MAX_BLOCK_SECONDS - 0.1)
        self.assertEqual((self.overflows, publisher.read), (0, False))
        self.clock.advance(0.1)
        self.assertEqual(self.overflows, 1)
        outbox.stopProducing()
        self.assertTrue(publisher.read)

    def test_caughtUpInTime(self) -> None:
        """One that has caught up has ten seconds again, and leaves no timer."""
        outbox = self.outboxWith(Block(self.clock))
        self.publish(outbox, Publisher(), 1001)
        outbox.resumeProducing()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.clock.advance(MAX_BLOCK_SECONDS)
        self.assertEqual(self.overflows, 0)

    def test_notItself(self) -> None:
        """A slow consumer that publishes is read on; at twice the mark it is cut off."""
        outbox = self.outboxWith(Block(self.clock))
        publisher = Publisher(outbox)
        self.publish(outbox, publisher, 2000)
        self.assertEqual((publisher.read, self.overflows), (True, 0))
        self.publish(outbox, publisher, 1)
        self.assertEqual((publisher.read, self.overflows), (True, 1))


class SettingTests(SynchronousTestCase):
    """Policies by name."""

    def test_each(self) -> None:
        """Every setting has its policy."""
        made = [type(policyOf(setting, Clock(), lambda event, number: None)) for setting in SlowConsumer]
        self.assertEqual(made, [Disconnect, Drop, Block])
