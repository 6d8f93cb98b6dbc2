"""TLS handshakes that do not come to their end, against every dialect on a broker in memory."""

from pathlib import Path
from typing import Any

from twisted.internet.endpoints import quoteStringArgument
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.dialects.session import LINGER
from fleximq.endpoints import tls_endpoint
from fleximq.limits import Limits
from fleximq.services.compose import compose
from tests.certificates import makeCertificate
from tests.endpoints.tls_peers import TlsPeer

#: Seconds that a handshake may take here.
DEADLINE = 3.0
KINDS = ("", "fleximq+", "blipmq+", "minimq+", "identity+")


class HalfOpenTests(SynchronousTestCase):
    """Listeners of all kinds, and clients that stop somewhere."""

    def setUp(self) -> None:
        """Start a broker."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        self.made = makeCertificate(folder)
        tls = f"fleximqtls:cert={quoteStringArgument(str(self.made.both))}:inner=tcp\\:"
        self.reactor: Any = MemoryReactorClock()
        settings = Settings(
            listen=tuple(f"{kind}{tls}{n + 1}" for n, kind in enumerate(KINDS)),
            handshakeTimeout=DEADLINE,
            limits=Limits(waiting=10),
            allowAnonymous=True,
        )
        whole = compose(self.reactor, settings)
        self.addCleanup(whole.stopService)
        whole.startService()
        self.factories = [server[1] for server in self.reactor.tcpServers]

    def peers(self) -> list[TlsPeer]:
        """Return a client for each listener, which has not said anything."""
        return [TlsPeer(self.reactor, factory, self.made.trusting()) for factory in self.factories]

    def elapse(self, seconds: float) -> None:
        """Let time go by."""
        self.reactor.advance(seconds)
        self.reactor.advance(0)

    def test_silent(self) -> None:
        """Who says nothing is cut off after the deadline; a little later where the dialect would say goodbye first."""
        peers = self.peers()
        self.elapse(DEADLINE - 0.1)
        self.assertEqual([peer.wire.connected for peer in peers], [True] * len(KINDS))
        self.elapse(0.2)
        self.elapse(LINGER)
        self.assertEqual([peer.wire.connected for peer in peers], [False] * len(KINDS))

    def test_slow(self) -> None:
        """So is who sends a hello byte by byte: what comes of a handshake gives no more time."""
        peers = self.peers()
        hellos = []
        for peer in peers:
            peer.begin()
            hellos.append(peer.outgoing())
        for second in range(int(DEADLINE + LINGER) + 1):
            for peer, hello in zip(peers, hellos, strict=True):
                if peer.wire.connected:
                    peer.server.dataReceived(hello[second : second + 1])
            self.elapse(1)
        self.assertEqual([peer.wire.connected for peer in peers], [False] * len(KINDS))

    def test_silentInside(self) -> None:
        """Who comes through the handshake and says nothing is cut off too, though it does not say goodbye."""
        peers = self.peers()
        for peer in peers:
            peer.handshake()
        self.elapse(DEADLINE + 0.1)
        self.elapse(max(LINGER, tls_endpoint.LINGER))
        self.assertEqual([peer.wire.connected for peer in peers], [False] * len(KINDS))

    def test_counted(self) -> None:
        """They wait to be let in like all others: when there are too many, one more is closed, and later not."""
        many = [*self.peers(), *self.peers()]
        self.assertEqual([peer.wire.connected for peer in many], [True] * 10)
        self.elapse(0)
        for peer in self.peers():
            self.elapse(0)
            self.assertEqual((peer.wire.aborted, peer.wire.connected), (True, False))
        self.elapse(DEADLINE)
        self.elapse(LINGER)
        self.assertEqual(self.peers()[0].nameShown(), "localhost")
