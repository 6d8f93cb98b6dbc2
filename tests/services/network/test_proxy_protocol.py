"""Connections that a proxy passes on, with Twisted's own reading of the PROXY header before the door."""

import struct
from dataclasses import replace
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from fleximq.config.rate_options import Rate
from fleximq.config.settings import Settings
from fleximq.limits import Limits
from fleximq.security.peer_address import addressKey
from fleximq.security.rates.flapping import FlappingLimit
from fleximq.security.rates.rate_limits import FLAPS, RateLimits
from fleximq.security.rates.token_bucket import KeyedBuckets
from fleximq.services.network.connection_limit import TOO_MANY_NEW, TOO_MANY_THERE, ConnectionLimit
from fleximq.services.network.proxy_header import HEADER_BYTES
from fleximq.services.network.proxy_protocol import MALFORMED, SILENT, ProxiedFactory
from tests.log_observer import observeLog

PROXY = IPv4Address("TCP", "127.0.0.1", 40000)
DEADLINE = 10.0
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def header1(host: str = "192.0.2.7", port: int = 50000) -> bytes:
    """Return a header of version 1."""
    kind = "TCP6" if ":" in host else "TCP4"
    there = "2001:db8::1" if ":" in host else "198.51.100.1"
    return f"PROXY {kind} {host} {there} {port} 7890\r\n".encode()


def header2(host: tuple[int, ...] = (192, 0, 2, 7), port: int = 50000, command: int = 1) -> bytes:
    """Return a header of version 2 for IPv4; of command 0, LOCAL, it says nothing of a peer."""
    body = bytes(host) + bytes((198, 51, 100, 1)) + struct.pack(">HH", port, 7890)
    return SIGNATURE + bytes([0x20 | command, 0x11]) + struct.pack(">H", len(body)) + body


