"""``fleximqtls:`` strings, and what they do to clients."""

import ssl
from pathlib import Path
from typing import Any

from twisted.internet.endpoints import quoteStringArgument, serverFromString
from twisted.internet.interfaces import IStreamServerEndpoint, IStreamServerEndpointStringParser
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import formatEvent
from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.endpoints.endpoint_string import BACKLOG
from fleximq.endpoints.listen import Listen
from fleximq.endpoints.tls_endpoint import LINGER, TlsEndpoint
from fleximq.errors import SettingError
from tests.certificates import Made, makeCertificate, revoke
from tests.endpoints.tls_peers import Echo, TlsPeer
from tests.log_observer import observeLog


class FleximqtlsCase(SynchronousTestCase):
    """A test with certificates of its own."""

    def setUp(self) -> None:
        """The server's certificate, which signs those of clients as well."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.made = makeCertificate(self.folder)
        self.reactor: Any = MemoryReactorClock()
        self.log: list[str] = []
        observeLog(self, self.observe)

    def observe(self, event: Any) -> None:
        """Note what is logged."""
        if event.get("log_namespace") == "fleximq.endpoints.tls_endpoint":
            self.log.append(formatEvent(event))

    def text(self, inner: str = "tcp:1", **named: object) -> str:
        """Return a string with these arguments besides those that it needs."""
        named = {"cert": self.made.both, **named}
        fields = [f"{name}={quoteStringArgument(str(value))}" for name, value in named.items()]
        return ":".join(["fleximqtls", *fields, f"inner={quoteStringArgument(inner)}"])

    def listening(self, **named: object) -> Factory:
        """Return the factory that stands behind the port."""
        Listen.parse(self.text(**named)).open(self.reactor).listen(Factory.forProtocol(Echo))  # type: ignore[arg-type]
        return self.reactor.tcpServers[-1][1]  # type: ignore[no-any-return]

    def client(self, own: Made | None = None, **named: object) -> TlsPeer:
        """Return a client that has not said anything yet."""
        return TlsPeer(self.reactor, self.listening(**named), self.made.trusting(own))


class ParserTests(FleximqtlsCase):
    """Strings, taken and refused."""

    def refused(self, text: str) -> str:
        """Return the reason for which a text is refused."""
        sentence = str(self.assertRaises(SettingError, Listen.parse, text))
        return sentence.removeprefix(f"listen is {text!r}, but ")

    def test_plugIn(self) -> None:
        """Twisted finds it by its name."""
        found = [each for each in getPlugins(IStreamServerEndpointStringParser) if each.prefix == "fleximqtls"]
        self.assertEqual(len(found), 1)
        verifyObject(IStreamServerEndpointStringParser, found[0])
        endpoint = serverFromString(self.reactor, self.text())
        self.assertIsInstance(endpoint, TlsEndpoint)
        verifyObject(IStreamServerEndpoint, endpoint)

    def test_whateverIsInsideListensAsItWouldByItselfWithOurBacklog(self) -> None:
        """Whatever is inside listens as it would by itself, with our backlog."""
        Listen.parse(self.text("tcp:7890:interface=127.0.0.1")).open(self.reactor).listen(Factory())
        Listen.parse(self.text("unix:/x:mode=600")).open(self.reactor).listen(Factory())
        Listen.parse(self.text("haproxy:tcp:7891")).open(self.reactor).listen(Factory())
        self.assertEqual([each[0] for each in self.reactor.tcpServers], [7890, 7891])
        self.assertEqual(self.reactor.tcpServers[0][2:], (BACKLOG, "127.0.0.1"))
        self.assertEqual(self.reactor.unixServers[0][2:], (BACKLOG, 0o600, True))

    def test_whatIsInsideIsKnown(self) -> None:
        """What is inside is known: how it is called, whether a proxy stands there, the socket's path."""
        listen = Listen.parse(self.text("haproxy:unix:/run/a\\:b"))
        self.assertEqual(
            (listen.kind, listen.proxied, listen.socketPath), ("fleximqtls:haproxy:unix", True, "/run/a:b")
        )
        self.assertFalse(Listen.parse(self.text()).proxied)

    def test_whatIsMissingUnknownOrWrongIsOneSentence(self) -> None:
        """What is missing, unknown or wrong is one sentence."""
        for text, reason in {
            "fleximqtls:inner=tcp\\:1": "fleximqtls needs cert=",
            f"fleximqtls:cert={self.made.both}": "fleximqtls needs inner=",
            f"fleximqtls:cert={self.made.both}:inner=tcp:1": "the colons of what stands behind inner= need a "
            "backslash each: inner=tcp\\:1".replace("1", "7890"),
            self.text(ca="x"): "fleximqtls has no argument ca=",
            self.text(clientRequired="no"): "clientRequired= and crl= need clientCA=",
            self.text(crl="x"): "clientRequired= and crl= need clientCA=",
            self.text(clientCA=self.made.both, clientRequired="1"): "clientRequired=1 must be yes or no",
            self.text(clientCA="/no"): "/no cannot be read: no such file or directory",
            self.text(cert="/no"): "/no cannot be read: no such file or directory",
            self.text(
                "foo:1"
            ): "there is no kind of endpoint named 'foo': use tcp:7890, unix:PATH or tls://0.0.0.0:7891",
            self.text(ciphers="AES"[:2]): "'AE' must name suites of TLS 1.2 as OpenSSL does, e.g. "
            "ECDHE+AESGCM:ECDHE+CHACHA20:RSA+AESGCM",
            self.text("tcp:http"): "'http' is not a number",
            self.text("systemd:domain=INET:index=99"): (
                "systemd passed no such socket; sockets need names too: systemd-socket-activate --fdname=NAME"
            ),
            self.text("stdio:"): "TLS cannot be behind stdio",
            "haproxy:" + self.text(): "fleximqtls must come first: a proxy's line stands before TLS, "
            "inner=haproxy\\:tcp\\:7890",
        }.items():
            self.assertEqual(self.refused(text), reason)


