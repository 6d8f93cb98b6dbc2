"""HTTP connections at the door, with a recording web site and recording WebSocket dialects, and with real ones."""

from collections import Counter
from typing import Any

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import formatEvent
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.connection.protocol_detection import SniffingFactory
from fleximq.dialects.http.format.request_head import FIELDS, HEAD_BYTES
from fleximq.dialects.http.routing.origins import Origins
from fleximq.dialects.http.routing.request_router import RequestRouter, RequestRouterFactory
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.anonymous_access import REFUSAL
from fleximq.web.site import WebSite
from fleximq.web.welcome_page import WelcomeEntry
from tests.dialects.admissions import OPEN
from tests.log_observer import observeLog
from tests.processor_time import processorSeconds

LOCAL = IPv4Address("TCP", "127.0.0.1", 50000)
REMOTE = IPv4Address("TCP", "192.0.2.7", 50000)


def request(line: str = "GET / HTTP/1.1", *fields: str) -> bytes:
    """Return the bytes of a request."""
    return "\r\n".join((line, "Host: 127.0.0.1:7890", *fields, "", "")).encode()


def upgrade(path: str = "/", *fields: str) -> bytes:
    """Return the bytes of a WebSocket's opening handshake."""
    return request(
        f"GET {path} HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", *fields,
    )  # fmt: skip


class Recorder(Protocol):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.received = b""

    def dataReceived(self, data: bytes) -> None:
        self.received += data


class RecorderFactory(Factory[Recorder]):
    """Keeps its protocols."""

    noisy = False

    def __init__(self) -> None:
        self.built: list[Recorder] = []

    def buildProtocol(self, addr: object) -> Recorder:
        self.built.append(Recorder())
        return self.built[-1]


class RoutingTests(SynchronousTestCase):
    """Who is let through, and where to."""

    security = AccessPolicy()
    origins = Origins()
    offered: tuple[str, ...] = ("fleximq", "identity")

    def setUp(self) -> None:
        """A door behind which everybody only records."""
        self.clock = Clock()
        self.counts: Counter[str] = Counter()
        self.site = RecorderFactory()
        self.webSockets = {name: RecorderFactory() for name in self.offered}
        self.factory = RequestRouterFactory(
            self.webSockets, self.site, self.security.admissionFor(),
            self.security.admissionFor(proxied=True), self.origins, self.clock, 10.0,
            lambda event, n: self.counts.update({event: n}),
        )  # fmt: skip

    def connect(self, peer: object = LOCAL) -> tuple[RequestRouter, StringTransport]:
        """Return a new connection, and its transport."""
        door = self.factory.buildProtocol(None)
        transport = StringTransport(peerAddress=peer)
        door.makeConnection(transport)
        return door, transport

    def reached(self) -> dict[str, bytes]:
        """Return what got through, by where it went."""
        behind = {"site": self.site, **self.webSockets}
        return {name: each.built[0].received for name, each in behind.items() if each.built}

    def answer(self, data: bytes, peer: object = LOCAL) -> bytes:
        """Return what a request is answered at the door, b"" if it got through."""
        door, transport = self.connect(peer)
        door.dataReceived(data)
        self.assertEqual(bool(transport.value()), transport.disconnecting)
        answer: bytes = transport.value()
        return answer

    def code(self, data: bytes, peer: object = LOCAL) -> int:
        """Return the status of an answer of the door, 0 if the request got through."""
        answer = self.answer(data, peer)
        return int(answer.split(b" ", 2)[1]) if answer else 0


