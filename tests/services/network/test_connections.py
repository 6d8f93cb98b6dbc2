"""How connections end when the broker stops."""

from dataclasses import replace
from typing import Any

from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.identity_ws import IdentityFactory
from fleximq.dialects.minimq import MiniFactory
from fleximq.services.network.connections import LAST, PART, QUIET, OpenConnections
from tests.dialects.conversations import Peer, makeContext
from tests.dialects.flexi_peer import FlexiPeer

#: What everybody has for the end, in seconds.
PATIENCE = 10.0


class ConnectionsTests(SynchronousTestCase):
    """A broker with clients of several dialects."""

    def setUp(self) -> None:
        """Nobody is there."""
        self.clock = Clock()
        self.connections = OpenConnections(self.clock)
        self.context = replace(makeContext(self.clock, consumeWait=5.0), sessions=self.connections.sessions)
        self.factories: dict[str, Any] = {
            "fleximq": FlexiFactory(self.context),
            "blipmq": BlipFactory(self.context),
            "minimq": MiniFactory(self.context),
            "identity": IdentityFactory(self.context),
            "plain": Factory.forProtocol(Protocol),
        }

    def come(self) -> Peer:
        """Return a MiniMQ client that has said a word."""
        peer = Peer(self.factories["minimq"])
        self.assertEqual(peer.ask(b"PING:\n"), b"PONG:\n")
        return peer

    def comeFlexi(self) -> FlexiPeer:
        """Return a FlexiMQ client that has joined."""
        peer = FlexiPeer(self.factories["fleximq"])
        peer.join()
        return peer

    def drain(self) -> Any:
        """Let the broker stop."""
        dismissed = self.connections.drain(PATIENCE)
        self.clock.advance(0)
        return dismissed

    def pass_(self, seconds: float) -> None:
        """Let time go by, in small steps."""
        self.clock.pump([0.05] * round(seconds / 0.05))

    def test_nobody(self) -> None:
        """Nobody is not waited for."""
        self.assertFalse(self.connections.stopping)
        self.assertIsNone(self.successResultOf(self.drain()))
        self.assertTrue(self.connections.stopping)

    def test_ended(self) -> None:
        """Everybody's connection is ended; it is over when they are closed."""
        peers = [self.come(), self.come()]
        dismissed = self.drain()
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
        self.drain()
        peer.leave()
        self.assertEqual(self.context.broker.counts.events["left: broker stopped"], 1)

    def test_pending(self) -> None:
        """What was asked is answered before: a CONSUME that waits gets nothing but that."""
        peer = self.come()
        self.assertEqual(peer.ask(b"CONSUME:empty\n"), b"")
        self.drain()
        self.assertEqual((peer.heard(), peer.closed), (b"NO_MSG\n", True))

    def test_told(self) -> None:
        """A FlexiMQ client is told by a NOTIF 503, and its connection stays for a while."""
        peer = self.comeFlexi()
        self.drain()
        (heard,) = peer.messages()
        self.assertEqual((heard.kind, heard.sender, heard.status), ("NOTIF", 1, 503))
        self.assertEqual(heard.header["routing"], [{"client_id": peer.id, "path": "/broker/draining"}])
        self.assertFalse(peer.closed)

    def test_quiet(self) -> None:
        """It ends when the client has said nothing for half a second."""
        peer = self.comeFlexi()
        self.drain()
        self.pass_(QUIET - 0.1)
        peer.ping()
        self.pass_(QUIET - 0.1)
        self.assertFalse(peer.closed)
        self.pass_(0.2)
        self.assertTrue(peer.closed)

    def test_toldOnce(self) -> None:
        """It is told once."""
        peer = self.comeFlexi()
        self.drain()
        self.pass_(QUIET + 0.1)
        self.assertEqual([each.status for each in peer.messages()], [503])

    def test_talkative(self) -> None:
        """Who goes on and on is dismissed after half of the time."""
        peer = self.comeFlexi()
        self.drain()
        for _ in range(round(PART * PATIENCE / 0.1) - 1):
            self.clock.advance(0.1)
            peer.ping()
        self.assertFalse(peer.closed)
        self.pass_(0.2)
        self.assertTrue(peer.closed)

    def test_request(self) -> None:
        """Nobody is dismissed while somebody waits for an answer, for half of the time."""
        asking, asked = self.comeFlexi(), self.comeFlexi()
        asking.request(asked.id, "/x", "1")
        self.drain()
        self.pass_(QUIET + 1)
        self.assertEqual((asking.closed, asked.closed), (False, False))
        asked.reply(asking.id, "1")
        self.pass_(QUIET + 0.1)
        self.assertEqual((asking.closed, asked.closed), (True, True))

    def test_cut(self) -> None:
        """Who has got everything and does not go is cut off after a while."""
        peer = self.come()
        dismissed = self.drain()
        self.pass_(LAST)
        self.assertFalse(peer.transport.disconnected)
        self.pass_(LAST + 0.1)
        self.assertTrue(peer.transport.disconnected)
        peer.leave()
        self.pass_(0.1)
        self.assertIsNone(self.successResultOf(dismissed))

    def test_unread(self) -> None:
        """Who has not read everything has all the time, and is cut off then."""
        peer = self.come()
        peer.protocol.outbox.pauseProducing()
        dismissed = self.drain()
        self.pass_(PATIENCE - 0.5)
        self.assertFalse(peer.transport.disconnected)
        self.pass_(0.6)
        self.assertTrue(peer.transport.disconnected)
        self.assertIsNone(self.successResultOf(dismissed))

    def test_noTime(self) -> None:
        """Where there is no time, everybody is cut off."""
        peer = self.come()
        self.assertIsNone(self.successResultOf(self.connections.drain(0)))
        self.assertTrue(peer.transport.disconnected)

    def test_notJoined(self) -> None:
        """Who was not let in yet is told nothing."""
        peer = Peer(self.factories["fleximq"])
        self.drain()
        self.assertEqual((peer.heard(), peer.closed), (b"", True))

    def test_lateComer(self) -> None:
        """Who shows its dialect only now is dismissed as well."""
        self.come()
        self.drain()
        late = self.come()
        self.clock.advance(0.1)
        self.assertTrue(late.closed)

    def test_gone(self) -> None:
        """Who has left before is not waited for."""
        self.come().leave()
        self.assertIsNone(self.successResultOf(self.drain()))

    def test_withoutSession(self) -> None:
        """A protocol without a session is left alone, and not waited for."""
        peer = Peer(self.factories["plain"])
        self.assertIsNone(self.successResultOf(self.drain()))
        self.assertFalse(peer.closed)