@implementer(IHalfCloseableProtocol)
class _Server(Protocol):
    """Notes who is there, what was said, and how it ended."""

    def __init__(self, address: IAddress | None) -> None:
        self.address = address
        self.peer: Any = None
        self.said: list[bytes] = []
        self.ends: list[str] = []

    def connectionMade(self) -> None:
        """Look who is there."""
        assert self.transport is not None
        self.peer = self.transport.getPeer()

    def dataReceived(self, data: bytes) -> None:
        """Note it."""
        self.said.append(data)

    def readConnectionLost(self) -> None:
        """Note it."""
        self.ends.append("read")

    def writeConnectionLost(self) -> None:
        """Note it."""
        self.ends.append("write")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Note it."""
        self.ends.append("all")


class _Servers(Factory[_Server]):
    noisy = False

    def __init__(self) -> None:
        self.built: list[_Server] = []
        self.wanted = True

    def buildProtocol(self, addr: IAddress | None) -> _Server | None:
        """Build one."""
        if not self.wanted:
            return None
        self.built.append(_Server(addr))
        return self.built[-1]


class ProxiedTests(SynchronousTestCase):
    """Behind a haproxy: endpoint, with a gate for two of each address."""

    def setUp(self) -> None:
        """Listen as the broker does."""
        self.clock = Clock()
        self.counted: list[str] = []
        self.servers = _Servers()
        self.flapping = FlappingLimit(1, 60.0, self.clock.seconds)
        counted = lambda event, number: self.counted.append(event)  # noqa: E731
        rates = replace(
            RateLimits.of(Settings(), self.clock), connects=KeyedBuckets(Rate(1, 3)), flapping=self.flapping
        )
        self.connectionLimit = ConnectionLimit(self.clock, Limits(clientsPerAddress=2), lambda: 0, counted, rates)
        door = ProxiedFactory(self.servers, self.connectionLimit.enterFrom, self.clock, DEADLINE, counted)
        reactor = MemoryReactorClock()
        serverFromString(reactor, "haproxy:tcp:7890").listen(self.connectionLimit.limited(door, proxied=True))
        self.factory: Any = reactor.tcpServers[0][1]

    def come(self, *said: bytes) -> tuple[Any, StringTransport]:
        """Connect as the proxy and say this."""
        protocol, transport = self.factory.buildProtocol(PROXY), StringTransport(peerAddress=PROXY)
        transport.abortConnection = transport.loseConnection  # type: ignore[method-assign]
        protocol.makeConnection(transport)
        for each in said:
            protocol.dataReceived(each)
        return protocol, transport

    def lose(self, protocol: Any) -> None:
        """Lose the connection."""
        protocol.connectionLost(Failure(ConnectionDone()))

    def test_version1(self) -> None:
        """Whoever serves the connection meets the peer that the header names, and all that stands behind it."""
        self.come(header1() + b"he", b"llo")
        [server] = self.servers.built
        peer = IPv4Address("TCP", "192.0.2.7", 50000)
        self.assertEqual((server.address, server.peer, server.said), (peer, peer, [b"he", b"llo"]))

    def test_version2(self) -> None:
        """So it does with the binary form."""
        self.come(header2() + b"hello")
        [server] = self.servers.built
        peer = IPv4Address("TCP", "192.0.2.7", 50000)
        self.assertEqual((server.address, server.peer, server.said), (peer, peer, [b"hello"]))

    def test_version6(self) -> None:
        """And with IPv6."""
        self.come(header1("2001:db8::7"), b"hello")
        [server] = self.servers.built
        self.assertEqual(server.peer, IPv6Address("TCP", "2001:db8::7", 50000))

    def test_nobodyBefore(self) -> None:
        """Nothing is made before the peer has said something."""
        self.come()
        self.come(header1())
        self.come(header1()[:20])
        self.assertEqual(self.servers.built, [])

    def test_noHeader(self) -> None:
        """Without a header the connection is closed, and counted."""
        _, transport = self.come(b"PING:\n")
        self.assertTrue(transport.disconnecting)
        self.assertEqual((self.servers.built, self.counted), ([], [MALFORMED]))

    def test_pieces(self) -> None:
        """Header and input arrive byte by byte; the header of unknown clients leaves the proxy's own address."""
        peer = IPv4Address("TCP", "192.0.2.7", 50000)
        unknown = b"PROXY UNKNOWN\r\n"
        other = SIGNATURE + b"\x21\0\0\3xyz"
        unix = SIGNATURE + b"\x21\x31" + struct.pack(">H108s108s", 216, b"/run/a", b"/run/b")
        for header, expected in (
            (header1(), peer),
            (header2(), peer),
            (unknown, PROXY),
            (b"PROXY UNKNOWN ffff::1 ::1 1 2\r\n", PROXY),
            (header2(command=0), PROXY),
            (other, PROXY),
            (unix, UNIXAddress(b"/run/a")),
        ):
            self.servers.built.clear()
            protocol, transport = self.come(*(bytes([each]) for each in header + b"a\r\nb"))
            [server] = self.servers.built
            self.assertEqual((server.peer, b"".join(server.said)), (expected, b"a\r\nb"))
            self.assertFalse(transport.disconnecting)
            protocol.dataReceived(b"more")
            self.assertEqual(server.said[-1], b"more")
            self.lose(protocol)
            self.clock.advance(1)
        self.assertEqual((self.counted, self.connectionLimit.waiting), ([], 0))

    def test_malformed(self) -> None:
        """A malformed header, or one of more than 2 KiB, closes the connection with one line that says why."""
        logged: list[Any] = []
        observeLog(self, logged.append)
        long = SIGNATURE + bytes([0x21, 0x11]) + struct.pack(">H", HEADER_BYTES)
        for said in (
            (b"PROXY TCP4 192.0.2.7 192.0.2.8 many 1\r\n",),
            (b"PROXY TCP4 \xff\xff 192.0.2.8 1 1\r\n",),
            (long + bytes(HEADER_BYTES - 1),),
            (long, *[b"x"] * (HEADER_BYTES - 15)),
            (SIGNATURE + b"\x22\x11\0\0",),
            (SIGNATURE + b"\x21\x11\0\1x",),
            (SIGNATURE + b"\x21\x51\0\0", header1()),
        ):
            _, transport = self.come(*said)
            self.assertTrue(transport.disconnecting)
        self.assertEqual((self.counted, self.servers.built), ([MALFORMED] * 7, []))
        self.assertEqual(len(logged), 7)
        self.assertEqual(
            formatEvent(logged[0]),
            "Closing the connection from the proxy 127.0.0.1:40000: its PROXY header is refused: its line is malformed",
        )

    def test_longHeader(self) -> None:
        """A header of 2 KiB is accepted, in pieces too, with long input after it."""
        body = bytes((192, 0, 2, 7, 198, 51, 100, 1)) + struct.pack(">HH", 50000, 7890)
        body += bytes(HEADER_BYTES - 16 - len(body))
        head = SIGNATURE + bytes([0x21, 0x11]) + struct.pack(">H", len(body)) + body
        self.come(head + bytes(10_000))
        self.come(head[:1000], head[1000:] + bytes(5000), bytes(5000))
        self.assertEqual([len(b"".join(each.said)) for each in self.servers.built], [10_000, 10_000])

    def test_local(self) -> None:
        """A proxy that speaks for itself has its own address."""
        self.come(header2(command=0) + b"x")
        [server] = self.servers.built
        self.assertEqual(server.peer, PROXY)

    def test_perAddress(self) -> None:
        """Connections are counted by the addresses that the proxy names, on the header already; the third is closed."""
        self.come(header1() + b"x")
        self.come(header1("192.0.2.7"))
        _, third = self.come(header1("192.0.2.7"))
        _, other = self.come(header1("192.0.2.8") + b"x")
        self.assertEqual((third.disconnecting, other.disconnecting), (True, False))
        self.assertEqual((self.counted, len(self.servers.built)), ([TOO_MANY_THERE], 2))

    def test_again(self) -> None:
        """When one of an address is lost, however far it came, another may come."""
        for said in ((header1(),), (header1() + b"x",), ()):
            self.lose(self.come(*said)[0])
            self.clock.advance(1)
        self.assertEqual((self.connectionLimit.waiting, self.counted), (0, []))
        self.assertEqual([self.come(header1() + b"x")[1].disconnecting for _ in range(3)], [False, False, True])
        self.assertEqual([each.ends for each in self.servers.built], [["all"], [], []])

    def test_rate(self) -> None:
        """How often an address connects is counted by what the proxy says too."""
        for _ in range(3):
            self.lose(self.come(header1())[0])
        _, fourth = self.come(header1())
        self.assertTrue(fourth.disconnecting)
        self.assertEqual(self.counted, [TOO_MANY_NEW])

    def test_flaps(self) -> None:
        """So is who has to stay away."""
        self.flapping.left(addressKey(IPv4Address("TCP", "192.0.2.7", 1)), 1.0)
        _, transport = self.come(header1(), b"x")
        self.assertTrue(transport.disconnecting)
        self.assertEqual((self.counted, self.servers.built), ([FLAPS], []))

    def test_deadline(self) -> None:
        """Who says nothing, or nothing behind the header, is closed in time; nothing of it is left."""
        for said in ((), (header1(),), (header1()[:10],)):
            protocol, transport = self.come(*said)
            self.clock.advance(DEADLINE - 0.1)
            self.assertFalse(transport.disconnecting)
            self.clock.advance(0.2)
            self.assertTrue(transport.disconnecting)
            self.lose(protocol)
        self.assertEqual(
            (self.counted, self.connectionLimit.waiting, self.clock.getDelayedCalls()), ([SILENT] * 3, 0, [])
        )

    def test_flood(self) -> None:
        """A hundred at once cause ten lines."""
        lines: list[Any] = []
        observeLog(self, lines.append)
        for _ in range(100):
            protocol, _ = self.come()
        self.clock.advance(DEADLINE)
        self.assertEqual(len([each for each in lines if "before the handshake" in each["log_format"]]), 10)

    def test_afterDeadline(self) -> None:
        """What comes after it is dropped."""
        protocol, _ = self.come(header1())
        self.clock.advance(DEADLINE)
        protocol.dataReceived(b"x")
        self.assertEqual(self.servers.built, [])

    def test_halfClosed(self) -> None:
        """The end of the peer's input reaches who serves it."""
        protocol, _ = self.come(header1() + b"x")
        half = IHalfCloseableProtocol(protocol)
        half.readConnectionLost()
        half.writeConnectionLost()
        self.assertEqual(self.servers.built[0].ends, ["read", "write"])

    def test_halfClosedBefore(self) -> None:
        """A peer that ends its input before it has said anything is closed."""
        protocol, transport = self.come(header1())
        IHalfCloseableProtocol(protocol).readConnectionLost()
        self.assertTrue(transport.disconnecting)

    def test_outOfTheWay(self) -> None:
        """Once the peer is known, a read goes straight through."""
        protocol, _ = self.come(header1() + b"x")
        self.assertNotIn("dataReceived", vars(protocol))

    def test_nobodyBuilt(self) -> None:
        """A factory that wants no more connections has this one closed, and its place is free again."""
        self.servers.wanted = False
        for _ in range(3):
            protocol, transport = self.come(header1() + b"x")
            self.assertTrue(transport.disconnecting)
            self.lose(protocol)
        self.assertEqual((self.connectionLimit.waiting, self.counted), (0, []))

    def test_startAndStop(self) -> None:
        """The factory behind is started and stopped with the port."""
        self.factory.doStart()
        self.assertEqual(self.servers.numPorts, 1)
        self.factory.doStop()
        self.assertEqual(self.servers.numPorts, 0)