class WhereToTests(RoutingTests):
    """What goes where."""

    def test_page(self) -> None:
        """What asks for no WebSocket goes to the site, whole, whatever follows it."""
        data = request("POST /x HTTP/1.1", "Content-Length: 3") + b"abc"
        self.answer(data)
        self.assertEqual(self.reached(), {"site": data})

    def test_webSockets(self) -> None:
        """WebSockets go to the dialect of their path or subprotocol, with the frames that came along."""
        for data, dialect in (
            (upgrade("/") + b"\x81\x80", "identity"),
            (upgrade("/ws") + b"\x82\x80", "fleximq"),
            (upgrade("/", "Sec-WebSocket-Protocol: fleximq"), "fleximq"),
            (upgrade("/messaging", "Sec-WebSocket-Protocol: identity"), "identity"),
        ):
            self.setUp()
            self.answer(data)
            self.assertEqual(self.reached(), {dialect: data})

    def test_everySplit(self) -> None:
        """Nothing is lost wherever a request is cut."""
        data = upgrade("/ws") + b"\x82\x80more"
        for cut in range(len(data) + 1):
            self.setUp()
            door, _ = self.connect()
            door.dataReceived(data[:cut])
            door.dataReceived(data[cut:])
            self.assertEqual(self.reached(), {"fleximq": data}, cut)
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_later(self) -> None:
        """What comes later goes the same way."""
        door, _ = self.connect()
        door.dataReceived(upgrade("/"))
        door.dataReceived(b"later")
        self.assertEqual(self.reached(), {"identity": upgrade("/") + b"later"})

    def test_behindSniffing(self) -> None:
        """On a shared port too, reads reach the last protocol directly once it is known."""
        outer = SniffingFactory({}, self.factory, self.clock, 10.0).buildProtocol(None)
        outer.makeConnection(StringTransport(peerAddress=LOCAL))
        for byte in upgrade("/"):
            outer.dataReceived(bytes([byte]))
        inner = self.webSockets["identity"].built[0]
        self.assertEqual((inner.received, outer.dataReceived), (upgrade("/"), inner.dataReceived))

    def test_startAndStop(self) -> None:
        """The factories behind the door run as long as a port of it does."""
        self.factory.doStart()
        self.assertEqual([each.numPorts for each in (self.site, *self.webSockets.values())], [1] * 3)
        self.factory.doStop()
        self.assertEqual([each.numPorts for each in (self.site, *self.webSockets.values())], [0] * 3)


class OneDialectTests(RoutingTests):
    """The door of a listener for Identity alone."""

    offered = ("identity",)

    def test_other(self) -> None:
        """The other dialect's path is not found, its subprotocol not allowed."""
        self.assertEqual(self.code(upgrade("/ws")), 404)
        self.assertEqual(self.code(upgrade("/", "Sec-WebSocket-Protocol: fleximq")), 403)
        self.assertEqual(self.code(upgrade("/")), 0)


