"""The whole broker in memory: which listeners there are, and that dialects stand behind them."""

import tempfile
from pathlib import Path
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.errors import SettingError
from fleximq.security.anonymous_access import REFUSAL
from fleximq.services.compose import compose
from fleximq.services.network.listeners import ListenerService
from fleximq.wire.fleximq_frame import encodeFrame
from tests.certificates import makeCertificate
from tests.cluster.nats.servers import MISSING
from tests.dialects.conversations import Peer

JOIN = encodeFrame(0, 0)
REMOTE = IPv4Address("TCP", "192.0.2.7", 50000)


class Ports(MemoryReactorClock):
    """A reactor in memory whose ports have their factories, as those of a real one do."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Any] = []

    def listenTCP(self, port: int, factory: Any, *more: Any, **named: Any) -> Any:
        """Open a port; so with the next."""
        return self._opened(super().listenTCP(port, factory, *more, **named), factory)

    def listenSSL(self, port: int, factory: Any, contextFactory: Any, *more: Any, **named: Any) -> Any:
        """Open a port for TLS."""
        return self.listenTCP(port, TLSMemoryBIOFactory(contextFactory, False, factory), *more, **named)

    def listenUNIX(self, address: Any, factory: Any, *more: Any, **named: Any) -> Any:
        """Open a socket."""
        return self._opened(super().listenUNIX(address, factory, *more, **named), factory)

    def _opened(self, port: Any, factory: Any) -> Any:
        port.factory = factory
        self.opened.append(port)
        return port


class ComposeTests(SynchronousTestCase):
    """Settings and what becomes of them."""

    def whole(self, **settings: Any) -> MultiService:
        """Return a broker with these settings, on a reactor in memory."""
        self.reactor: Any = MemoryReactorClock()
        whole = compose(self.reactor, Settings(**settings))
        self.addCleanup(whole.stopService)
        return whole

    def factories(self, **settings: Any) -> list[Any]:
        """Return the factories behind the ports of a broker that was started."""
        whole = self.whole(**settings)
        whole.privilegedStartService()
        whole.startService()
        return [server[1] for server in self.reactor.tcpServers]

    def test_notYet(self) -> None:
        """Nothing is open and nothing timed before the start."""
        self.whole()
        self.assertEqual((self.reactor.tcpServers, self.reactor.getDelayedCalls()), ([], []))

    def test_listeners(self) -> None:
        """There is a listener for each text, in their order."""
        whole = self.whole(listen=("tcp:1", "minimq+tcp:2"))
        places = [str(each.listen) for each in whole if isinstance(each, ListenerService)]
        self.assertEqual(places, ["tcp:1", "minimq+tcp:2"])

    def test_cluster(self) -> None:
        """A node of a cluster opens its listeners by itself, and takes clients for the owner, over TLS too."""
        if MISSING:
            raise SkipTest(MISSING)
        self.reactor = Ports()
        folder = self.mktemp()
        made = makeCertificate(Path(tempfile.mkdtemp(dir=".")))
        listen = (
            "tcp:1",
            f"ssl:2:privateKey={made.key}:certKey={made.certificate}",
            "unix:s",
            "haproxy:tcp:3",
            "stdio",
        )
        cluster: Any = {"cluster": ("nats://127.0.0.1:1",), "node": "a", "journal": folder}
        whole = compose(self.reactor, Settings(listen=listen, **cluster))
        kinds = [type(each).__name__ for each in whole]
        self.assertEqual((type(whole).__name__, kinds), ("ClusterService", ["NodePorts", "Readiness"]))
        ports, readiness = whole
        self.assertEqual(readiness.words, "serving on 4 listeners")
        whole.privilegedStartService()
        factories = [port.factory for port in self.reactor.opened]
        self.assertEqual([Peer(each).transport.producerState for each in factories], ["paused"] * 4)
        self.assertEqual(len(ports.forwarding.waiting), 4)
        ports.serve()
        self.assertEqual(len(ports.forwarding.waiting), 0)
        layers = [type(each.buildProtocol(REMOTE)).__name__ for each in factories]
        self.assertEqual(
            layers, ["SniffingProtocol", "BufferingTLSTransport", "SniffingProtocol", "HAProxyProtocolWrapper"]
        )
        with self.assertRaisesRegex(SettingError, "TCP or UNIX sockets only"):
            compose(self.reactor, Settings(listen=(r"autobahn:tcp\:1:url=ws\://localhost\:1",), **cluster))

    def test_wrongListener(self) -> None:
        """A text that is none is refused before anything is made."""
        self.assertRaises(SettingError, compose, MemoryReactorClock(), Settings(listen=("x+tcp:1",)))

    def test_oneBroker(self) -> None:
        """Clients of all listeners are clients of one broker: their ids go on."""
        first, second = (Peer(each).say(JOIN).heard() for each in self.factories(listen=("tcp:1", "fleximq+tcp:2")))
        self.assertEqual([answer[2:6] for answer in (first, second)], [b"\0\0\x03\xe8", b"\0\0\x03\xe9"])

    def test_remote(self) -> None:
        """A remote peer is told so in its dialect, unless everybody may come."""
        (factory,) = self.factories()
        self.assertIn(REFUSAL.encode(), Peer(factory, REMOTE).say(JOIN).heard())
        self.assertIn(REFUSAL.encode(), Peer(factory, REMOTE).say(b"GET / HTTP/1.0\r\n\r\n").heard())
        (factory,) = self.factories(allowAnonymous=True)
        self.assertNotIn(REFUSAL.encode(), Peer(factory, REMOTE).say(JOIN).heard())

    def test_proxied(self) -> None:
        """Behind haproxy: even a local peer is remote."""
        (factory,) = self.factories(listen=("haproxy:tcp:1",))
        peer = Peer(factory).say(b"PROXY TCP4 127.0.0.1 127.0.0.1 50000 1\r\n").say(JOIN)
        self.assertIn(REFUSAL.encode(), peer.heard())

    def test_oneDeadline(self) -> None:
        """First bytes and handshake together have that time, however late the first of them came."""
        (factory,) = self.factories(handshakeTimeout=3.0)
        upgrade = b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n"
        for first in (JOIN[:30], b"\0\0\0\x0c", b"PING", upgrade[:30]):
            peer = Peer(factory)
            self.reactor.advance(2.5)
            peer.say(first)
            self.reactor.advance(0.4)
            self.assertFalse(peer.closed, first)
            self.reactor.advance(0.2)
            self.assertTrue(peer.closed, first)

    def test_deadline(self) -> None:
        """The handshake's deadline is that of the settings."""
        (factory,) = self.factories(handshakeTimeout=3.0)
        peer = Peer(factory)
        self.reactor.advance(2.9)
        self.assertFalse(peer.closed)
        self.reactor.advance(0.2)
        self.assertTrue(peer.closed)
