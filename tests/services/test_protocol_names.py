"""TLS clients that name protocols in their handshake (ALPN), as browsers, Prometheus and curl do."""

import ssl
from pathlib import Path
from typing import Any

from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IProtocolNegotiationFactory
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.endpoints.listen import Listen
from fleximq.limits import Limits
from fleximq.services.network.connection_limit import ConnectionLimit
from tests.certificates import makeCertificate
from tests.endpoints.tls_peers import Echo, TlsPeer


class ProtocolNamesTests(SynchronousTestCase):
    """Handshakes with a listener of the broker's."""

    def setUp(self) -> None:
        """What a listener is given."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        self.made = makeCertificate(folder)
        self.reactor: Any = MemoryReactorClock()
        connectionLimit = ConnectionLimit(Clock(), Limits(), lambda: 0, lambda event, number: None)
        self.factory: Any = connectionLimit.limited(Factory.forProtocol(Echo))

    def chosen(self, listening: Any, *names: str) -> str | None:
        """Return which of the client's names the server has chosen, once both have spoken."""
        context = self.made.trusting()
        if names:
            context.set_alpn_protocols(list(names))
        peer = TlsPeer(self.reactor, listening, context)
        peer.handshake()
        self.assertEqual(peer.asked(b"hello"), b"hello")
        return peer.tls.selected_alpn_protocol()

    def ours(self) -> Any:
        """Return what listens for ``fleximqtls:``."""
        Listen.parse(f"fleximqtls:cert={self.made.both}:inner=tcp\\:1").open(self.reactor).listen(self.factory)
        return self.reactor.tcpServers[-1][1]

    def test_factory(self) -> None:
        """Twisted can ask the broker's factory."""
        verifyObject(IProtocolNegotiationFactory, self.factory)

    def test_http(self) -> None:
        """A client of HTTP gets HTTP/1.1, though it would like HTTP/2 better."""
        self.assertEqual(self.chosen(self.ours(), "h2", "http/1.1"), "http/1.1")
        self.assertEqual(self.chosen(self.ours(), "http/1.1"), "http/1.1")

    def test_noNames(self) -> None:
        """A client that names none is served as well."""
        self.assertIsNone(self.chosen(self.ours()))

    def test_others(self) -> None:
        """One that names only what is not spoken here is refused in the handshake."""
        self.assertRaises(ssl.SSLError, self.chosen, self.ours(), "h2")

    def test_twistedsOwn(self) -> None:
        """It is so behind Twisted's ``ssl:`` too."""
        text = f"ssl:1:privateKey={self.made.key}:certKey={self.made.certificate}"
        serverFromString(self.reactor, text).listen(self.factory)
        _, factory, context, _, _ = self.reactor.sslServers[-1]
        listening = TLSMemoryBIOFactory(context, False, factory, self.reactor)
        self.assertEqual(self.chosen(listening, "h2", "http/1.1"), "http/1.1")