class ServerTests(FleximqtlsCase):
    """Who may come in, and what is known of them."""

    def certificateOf(self, peer: TlsPeer) -> str:
        """Return whose certificate the server has seen."""
        return str(peer.inner.transport.getPeerCertificate().get_subject().CN)

    def refusedTls(self, peer: TlsPeer) -> str:
        """Return why a client is not served, in the log's words."""
        self.log.clear()
        with self.assertRaises(ssl.SSLError):
            peer.handshake()
            peer.asked(b"hello")
        peer.exchange()
        self.assertEqual((peer.inner.heard, peer.wire.connected), (b"", False))
        (line,) = self.log
        return line.removeprefix("TLS with 192.0.2.7:50000 failed: ")

    def old(self, suite: str, **named: object) -> TlsPeer:
        """Return a client that speaks only TLS 1.2 with this suite."""
        context = self.made.trusting()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(f"{suite}@SECLEVEL=0")
        return TlsPeer(self.reactor, self.listening(**named), context)

    def test_tls12HasForwardSecrecyAndAuthenticatedEncryption(self) -> None:
        """TLS 1.2 has forward secrecy and authenticated encryption; others need an option."""
        for name in ("AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"):
            suite = f"ECDHE-ECDSA-{name}"
            peer = self.old(suite)
            self.assertEqual(peer.nameShown(), "localhost")
            self.assertEqual((peer.tls.cipher() or [""])[0], suite)
        for suite in ("ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-AES128-CCM"):
            self.assertEqual(self.refusedTls(self.old(suite)), "no shared cipher")
            self.assertEqual(self.old(suite, ciphers=f"ECDHE+AESGCM:{suite}").nameShown(), "localhost")

    def test_bytesGoToAndFro(self) -> None:
        """Bytes go to and fro; without clientCA= nobody is asked for a certificate."""
        peer = self.client()
        self.assertEqual(peer.nameShown(), "localhost")
        self.assertEqual(peer.asked(b"hello"), b"hello")
        self.assertIsNone(peer.inner.transport.getPeerCertificate())
        self.assertEqual(peer.inner.transport.getPeer().host, "192.0.2.7")

    def test_clientCertificate(self) -> None:
        """A certificate that an authority has signed lets in, and is known to what is served."""
        peer = self.client(makeCertificate(self.folder, "alice", self.made), clientCA=self.made.certificate)
        peer.handshake()
        self.assertEqual(peer.asked(b"hello"), b"hello")
        self.assertEqual(self.certificateOf(peer), "alice")

    def test_withoutOneNobodyComesInUnlessThatIsAllowed(self) -> None:
        """Without one nobody comes in, unless that is allowed."""
        self.assertEqual(
            self.refusedTls(self.client(clientCA=self.made.certificate)), "peer did not return a certificate"
        )
        peer = self.client(clientCA=self.made.certificate, clientRequired="no")
        peer.handshake()
        self.assertEqual(peer.asked(b"hello"), b"hello")
        self.assertIsNone(peer.inner.transport.getPeerCertificate())

    def test_foreign(self) -> None:
        """A certificate of another authority, or one that is over, is refused even where none would do."""
        other = makeCertificate(self.folder, "other")
        foreign = makeCertificate(self.folder, "mallory", other)
        over = makeCertificate(self.folder, "late", self.made, hours=-1)
        for own in (foreign, other, over):
            for required in ("yes", "no"):
                peer = self.client(own, clientCA=self.made.certificate, clientRequired=required)
                self.assertEqual(self.refusedTls(peer), "certificate verify failed")

    def test_oneThatWasTakenBackIsRefusedOthersAreNot(self) -> None:
        """One that was taken back is refused, the others are not."""
        alice = makeCertificate(self.folder, "alice", self.made)
        mallory = makeCertificate(self.folder, "mallory", self.made)
        named = {"clientCA": self.made.certificate, "crl": revoke(self.folder, self.made, mallory)}
        peer = self.client(alice, **named)
        peer.handshake()
        self.assertEqual(peer.asked(b"hello"), b"hello")
        self.assertEqual(self.refusedTls(self.client(mallory, **named)), "certificate verify failed")

    def test_revokedLater(self) -> None:
        """A list that changes counts from the next handshake on; there are no sessions to take up again."""
        alice = makeCertificate(self.folder, "alice", self.made)
        factory = self.listening(clientCA=self.made.certificate, crl=revoke(self.folder, self.made))
        context = self.made.trusting(alice)
        first = TlsPeer(self.reactor, factory, context)
        first.handshake()
        self.assertEqual(first.asked(b"hello"), b"hello")
        revoke(self.folder, self.made, alice)
        self.reactor.advance(1)
        self.assertEqual(self.refusedTls(TlsPeer(self.reactor, factory, context)), "certificate verify failed")
        self.assertEqual(first.asked(b"again"), b"again")

    def test_whoStandsInClientCAIsTrustedThoughSomebodyElseSignedIt(self) -> None:
        """Who stands in clientCA= is trusted, though somebody else signed it."""
        alice = makeCertificate(self.folder, "alice", self.made)
        peer = self.client(alice, clientCA=alice.certificate)
        peer.handshake()
        self.assertEqual(self.certificateOf(peer), "alice")

    def test_oldVersions(self) -> None:
        """TLS 1.2 is spoken, nothing older."""
        context = self.made.trusting()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        peer = TlsPeer(self.reactor, self.listening(), context)
        peer.handshake()
        self.assertEqual((peer.asked(b"hello"), peer.tls.version()), (b"hello", "TLSv1.2"))
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        self.assertEqual(self.refusedTls(TlsPeer(self.reactor, self.listening(), context)), "unsupported protocol")

    def test_fewLines(self) -> None:
        """Ten failed handshakes a second are logged; later the log says how many were left out."""
        factory = self.listening()
        for _ in range(20):
            TlsPeer(self.reactor, factory, self.made.trusting()).server.dataReceived(b"PING:\n" * 10)
            self.reactor.advance(0)
        self.assertEqual(len(self.log), 10)
        self.reactor.advance(1)
        TlsPeer(self.reactor, factory, self.made.trusting()).server.dataReceived(b"PING:\n" * 10)
        self.reactor.advance(0)
        self.assertTrue(self.log[-1].endswith(" (10 more lines left out)"))

    def test_noTls(self) -> None:
        """Who speaks something else is told nothing of a dialect, and the log says it."""
        peer = self.client()
        peer.server.dataReceived(b"PING:\n" * 10)
        self.reactor.advance(0)
        self.assertEqual((peer.inner.heard, peer.wire.connected), (b"", False))
        self.assertIn("TLS with 192.0.2.7:50000 failed: ", self.log[0])

    def test_closesWithoutAnswer(self) -> None:
        """A peer that says nothing to a closed connection is cut off."""
        peer = self.client()
        peer.handshake()
        peer.inner.transport.loseConnection()
        self.reactor.advance(LINGER - 1)
        self.assertTrue(peer.wire.connected)
        self.reactor.advance(1)
        self.reactor.advance(0)
        self.assertEqual((peer.wire.aborted, peer.wire.connected), (True, False))

    def test_closesAtOnce(self) -> None:
        """With an answer, or before the handshake, it is gone at once, and nothing is timed any more."""
        peer = self.client()
        peer.handshake()
        peer.inner.transport.loseConnection()
        peer.exchange()
        self.assertEqual(peer.tls.read(1), b"")
        peer.tls.unwrap()
        peer.exchange()
        self.assertFalse(peer.wire.connected)
        half = self.client()
        half.inner.transport.loseConnection()
        self.reactor.advance(0)
        self.assertEqual((half.wire.aborted, half.wire.connected), (True, False))
        self.assertEqual(self.reactor.getDelayedCalls(), [])
