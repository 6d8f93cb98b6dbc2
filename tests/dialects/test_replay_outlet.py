"""What a connection may have unread of the past, on top of what else may wait."""

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.replay.feed import DeferredForm
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.fleximq.forms import FLEXI_FORM
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.replay_outlet import LOW_WATER, ReplayOutlet
from tests.broker.parts import Collector

MARK = 1000


class ReplayingTests(SynchronousTestCase):
    """One connection whose mark is small."""

    def setUp(self) -> None:
        """Begin with nothing sent."""
        self.clock = Clock()
        self.transport = StringTransport()
        self.overflows = 0
        self.outbox = Outbox(self.transport, WriteTurn(self.clock), MARK, self._overflowed)
        self.replaying = ReplayOutlet(
            Collector(), self.outbox, self.clock, DeferredForm(FLEXI_FORM), lambda batches: b"", self.outbox.take
        )

    def _overflowed(self) -> None:
        self.overflows += 1

    def test_full(self) -> None:
        """It is full when more than a little waits, and tells once all was taken."""
        called: list[int] = []
        self.outbox.pauseProducing()
        self.replaying.send(b"x" * LOW_WATER)
        self.assertFalse(self.replaying.full)
        self.replaying.send(b"x")
        self.assertTrue(self.replaying.full)
        self.replaying.whenRelieved(lambda: called.append(1))
        self.outbox.resumeProducing()
        self.assertEqual(called, [])
        self.clock.advance(0)
        self.assertEqual((called, self.replaying.full), ([1], False))

    def test_never(self) -> None:
        """What is sent this way is never too much; what else comes meanwhile has its own room."""
        self.outbox.pauseProducing()
        for _ in range(2):
            self.replaying.send(b"x" * (10 * LOW_WATER))
        self.outbox.deliver(b"x" * MARK)
        self.assertEqual(self.overflows, 0)

    def test_others(self) -> None:
        """Others do not profit without end."""
        self.replaying.send(b"x" * 100)
        self.clock.advance(0)
        self.outbox.pauseProducing()
        for _ in range(2000):
            self.outbox.deliver(b"x" * MARK)
        self.assertEqual(self.overflows, 1)

    def test_closed(self) -> None:
        """When it is over, the mark is what it was, as soon as nothing waits."""
        mark = self.outbox.limit
        self.outbox.pauseProducing()
        self.replaying.send(b"x" * LOW_WATER)
        self.replaying.close()
        self.assertGreater(self.outbox.limit, mark)
        self.outbox.resumeProducing()
        self.assertEqual(self.outbox.limit, mark)

    def test_closedAtOnce(self) -> None:
        """At once, where nothing waits."""
        mark = self.outbox.limit
        self.replaying.close()
        self.assertEqual(self.outbox.limit, mark)
