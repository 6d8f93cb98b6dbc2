"""How connections end when the broker stops."""

from typing import Any

from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.minimq import MiniFactory
from fleximq.services.guests import PATIENCE, Guests
from fleximq.services.spoken import Spoken
from tests.dialects.conversations import Peer, makeContext


class GuestsTests(SynchronousTestCase):
    """A broker with MiniMQ clients."""

    def setUp(self) -> None:
        """Nobody is there."""
        self.clock = Clock()
        self.context = makeContext(self.clock)
        self.guests = Guests(self.clock)
        spoken = Spoken({"minimq": MiniFactory(self.context), "plain": Factory.forProtocol(Protocol)}, {}, {}, ())
        self.factories: dict[str, Any] = dict(self.guests.of(spoken).streams)

    def come(self) -> Peer:
        """Return a client that has said a word."""
        peer = Peer(self.factories["minimq"])
        self.assertEqual(peer.ask(b"PING:\n"), b"PONG:\n")
        return peer

    def test_nobody(self) -> None:
        """Nobody is not waited for."""
        self.assertIsNone(self.successResultOf(self.guests.dismiss()))

    def test_ended(self) -> None:
        """Everybody's connection is ended; it is over when they are closed."""
        peers = [self.come(), self.come()]
        dismissed = self.guests.dismiss()
        self.assertEqual([each.closed for each in peers], [True, True])
        for each in peers:
            self.clock.advance(0.1)
            self.assertNoResult(dismissed)
            each.leave()
        self.clock.advance(0.1)
        self.assertIsNone(self.successResultOf(dismissed))

    def test_reason(self) -> None:
        """The reason is counted."""
        peer = self.come()
        self.guests.dismiss()
        peer.leave()
        self.assertEqual(self.context.broker.counts.events["left: broker stopped"], 1)

    def test_cut(self) -> None:
        """Who does not go is cut off after a while."""
        peer = self.come()
        dismissed = self.guests.dismiss()
        self.clock.pump([0.1] * 9)
        self.assertFalse(peer.transport.disconnected)
        self.clock.advance(PATIENCE)
        self.assertIsNone(self.successResultOf(dismissed))
        self.assertTrue(peer.transport.disconnected)

    def test_gone(self) -> None:
        """Who has left before is not waited for."""
        self.come().leave()
        self.assertIsNone(self.successResultOf(self.guests.dismiss()))

    def test_withoutSession(self) -> None:
        """A protocol without a session is left alone, and not waited for."""
        peer = Peer(self.factories["plain"])
        self.assertIsNone(self.successResultOf(self.guests.dismiss()))
        self.assertFalse(peer.closed)

    def test_ports(self) -> None:
        """The factories behind start and stop with their ports."""
        inner = Factory.forProtocol(Protocol)
        told: list[str] = []
        inner.startFactory = lambda: told.append("started")  # type: ignore[method-assign]
        inner.stopFactory = lambda: told.append("stopped")  # type: ignore[method-assign]
        factory: Any = self.guests.of(Spoken({"plain": inner}, {}, {}, ())).streams["plain"]
        factory.doStart()
        factory.doStop()
        self.assertEqual(told, ["started", "stopped"])
