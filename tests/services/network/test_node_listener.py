"""fleximq.services.network.node_listener: nodes that introduce their clients, and others that try."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.connection.protocol_detection import SniffingFactory
from fleximq.limits import Limits
from fleximq.services.network import node_listener
from fleximq.services.network.connection_limit import ConnectionLimit
from fleximq.services.network.node_listener import DEADLINE, DELEGATE, PREFACE_BYTES, NodeListener, Preface
from fleximq.wire.fleximq_frame import encodeFrame

GOOD = Preface("secret", 1, "east-2", "192.0.2.7", 50000)


class Served(Factory[Protocol]):
    """A listener of the broker; it notes its clients, and what they send."""

    def __init__(self) -> None:
        self.clients: list[Any] = []
        self.said: list[bytes] = []

    def buildProtocol(self, addr: Any) -> Protocol:
        """Return a protocol."""
        self.clients.append(addr)
        protocol = Protocol()
        protocol.dataReceived = self.said.append  # type: ignore[method-assign, assignment]
        return protocol


class NodeListenerTests(SynchronousTestCase):
    """A node whose listener 1 takes clients of other nodes."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.served = Served()
        self.listener = NodeListener(self.clock, "secret", {1: self.served})
        self.listener.serve()

    def arrival(self, *pieces: bytes) -> StringTransport:
        """Connect, and send something."""
        protocol = self.listener.buildProtocol(None)
        transport = StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.2", 40000))
        protocol.makeConnection(transport)
        for piece in pieces:
            protocol.dataReceived(piece)
        return transport

    def test_accepted(self) -> None:
        """The client is handed over with its address, however the preface arrives."""
        for size in (1, 7, 1000):
            line = GOOD.encode()
            pieces = [line[at : at + size] for at in range(0, len(line), size)]
            transport = self.arrival(*pieces, b"hello")
            self.assertEqual((transport.value(), transport.disconnected), (b"+", False))
            self.assertEqual(transport.getPeer(), IPv4Address("TCP", "192.0.2.7", 50000))
            self.assertEqual(self.served.clients.pop(), transport.getPeer())
            self.assertEqual(self.served.said.pop(), b"hello")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_counted(self) -> None:
        """The client counts for the limits of the broker until its connection is lost."""
        limit = ConnectionLimit(self.clock, Limits(clientsPerAddress=1), lambda: 0, lambda event, number: None)
        sniffing = SniffingFactory({"fleximq": self.served}, None, self.clock, 10, lambda event, number: None)
        listener = NodeListener(self.clock, "secret", {1: limit.limited(sniffing)})
        listener.serve()
        for hello in (b"", encodeFrame(0, 0)):
            arrivals: list[Any] = [listener.buildProtocol(None) for _ in range(2)]
            transports = [StringTransport() for _ in arrivals]
            for protocol, transport in zip(arrivals, transports, strict=True):
                protocol.makeConnection(transport)
                protocol.dataReceived(GOOD.encode())
            self.assertEqual([each.disconnected for each in transports], [False, True])
            self.assertEqual(limit.waiting, 1)
            arrivals[0].dataReceived(hello)
            arrivals[0].connectionLost()
            self.assertEqual(limit.waiting, 0)

    def test_neverLocal(self) -> None:
        """A client on the standby's machine is named after its node, so that it is not local."""
        for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1", ""):
            self.arrival(GOOD._replace(host=host).encode())
            self.assertEqual(self.served.clients.pop().host, "node east-2")

    def test_delegate(self) -> None:
        """A client that its node has admitted is handed over with its description; without a mesh it is refused."""
        line = GOOD._replace(number=DELEGATE, delegate={"id": 1000}).encode()
        self.assertTrue(self.arrival(line).disconnected)
        built: list[tuple[Any, Any]] = []

        def build(description: Any, address: Any) -> Protocol:
            built.append((description, address.host))
            return Protocol()

        self.listener.delegates = build
        self.assertEqual(self.arrival(line).value(), b"+")
        self.assertEqual(built, [({"id": 1000}, "192.0.2.7")])

    def test_notYet(self) -> None:
        """Before the node is the owner a client waits; it is not read."""
        self.listener.isServing = False
        transport, other = self.arrival(GOOD.encode()), self.arrival(GOOD.encode())
        self.clock.advance(100)
        self.assertEqual((transport.value(), self.served.clients), (b"", []))
        other.abortConnection()
        next(reversed(self.listener.introduced)).connectionLost()
        self.listener.serve()
        self.assertEqual((transport.value(), len(self.served.clients)), (b"+", 1))

    def test_refused(self) -> None:
        """Anything but the preface of a node is refused, with a line in the log."""
        self.listener.isServing = False
        wrong: dict[str, list[bytes]] = {
            "its secret is wrong": [GOOD._replace(secret="Secret").encode()],
            "there is no listener 0": [GOOD._replace(number=0).encode()],
            "it sent too much": [b"x" * (PREFACE_BYTES + 1)],
        }
        lines = (b"GET / HTTP/1.1\r\n", b"[]\n", b"{}\n", b"\xff\n", b'["s",true,"n","h",1]\n', b"[" * 999 + b"\n")
        for data in (*lines, GOOD._replace(secret="\ud800").encode()):
            self.assertIn("something else", self.refusal(data))
        for why, pieces in wrong.items():
            self.assertIn(why, self.refusal(*pieces))
        self.assertIn("it sent too much", self.refusal(GOOD.encode(), b"early"))
        self.assertEqual(self.served.clients, [])
        self.assertEqual((self.listener.silent, self.listener.introduced, self.clock.getDelayedCalls()), ({}, {}, []))

    def refusal(self, *pieces: bytes) -> str:
        """Return the reason for which these bytes are refused."""
        self.clock.advance(1)
        with capturedLogs() as logged:
            transport = self.arrival(*pieces)
        self.assertTrue(transport.disconnected)
        self.assertEqual(transport.value(), b"")
        return str(logged[0]["why"])

    def test_silent(self) -> None:
        """Who sends nothing is refused, and earlier if there are too many."""
        self.patch(node_listener, "MOST_SILENT", 2)
        first, second, third = self.arrival(), self.arrival(b"["), self.arrival()
        self.assertEqual([each.disconnected for each in (first, second, third)], [True, False, False])
        self.clock.advance(DEADLINE)
        self.assertTrue(second.disconnected and third.disconnected)
