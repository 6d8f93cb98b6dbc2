"""Answers that do not end, from real servers on loopback."""

from pathlib import Path
from typing import Any

from twisted.internet.defer import inlineCallbacks
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from fleximq.endpoints.tls_context import TlsFiles, serverContext
from fleximq.security.checkers import remote_keys, web_service
from fleximq.security.checkers.bounded_agent import MAX_RECEIVED_BYTES, TOO_LARGE, agentOf, reasonOf
from fleximq.security.checkers.remote_keys import KeySource, RemoteKeys
from fleximq.security.checkers.web_options import trusting
from fleximq.security.checkers.web_service import Service, WebService, body
from fleximq.security.credentials import Token
from tests.broker_process import PATIENCE
from tests.certificates import makeCertificate

OK = b"HTTP/1.1 200 OK\r\n"
#: Answers, as a beginning and a part that is repeated for ever.
ENDLESS = {
    "fields": (OK, b"X-Field: value\r\n" * 1000),
    "a field in lines": (OK + b"X: a\r\n", b" more\r\n" * 1000),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 500),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 900 + b"\r\na\r\n"),
    "a body": (OK + b"Content-Length: 100000000\r\n\r\n", b"x" * 10_000),
}


class Endless(Protocol):
    """Answers a request without an end, as fast as it is read."""

    factory: Any
    sent = 0

    def dataReceived(self, data: bytes) -> None:
        """Begin."""
        if b"\r\n\r\n" in data and not self.sent:
            transport: Any = self.transport
            transport.write(self.factory.beginning)
            if self.factory.part:
                transport.registerProducer(self, False)
            else:
                transport.loseConnection()

    def resumeProducing(self) -> None:
        """Go on."""
        transport: Any = self.transport
        self.sent += len(self.factory.part)
        transport.write(self.factory.part)

    def stopProducing(self) -> None:
        """The client has gone."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Count."""
        self.factory.lost += 1


def _reactor() -> Any:
    from twisted.internet import reactor

    return reactor


class BoundedAgentTests(TestCase):
    """What is given up, and what is not."""

    def listen(self, beginning: bytes, part: bytes, tls: Any = None) -> str:
        """Serve on loopback and return the address."""
        self.reactor = _reactor()
        server: Any = Factory.forProtocol(Endless)
        server.beginning, server.part, server.lost, server.noisy = beginning, part, 0, False
        self.server = server
        listen = self.reactor.listenTCP if tls is None else lambda *a, **k: self.reactor.listenSSL(*a, tls, **k)
        port = listen(0, self.server, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return f"127.0.0.1:{port.getHost().port}"

    @inlineCallbacks
    def test_answerThatIsTooLargeAnywhereIsGivenUpAndItsConnectionClosed(self) -> Any:
        """An answer that is too large anywhere is given up, and its connection closed."""
        self.patch(remote_keys, "TIMEOUT", PATIENCE)
        for what, (beginning, part) in ENDLESS.items():
            place = self.listen(beginning, part)
            complaints: list[str] = []
            log = type("L", (), {"error": lambda _, text, reason, to=complaints, **more: to.append(reason)})()
            self.patch(web_service, "_log", log)
            self.patch(remote_keys, "_log", log)
            checker = WebService(Service(f"http://{place}/", PATIENCE, 0.0))
            checker.useReactor(self.reactor)
            keys = RemoteKeys(KeySource(f"http://{place}/keys"))
            keys.useReactor(self.reactor)
            waiting: list[Any] = [checker.requestAvatarId(Token("t")), keys.refreshed(False)]
            for asked in waiting:
                yield self.assertFailure(asked, Exception)
            self.assertEqual(complaints, [TOO_LARGE] * 2, what)

    @inlineCallbacks
    def test_whole(self) -> Any:
        """An answer within the limit is read, also in TLS that an authority of ours vouches for."""
        folder = Path(self.mktemp())
        folder.mkdir()
        made = makeCertificate(folder)
        field = b"X: " + b"v" * 1000 + b"\r\n"
        answer = OK + field * 100 + b"Content-Length: 4\r\n\r\nbody"
        for tls in (None, serverContext(TlsFiles(str(made.both)))):
            place = self.listen(answer, b"", tls)
            agent = agentOf(self.reactor, PATIENCE, trusting(str(made.certificate)))
            response = yield agent.request(b"GET", f"{'http' if tls is None else 'https'}://{place}/".encode())
            found = yield body(response)
            self.assertEqual((response.code, found), (200, b"body"))
            self.assertLess(len(answer), MAX_RECEIVED_BYTES)
            while not self.server.lost:
                yield deferLater(self.reactor, 0)
            yield deferLater(self.reactor, 0)

    @inlineCallbacks
    def test_serverThatNobodyVouchesForIsNotAsked(self) -> Any:
        """A server that nobody vouches for is not asked."""
        folder = Path(self.mktemp())
        folder.mkdir()
        place = self.listen(OK, b"", serverContext(TlsFiles(str(makeCertificate(folder).both))))
        asked = agentOf(self.reactor, PATIENCE, None).request(b"GET", f"https://{place}/".encode())
        error = yield self.assertFailure(asked, Exception)
        self.assertEqual(reasonOf(error), "ResponseNeverReceived")

    @inlineCallbacks
    def test_portThatNobodyServesIsErrorOfConnection(self) -> Any:
        """A port that nobody serves is an error of the connection."""
        reactor = _reactor()
        port = reactor.listenTCP(0, Factory(), interface="127.0.0.1")
        place = f"127.0.0.1:{port.getHost().port}"
        yield port.stopListening()
        asked = agentOf(reactor, PATIENCE, None).request(b"GET", f"http://{place}/".encode())
        error = yield self.assertFailure(asked, ConnectionRefusedError)
        self.assertEqual(reasonOf(error), "ConnectionRefusedError")
