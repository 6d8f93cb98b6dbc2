"""Runs that are rendered late: at once for who keeps up, behind everybody's writes for who does not."""

from typing import Any

from twisted.internet.testing import StringTransport
from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.replay.feed import DeferredForm, DeferredRun
from fleximq.broker.topics.topic_table import Topic
from fleximq.dialects.connection.slow_consumer import DISCONNECT, DROPPED, Block, Drop
from fleximq.dialects.outbox import Outbox
from fleximq.interfaces import IForm
from tests.dialects.connection.test_slow_consumer import PolicyCase, Publisher

ENVELOPE = Envelope(Topic("a"), ConnectedClient(1, "fleximq", "one"), MessageSource())


@implementer(IForm)
class Noting:
    """Renders bodies as they are, and notes that it did."""

    def __init__(self, order: list[str]) -> None:
        self._order = order

    def render(self, envelope: Envelope, body: Any, count: int) -> Any:
        """Note it."""
        self._order.append("rendered")
        return body


class Other(StringTransport):
    """Notes when it is written to."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order

    def write(self, data: bytes) -> None:
        """Note it."""
        self._order.append("written")
        super().write(data)


class LateTests(PolicyCase):
    """An outbox that is given runs which are not rendered yet."""

    def setUp(self) -> None:
        """Note what is done in which order."""
        super().setUp()
        self.order: list[str] = []
        self.form = DeferredForm(Noting(self.order))

    def late(self, body: bytes) -> DeferredRun:
        """Return a run that becomes these bytes."""
        return self.form.render(ENVELOPE, body, 1)

    def test_atOnce(self) -> None:
        """Who keeps up gets it with all else, in order, rendered once for two."""
        outbox = Outbox(self.transport, self.turn, 1000, self.overflow)
        second = Outbox(StringTransport(), self.turn, 1000, self.overflow)
        run = self.late(b"b")
        outbox.deliver(b"a")
        outbox.deliverLate(run)
        second.deliverLate(run)
        outbox.take(b"c")
        self.turn.flush()
        self.assertEqual((self.transport.value(), self.order), (b"abc", ["rendered"]))

    def test_behindOthers(self) -> None:
        """While the peer does not keep up, everybody else is written to first, whoever was given the run first."""
        outbox = self.outboxWith(DISCONNECT)
        other = Outbox(Other(self.order), self.turn, 1000, self.overflow)
        outbox.deliverLate(self.late(b"run"))
        other.deliver(b"run")
        self.turn.flush()
        self.assertEqual((self.order, outbox.waiting), (["written", "rendered"], 3))

    def test_inOrder(self) -> None:
        """Deliveries and answers behind it in the same turn stay behind it."""
        outbox = self.outboxWith(DISCONNECT)
        outbox.deliverLate(self.late(b"a"))
        outbox.take(b"b")
        outbox.deliverLate(self.late(b"c"))
        outbox.deliver(b"d")
        outbox.deliverLate(self.late(b"e"))
        self.turn.flush()
        outbox.resumeProducing()
        self.assertEqual(self.transport.value(), b"abcde")

    def test_caughtUpBefore(self) -> None:
        """A peer that catches up before the turn ends gets it behind what was held."""
        outbox = self.outboxWith(DISCONNECT)
        outbox.take(b"a")
        outbox.deliverLate(self.late(b"b"))
        outbox.resumeProducing()
        outbox.deliverLate(self.late(b"c"))
        self.turn.flush()
        self.assertEqual(self.transport.value(), b"abc")

    def test_closed(self) -> None:
        """What came before the end is sent before it."""
        outbox = self.outboxWith(DISCONNECT)
        outbox.deliverLate(self.late(b"last"))
        outbox.close()
        outbox.deliverLate(self.late(b"too late"))
        outbox.resumeProducing()
        self.assertEqual((self.transport.value(), self.transport.disconnecting), (b"last", True))

    def test_aborted(self) -> None:
        """For a connection that is cut off nothing is rendered."""
        outbox = self.outboxWith(DISCONNECT)
        outbox.deliverLate(self.late(b"run"))
        outbox.abort()
        self.turn.flush()
        self.assertEqual((self.order, outbox.waiting), ([], 0))

    def test_disconnect(self) -> None:
        """Up to the mark it is taken; what comes then ends the connection, and is not rendered."""
        outbox = self.outboxWith(DISCONNECT)
        outbox.deliverLate(self.late(bytes(1000)), 10)
        self.turn.flush()
        self.assertEqual((outbox.waiting, self.overflows), (1000, 0))
        outbox.deliverLate(self.late(b"x"), 1)
        self.turn.flush()
        self.assertEqual((outbox.waiting, self.overflows, self.order), (1000, 1, ["rendered"]))

    def test_drop(self) -> None:
        """A run is split at the mark; over it, runs are counted and not rendered."""
        outbox = self.outboxWith(Drop(self.counted))
        outbox.deliverLate(self.late(bytes(950)), 1)
        outbox.deliverLate(self.late(bytes(1000)), 10)
        self.turn.flush()
        self.assertEqual((outbox.waiting, self.counts), (950, {DROPPED: 10}))
        outbox.deliverLate(self.late(bytes(50)), 1)
        outbox.deliverLate(self.late(bytes(500)), 5)
        self.turn.flush()
        self.assertEqual((outbox.waiting, self.counts, len(self.order)), (1000, {DROPPED: 15}, 3))

    def test_block(self) -> None:
        """Nothing is left out, and who published it over the mark is read no more."""
        outbox, publisher = self.outboxWith(Block(self.clock)), Publisher()
        for size in (1000, 1):
            self.turn.open = True
            self.turn.reader = publisher
            outbox.deliverLate(self.late(bytes(size)))
            self.assertTrue(publisher.read)
            self.turn.flush()
        self.assertEqual((outbox.waiting, publisher.read), (1001, False))
        outbox.resumeProducing()
        self.assertEqual((len(self.transport.value()), publisher.read), (1001, True))