class RefusalTests(RoutingTests):
    """Who stays outside."""

    def test_remote(self) -> None:
        """A remote peer is told why, for pages as for WebSockets, and the log names the option."""
        for data in (request(), upgrade("/ws")):
            answer = self.answer(data, REMOTE)
            self.assertTrue(answer.startswith(b"HTTP/1.1 403 Forbidden\r\n"), answer)
            self.assertTrue(answer.endswith(f"\r\n\r\n{REFUSAL}\n".encode()), answer)
        self.assertEqual((self.reached(), self.counts), ({}, {"refused: HTTP 403": 2}))

    def test_proxy(self) -> None:
        """A local peer that speaks for somebody else is as good as remote."""
        for field in ("Forwarded: for=192.0.2.1", "X-Forwarded-For: 127.0.0.1", "Via: 1.1 x", "x-real-ip: 127.0.0.1"):
            self.assertEqual(self.code(request("GET / HTTP/1.1", field)), 403, field)
            self.assertEqual(self.code(upgrade("/ws", field)), 403, field)

    def test_fewLines(self) -> None:
        """Ten refusals a second are logged for each status; later the log says how many were left out."""
        lines: list[str] = []
        observeLog(self, lambda event: lines.append(formatEvent(event)))
        for data in (b"GET\r\n\r\n", upgrade("/", "Origin: https://example.com")) * 50:
            self.answer(data)
        self.assertEqual((len(lines), self.counts.total()), (20, 100))
        self.clock.advance(1)
        self.answer(b"GET\r\n\r\n")
        self.assertTrue(lines[20].endswith(" (40 more lines left out)"))

    def test_budget(self) -> None:
        """Heads of all connections together are bounded; the one that asks for more is refused with 503."""
        self.factory.unadmitted.limit = 10_000
        (one, first), (two, second) = self.connect(), self.connect()
        for door in (one, two):
            door.dataReceived(b"GET / HTTP/1.1\r\nX: " + bytes(8000))
        self.assertEqual((first.disconnecting, second.value().split(b" ")[1]), (False, b"503"))
        for door in (one, two):
            door.connectionLost()
        self.assertEqual(self.factory.unadmitted.used, 0)

    def test_origin(self) -> None:
        """A foreign page gets no WebSocket of either dialect, though it gets the page."""
        for path in ("/", "/ws"):
            self.assertEqual(self.code(upgrade(path, "Origin: https://evil.example")), 403, path)
            self.assertEqual(self.code(upgrade(path, "Origin: null")), 0, path)
            self.assertEqual(self.code(upgrade(path, "Origin: http://localhost:3000")), 0, path)
        self.assertEqual(self.code(request("GET / HTTP/1.1", "Origin: https://evil.example")), 0)

    def test_postOrigin(self) -> None:
        """A foreign page may post nothing, and neither may another page of this machine."""
        for origin in ("https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:7891"):
            self.assertEqual(self.code(request("POST / HTTP/1.1", f"Origin: {origin}")), 403, origin)
        for field in ("Origin: http://127.0.0.1:7890", "Origin: https://127.0.0.1:7890", "Sec-Fetch-Site: none"):
            self.assertEqual(self.code(request("POST / HTTP/1.1", field)), 0, field)

    def test_rebinding(self) -> None:
        """Where only this machine is served, pages are not read by a foreign name, which may have been bent to it."""
        for host, code in (("evil.example:7890", 403), ("\xff", 403), ("localhost", 0), ("127.0.0.1:7890", 0)):
            for method in ("GET", "POST"):
                data = f"{method} /api/about HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1")
                self.assertEqual(self.code(data), code, host)
        self.assertEqual(self.code(b"GET / HTTP/1.0\r\n\r\n"), 0)
        self.assertEqual(self.code(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"), 400)
        self.assertEqual(
            self.code(upgrade("/", "Origin: http://evil.example:7890").replace(b"127.0.0.1", b"evil.example")), 403
        )

    def test_twoOrigins(self) -> None:
        """Two origins are none."""
        self.assertEqual(self.code(upgrade("/", "Origin: null", "Origin: null")), 400)

    def test_form(self) -> None:
        """The answer tells its length and its end, and says no more than its sentence."""
        self.assertEqual(
            self.answer(request("GET / HTTP/3.0")),
            b"HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            b"Cross-Origin-Resource-Policy: same-origin\r\n"
            b"Content-Security-Policy: default-src 'none'; frame-ancestors 'none'; sandbox\r\n"
            b"Content-Length: 43\r\nConnection: close\r\n\r\nonly HTTP/1.0 and HTTP/1.1 are spoken here\n",
        )

    def test_head(self) -> None:
        """HEAD is answered without the sentence."""
        answer = self.answer(request("HEAD / HTTP/1.1"), REMOTE)
        self.assertTrue(answer.startswith(b"HTTP/1.1 403 "))
        self.assertTrue(answer.endswith(b"\r\n\r\n"))

    def test_malformed(self) -> None:
        """What is no HTTP is 400."""
        self.assertEqual(self.code(b"\xff\xfe\r\n\r\n"), 400)

    def test_afterwards(self) -> None:
        """After an answer nothing more is read."""
        door, transport = self.connect()
        door.dataReceived(b"x\r\n\r\n")
        before = transport.value()
        door.dataReceived(upgrade("/"))
        self.assertEqual((transport.value(), self.reached()), (before, {}))


class AllowedTests(RoutingTests):
    """A door that is opened knowingly."""

    security = AccessPolicy(allowAnonymous=True)
    origins = Origins(frozenset({"https://example.com"}), namesTrusted=True)

    def test_allowed(self) -> None:
        """Remote peers, proxies and added origins come in."""
        self.assertEqual(self.code(upgrade("/", "Origin: https://example.com", "Via: 1.1 x"), REMOTE), 0)
        self.assertEqual(self.code(upgrade("/", "Origin: https://example.org"), REMOTE), 403)


class BoundTests(RoutingTests):
    """How long a head may be, in bytes and in seconds."""

    def padded(self, size: int) -> bytes:
        """Return a request of this size."""
        bare = request("GET / HTTP/1.1", "X: ")
        return request("GET / HTTP/1.1", "X: " + "x" * (size - len(bare)))

    def test_size(self) -> None:
        """At most 16 KiB with its empty line, at once or byte by byte."""
        for size, code in ((HEAD_BYTES - 1, 0), (HEAD_BYTES, 0), (HEAD_BYTES + 1, 431)):
            data = self.padded(size)
            self.assertEqual((len(data), self.code(data)), (size, code))
            door, transport = self.connect()
            for byte in data:
                door.dataReceived(bytes([byte]))
            self.assertEqual(transport.value().startswith(b"HTTP/1.1 431 "), bool(code))

    def test_fields(self) -> None:
        """At most 100 fields, equal ones too, are looked at, in linear time; more are 431."""
        for number, code in ((FIELDS - 1, 0), (FIELDS, 431), (4_000, 431)):
            self.assertEqual(self.code(request("GET / HTTP/1.1", *["a:"] * number)), code, number)

    def test_blanks(self) -> None:
        """A field of blanks costs linear time, also if it turns out to be malformed: here 1 s once."""
        data = request("GET / HTTP/1.1", "A:" + " \t" * 8000 + "\x01")
        self.assertEqual(self.code(data), 400)
        self.assertLess(processorSeconds(lambda: self.code(data)), 0.2)

    def test_endless(self) -> None:
        """A head without an end is refused when it is full."""
        door, transport = self.connect()
        door.dataReceived(b"A" * (HEAD_BYTES - 1))
        self.assertEqual(transport.value(), b"")
        door.dataReceived(b"A")
        self.assertTrue(transport.value().startswith(b"HTTP/1.1 431 "))

    def test_deadline(self) -> None:
        """A head that is not there in time is 408."""
        door, transport = self.connect()
        for _ in range(10):
            self.assertFalse(transport.disconnecting)
            door.dataReceived(b"G")
            self.clock.advance(1)
        self.assertTrue(transport.value().startswith(b"HTTP/1.1 408 "))
        door.dataReceived(b"\r\n\r\n")
        self.assertEqual(self.counts, {"refused: HTTP 408": 1})

    def test_restOfDeadline(self) -> None:
        """Behind the sniffing only the rest of the time is left."""
        outer = SniffingFactory({}, self.factory, self.clock, 10.0).buildProtocol(None)
        transport = StringTransport(peerAddress=LOCAL)
        outer.makeConnection(transport)
        outer.dataReceived(b"GET")
        self.clock.advance(7)
        outer.dataReceived(b" /")
        self.clock.advance(2.5)
        self.assertFalse(transport.disconnecting)
        self.clock.advance(0.5)
        self.assertTrue(transport.disconnecting)

    def test_silent(self) -> None:
        """A connection that never said anything is closed without an answer, and counted."""
        _, transport = self.connect()
        self.clock.advance(10)
        self.assertEqual(self.counts, {"refused: said nothing before the handshake deadline": 1})
        self.assertEqual((transport.value(), transport.disconnecting), (b"", True))

    def test_flood(self) -> None:
        """A hundred at once cause ten lines."""
        lines: list[Any] = []
        observeLog(self, lines.append)
        for _ in range(100):
            self.connect()
        self.clock.advance(10)
        self.assertEqual(len([each for each in lines if "before the handshake" in each["log_format"]]), 10)

    def test_lost(self) -> None:
        """A connection that is gone leaves no timer."""
        door, _ = self.connect()
        door.connectionLost()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class RealTests(SynchronousTestCase):
    """The door before Autobahn and twisted.web."""

    def exchange(self, data: bytes) -> tuple[bytes, bool]:
        """Return what is answered, and whether the connection was closed."""
        reactor: Any = MemoryReactorClock()
        webSocket = WebSocketServerFactory(reactor=reactor, protocols=["fleximq"])
        webSocket.protocol = WebSocketServerProtocol
        webSocket.setProtocolOptions(openHandshakeTimeout=0, allowNullOrigin=True)
        site = WebSite(reactor, [WelcomeEntry("FlexiMQ", "messages", "{web}/ws")])
        door = RequestRouterFactory({"fleximq": webSocket}, site, OPEN, OPEN, Origins(), reactor, 10.0)
        protocol = SniffingFactory({}, door, reactor, 10.0).buildProtocol(None)
        transport = StringTransport(peerAddress=LOCAL)
        protocol.makeConnection(transport)
        for byte in data:
            protocol.dataReceived(bytes([byte]))
        return transport.value(), transport.disconnecting

    def test_webSocket(self) -> None:
        """Autobahn completes the handshake that RFC 6455 shows."""
        answer, closed = self.exchange(upgrade("/ws", "Origin: null"))
        self.assertTrue(answer.startswith(b"HTTP/1.1 101 "), answer)
        self.assertIn(b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", answer)
        self.assertFalse(closed)

    def test_page(self) -> None:
        """twisted.web answers the page and closes."""
        answer, closed = self.exchange(request())
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer)
        self.assertIn(b"\r\nConnection: close\r\n", answer)
        self.assertTrue(closed)
