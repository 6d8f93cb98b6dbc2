"""Forwarded clients over connections of a real reactor that are encrypted."""

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from fleximq.cluster.interfaces import NodeRecord, ShardOwner
from fleximq.services.network.forwarding import ForwardedFactory
from fleximq.services.network.node_listener import makeContext
from fleximq.services.network.node_ports import NodePorts

_reactor: Any = reactor
#: More than the buffers of a connection.
MUCH = b"x" * 3_000_000


@implementer(IHalfCloseableProtocol)
class Served(Protocol):
    """A client of the owner; it answers at the end of its input, and closes."""

    def connectionMade(self) -> None:
        """Note the connection's lowest layer."""
        transport: Any = self.transport
        self.factory.transports.append(transport)
        self.received = 0

    def dataReceived(self, data: bytes) -> None:
        """Count."""
        self.received += len(data)

    def readConnectionLost(self) -> None:
        """Answer."""
        transport: Any = self.transport
        transport.write(b"%d " % self.received + MUCH)
        transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """Do nothing."""


@implementer(IHalfCloseableProtocol)
class Client(Protocol):
    """Ends its output after some bytes; ``done`` gets all that it has received."""

    def connectionMade(self) -> None:
        """Send."""
        self.received: list[bytes] = []
        self.done: Deferred[bytes] = Deferred()
        transport: Any = self.transport
        transport.write(MUCH)
        transport.loseWriteConnection()

    def dataReceived(self, data: bytes) -> None:
        """Keep it."""
        self.received.append(data)

    def readConnectionLost(self) -> None:
        """Close."""
        transport: Any = self.transport
        transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """Do nothing."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell."""
        self.done.callback(b"".join(self.received))


class NodeTlsTests(TestCase):
    """An owner, and a standby with a client."""

    def setUp(self) -> None:
        self.served = Factory.forProtocol(Served)
        self.served.transports = []  # type: ignore[attr-defined]
        self.owner = NodePorts(reactor, "a", 10, "127.0.0.1:0", True)
        self.owner._served[0] = self.served
        self.owner._kinds.append("+tcp")
        self.owner.open("127.0.0.1")
        self.owner.serve()
        self.addCleanup(self.owner.stopService)
        self.standby = NodePorts(reactor, "b", 10)
        self.addCleanup(self.standby.stopService)
        forwarded = ForwardedFactory(self.standby.forwarding, 0, "+tcp", self.served)
        self.port = _reactor.listenTCP(0, forwarded, interface="127.0.0.1")
        self.addCleanup(self.port.stopListening)

    def aim(self, **other: Any) -> Any:
        """Let the standby know the owner, and connect a client to it."""
        about = {"forward": {**self.owner.about["forward"], **other}}
        self.standby.aim(ShardOwner("a", 1, 1), {"a": NodeRecord({}, about)})
        place = TCP4ClientEndpoint(_reactor, "127.0.0.1", self.port.getHost().port)
        return connectProtocol(place, Client())

    @inlineCallbacks
    def test_ends(self) -> Any:
        """All bytes pass in both directions, encrypted, also after the end of the client's output; then all closes."""
        client = yield self.aim()
        answer = yield client.done
        self.assertEqual(answer, b"%d " % len(MUCH) + MUCH)
        (transport,) = self.served.transports  # type: ignore[attr-defined]
        self.assertTrue(transport.TLS)
        while self.standby.forwarding.joined or transport.connected:
            yield deferLater(_reactor, 0.01)

    @inlineCallbacks
    def test_other(self) -> Any:
        """A node with another certificate than that in its key gets neither the secret nor a client."""
        with capturedLogs() as logged:
            client = yield self.aim(certificate=makeContext()[1])
            answer = yield client.done
        self.assertEqual((answer, self.served.transports), (b"", []))  # type: ignore[attr-defined]
        self.assertIn("certificate verify failed", str([event.get("error") for event in logged]))
