"""What stands behind each kind of listener."""

from functools import partial
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.http.routing.origins import Origins
from fleximq.endpoints.listen import DIALECTS, Listen, ListenDefaults
from fleximq.services.network.listener_factory import ListenerDialects, factoryOf
from fleximq.web.site import WebSite
from tests.dialects.admissions import OPEN
from tests.dialects.conversations import makeContext

LOCAL = IPv4Address("TCP", "127.0.0.1", 50000)
UPGRADE = (
    b"GET %b HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Named(Protocol):
    """Writes its factory's name when it gets anything."""

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(self.factory.name)  # type: ignore[union-attr]


def named(name: bytes) -> Any:
    """Return a factory with a name."""
    factory: Any = Factory.forProtocol(Named)
    factory.name = name
    factory.noisy = False
    return factory


def spoken(only: str | None) -> ListenerDialects:
    """Return dialects that only say their name, ``plus`` and ``both`` beside the broker's own."""
    return ListenerDialects(
        {
            name: named(name.encode())
            for name in ("fleximq", "blipmq", "minimq", "plus", "both")
            if only in (None, name)
        },
        {name: named(name.encode() + b" web") for name in ("fleximq", "identity", "both") if only in (None, name)},
        {b"+": "plus"} if only in (None, "plus") else {},
        (),
    )


class NodeFactoryTests(SynchronousTestCase):
    """Which dialect answers which first bytes."""

    def answers(self, listen: str, *firsts: bytes) -> list[bytes]:
        """Return who answers, for each of these beginnings of a connection; HTTP answers only by its status."""
        reactor: Any = MemoryReactorClock()
        place = Listen.parse(listen, ListenDefaults(dialects=(*DIALECTS, "plus", "both")))
        context = makeContext(reactor, admission=OPEN)
        factory = factoryOf(place, spoken(place.dialect), context, OPEN, Origins(), partial(WebSite, reactor))
        said = []
        for first in firsts:
            protocol: Any = factory.buildProtocol(LOCAL)
            transport = StringTransport(peerAddress=LOCAL)
            protocol.makeConnection(transport)
            protocol.dataReceived(first)
            said.append(transport.value().split(b"\r\n")[0])
        return said

    def test_all(self) -> None:
        """Without a dialect every one is found."""
        self.assertEqual(
            self.answers(
                "tcp:0", b"\x01", b"\x00", b"PING:", UPGRADE % b"/ws", UPGRADE % b"/", b"GET / HTTP/1.0\r\n\r\n", b"x"
            ),
            [b"fleximq", b"blipmq", b"minimq", b"fleximq web", b"identity web", b"HTTP/1.0 200 OK", b""],
        )

    def test_fleximq(self) -> None:
        """A listener for FlexiMQ gives it all that is not HTTP, and its own WebSockets."""
        self.assertEqual(
            self.answers("fleximq+tcp:0", b"\x01", b"\x00", b"PING:", UPGRADE % b"/ws", UPGRADE % b"/"),
            [b"fleximq", b"fleximq", b"fleximq", b"fleximq web", b"HTTP/1.1 404 Not Found"],
        )

    def test_streams(self) -> None:
        """A listener for BlipMQ or MiniMQ gives it everything but what a browser can be made to send."""
        post = b"POST / HTTP/1.1\r\nHost: x\r\n\r\nPRODUCE:t:x\n"
        for name in ("blipmq", "minimq"):
            for place in ("tcp:0", "unix:/run/x", "haproxy:tcp:0"):
                self.assertEqual(
                    self.answers(
                        f"{name}+{place}", b"\x01", b"\x00", b"ping:", UPGRADE % b"/", post, b"\x16\x03\nPRODUCE:t:x\n"
                    ),
                    [name.encode()] * 3 + [b""] * 3,
                )

    def test_identity(self) -> None:
        """A listener for Identity speaks HTTP only."""
        self.assertEqual(
            self.answers(
                "identity+tcp:0", UPGRADE % b"/", UPGRADE % b"/ws", b"GET / HTTP/1.0\r\n\r\n", b"\x01\r\n\r\n"
            ),
            [b"identity web", b"HTTP/1.1 404 Not Found", b"HTTP/1.0 200 OK", b"HTTP/1.1 400 Bad Request"],
        )

    def test_plugIns(self) -> None:
        """A plug-in's dialect is found by the beginning that it claims, its WebSockets by their subprotocol."""
        offer = UPGRADE[:-2] + b"Sec-WebSocket-Protocol: both\r\n\r\n"
        self.assertEqual(self.answers("tcp:0", b"+", b"-", offer % b"/"), [b"plus", b"", b"both web"])

    def test_onePlugIn(self) -> None:
        """A listener for one gives it everything but that, as with the broker's own."""
        self.assertEqual(self.answers("plus+tcp:0", b"+", b"\x01", UPGRADE % b"/"), [b"plus", b"plus", b""])
        self.assertEqual(
            self.answers("both+tcp:0", b"+", b"\x01", UPGRADE % b"/"), [b"both", b"both", b"HTTP/1.1 404 Not Found"]
        )

    def test_webSocketsOnly(self) -> None:
        """A ws:// URL is for HTTP only; with a path there are WebSockets on no other."""
        self.assertEqual(
            self.answers("ws://*:0", UPGRADE % b"/ws", UPGRADE % b"/", b"GET / HTTP/1.0\r\n\r\n", b"PING:\r\n\r\n"),
            [b"fleximq web", b"identity web", b"HTTP/1.0 200 OK", b"HTTP/1.1 400 Bad Request"],
        )
        self.assertEqual(
            self.answers("ws://*:0/ws", UPGRADE % b"/ws", UPGRADE % b"/", b"GET / HTTP/1.0\r\n\r\n"),
            [b"fleximq web", b"HTTP/1.1 404 Not Found", b"HTTP/1.0 200 OK"],
        )

    def test_stdio(self) -> None:
        """Standard input is for streams only."""
        self.assertEqual(
            self.answers("stdio:", b"\x01", b"\x00", b"PING:", UPGRADE % b"/ws"),
            [b"fleximq", b"blipmq", b"minimq", b""],
        )
        self.assertEqual(self.answers("minimq+stdio:", b"\x01"), [b"minimq"])
