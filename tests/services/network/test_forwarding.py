"""fleximq.services.network.forwarding: the clients of a standby, with an owner in memory."""

import json
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransportWithDisconnection
from twisted.logger import capturedLogs
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from fleximq.limits import Limits
from fleximq.services.network import forwarding
from fleximq.services.network.connection_limit import ConnectionLimit
from fleximq.services.network.forwarding import LINGER, RETRY, ForwardedFactory, Forwarding

PEER = IPv4Address("TCP", "192.0.2.7", 50000)
ABOUT = {"host": "10.0.0.1", "port": 7800, "secret": "s", "kinds": ["+tcp"]}


class Transport(StringTransportWithDisconnection):
    """A connection whose output can be ended alone; ``lingers`` as long as its peer takes no output."""

    protocol: Any
    lingers = writeEnded = False
    bufferSize = 0

    def loseWriteConnection(self) -> None:
        """End the output."""
        self.writeEnded = True

    def loseConnection(self) -> None:
        """Close, but wait for a producer, and for the peer."""
        if not self.lingers and self.producer is None:
            super().loseConnection()

    def abortConnection(self) -> None:
        """Close at once."""
        if self.connected:
            self.lingers = False
            self.unregisterProducer() if self.producer is not None else None
            super().loseConnection()

    def unregisterProducer(self) -> None:
        """Forget a producer, if there is one."""
        if self.producer is not None:
            super().unregisterProducer()


class Served(Factory[Protocol]):
    """The broker of this node; ``built`` are its connections."""

    def __init__(self) -> None:
        self.built: list[Protocol] = []

    def buildProtocol(self, addr: Any) -> Protocol:
        """Return a protocol."""
        self.built.append(Protocol())
        return self.built[-1]


class ForwardingTests(SynchronousTestCase):
    """A standby, n0; its owners are n1 and n2."""

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.served = Served()
        self.forwarding = Forwarding(self.reactor, "n0", 10)
        limits = Limits(waiting=3)
        self.limit = ConnectionLimit(
            self.reactor, limits, lambda: len(self.forwarding.joined), lambda event, number: None
        )
        self.factory = self.limit.limited(ForwardedFactory(self.forwarding, 0, "+tcp", self.served))

    def client(self) -> Transport:
        """Connect a client."""
        protocol: Any = self.factory.buildProtocol(PEER)
        transport = Transport(peerAddress=PEER)
        transport.protocol = protocol
        protocol.makeConnection(transport)
        return transport

    def attempts(self) -> list[Any]:
        """Return the attempts to connect since the last call."""
        found, self.reactor.tcpClients[:] = list(self.reactor.tcpClients), []
        return found

    def owner(self, attempt: Any) -> Transport:
        """Let an attempt succeed; return the owner's side of the connection."""
        transport = Transport()
        transport.protocol = attempt[2].buildProtocol(None)
        transport.protocol.makeConnection(transport)
        return transport

    def fail(self, attempt: Any) -> None:  # type: ignore[override]
        """Let an attempt fail."""
        attempt[2].clientConnectionFailed(None, Failure(ConnectionRefusedError()))

    def joined(self) -> tuple[Transport, Transport]:
        """Return a client, and the owner's side."""
        self.forwarding.aim("n1", ABOUT)
        client = self.client()
        owner = self.owner(self.attempts()[0])
        owner.protocol.dataReceived(b"+")
        owner.clear()
        return client, owner

    def test_noOwner(self) -> None:
        """A client waits without being read, and is closed in the end."""
        client = self.client()
        self.assertEqual((client.producerState, self.attempts()), ("paused", []))
        self.reactor.advance(9)
        self.assertTrue(client.connected)
        with capturedLogs() as logged:
            self.reactor.advance(1)
        self.assertFalse(client.connected)
        self.assertIn("no owner was found", logged[0]["log_format"])
        self.assertEqual((self.limit.waiting, self.reactor.getDelayedCalls()), (0, []))

    def test_joined(self) -> None:
        """The owner learns who the client is, and bytes pass after its answer."""
        client = self.client()
        self.forwarding.aim("n1", ABOUT)
        (attempt,) = self.attempts()
        self.assertEqual(attempt[:2], ("10.0.0.1", 7800))
        owner = self.owner(attempt)
        self.assertEqual(json.loads(owner.value()), ["s", 0, "n0", "192.0.2.7", 50000])
        owner.clear()
        self.assertEqual(client.producerState, "paused")
        owner.protocol.dataReceived(b"+hello")
        self.assertEqual((client.producerState, client.value()), ("producing", b"hello"))
        client.protocol.dataReceived(b"to the owner")
        owner.protocol.dataReceived(b" and back")
        self.assertEqual((owner.value(), client.value()), (b"to the owner", b"hello and back"))
        self.reactor.advance(20)
        self.assertTrue(client.connected)

    def test_delegate(self) -> None:
        """A client that this node has admitted is described to the owner, whatever the owner's listeners are."""
        transport = Transport(peerAddress=PEER)
        self.forwarding.connectToOwner({"id": 1000}, transport)
        self.assertEqual(transport.producerState, "paused")
        self.forwarding.aim("n1", ABOUT)
        owner = self.owner(self.attempts()[0])
        self.assertEqual(json.loads(owner.value()), ["s", -1, "n0", "192.0.2.7", 50000, {"id": 1000}])
        owner.protocol.dataReceived(b"+")
        self.assertEqual(transport.producerState, "producing")

    def test_delegateOfTheNextOwner(self) -> None:
        """One that waits when this node becomes the owner is closed, as it needs no connection."""
        transport = Transport(peerAddress=PEER)
        self.forwarding.connectToOwner({"id": 1000}, transport)
        self.forwarding.serve()
        self.assertEqual((transport.connected, self.served.built), (False, []))

    def test_backpressure(self) -> None:
        """Each side is paused while the other one takes nothing."""
        client, owner = self.joined()
        self.assertIs(client.producer, owner)
        self.assertIs(owner.producer, client)
        self.assertTrue(client.streaming)

    def test_unreachable(self) -> None:
        """While the owner cannot be reached one client tries, and all of them when it can."""
        self.forwarding.aim("n1", ABOUT)
        clients = [self.client(), self.client()]
        for attempt in self.attempts():
            self.fail(attempt)
        self.reactor.advance(RETRY)
        (attempt,) = self.attempts()
        self.client()
        self.assertEqual(self.attempts(), [])
        self.owner(attempt).protocol.dataReceived(b"+")
        self.reactor.advance(0)
        self.assertEqual((clients[0].producerState, len(self.attempts())), ("producing", 2))

    def test_atOnce(self) -> None:
        """Not too many clients connect to the owner at one time; the next one does when one is accepted, or leaves."""
        self.patch(forwarding, "AT_ONCE", 1)
        clients = [self.client() for _ in range(3)]
        self.forwarding.aim("n1", ABOUT)
        for finish in (lambda owner: owner.protocol.dataReceived(b"+"), lambda owner: clients[1].abortConnection()):
            (attempt,) = self.attempts()
            finish(self.owner(attempt))
            self.reactor.advance(0)
        self.assertEqual([len(self.attempts()), *(each.connected for each in clients)], [1, True, False, True])

    def test_unreachableForLong(self) -> None:
        """Attempts go on when the client that tried has left, and for one that connects later."""
        self.forwarding.aim("n1", ABOUT)
        self.client()
        self.fail(*self.attempts())
        self.reactor.advance(5)
        self.assertEqual(len(self.attempts()), 1)
        self.client()
        self.reactor.pump([RETRY] * 11)
        self.assertEqual(len(self.forwarding.waiting), 1)
        self.fail(*self.attempts())
        self.reactor.pump([RETRY] * 11)
        self.attempts()
        self.assertEqual((self.forwarding.waiting, self.reactor.getDelayedCalls()), ({}, []))
        third = self.client()
        self.reactor.advance(RETRY)
        self.owner(*self.attempts()).protocol.dataReceived(b"+")
        self.assertEqual(third.producerState, "producing")

    def test_ownerChanges(self) -> None:
        """Connections to the former owner end; a client that still waits goes to the new one."""
        client, owner = self.joined()
        waiting = self.client()
        (attempt,) = self.attempts()
        former = self.owner(attempt)
        self.forwarding.aim("", None)
        self.assertTrue(client.connected)
        self.forwarding.aim("n2", ABOUT | {"host": "10.0.0.2"})
        self.assertEqual((client.connected, owner.connected), (False, False))
        self.assertEqual((former.connected, waiting.connected), (False, True))
        (attempt,) = self.attempts()
        self.assertEqual(attempt[0], "10.0.0.2")

    def test_silent(self) -> None:
        """An owner that is silent for a while gets no new clients, and keeps those that it has."""
        client, owner = self.joined()
        self.forwarding.aim("n1", None)
        self.client()
        self.assertEqual((client.connected, self.attempts()), (True, []))
        self.forwarding.aim("n1", ABOUT)
        self.assertEqual((client.connected, len(self.attempts())), (True, 1))

    def test_refused(self) -> None:
        """A client that the owner does not accept is closed."""
        self.forwarding.aim("n1", ABOUT)
        client = self.client()
        self.owner(self.attempts()[0]).abortConnection()
        self.assertFalse(client.connected)

    def test_otherKind(self) -> None:
        """A listener that differs from the owner's is said in the log, and its clients are closed."""
        for kinds in ([], ["+fleximqtls:tcp"]):
            self.forwarding.aim("n1", ABOUT | {"kinds": kinds})
            with capturedLogs() as logged:
                client = self.client()
            self.assertEqual((client.connected, self.attempts()), (False, []))
            self.assertIn("differs from the owner's", logged[0]["log_format"])

    def test_endOfInput(self) -> None:
        """The end of one side's input is passed on; with that of the other one both are closed."""
        for first in (0, 1):
            sides = self.joined()
            one, other = sides[first], sides[1 - first]
            one.protocol.readConnectionLost()
            self.assertEqual((other.writeEnded, other.connected, one.connected), (True, True, True))
            other.protocol.dataReceived(b"last")
            other.protocol.readConnectionLost()
            self.assertEqual((one.value(), one.connected, other.connected), (b"last", False, False))

    def test_lost(self) -> None:
        """If one side is lost, the other one gets what is left for it, and is closed."""
        for first in (0, 1):
            sides = self.joined()
            sides[1 - first].lingers = True
            sides[first].abortConnection()
            self.reactor.advance(LINGER - 1)
            self.assertTrue(sides[1 - first].connected)
            self.reactor.advance(1)
            self.assertFalse(sides[1 - first].connected)
        self.assertEqual((self.forwarding.joined, self.reactor.getDelayedCalls()), (set(), []))

    def test_limit(self) -> None:
        """``--max-waiting`` is for the clients that wait for an owner."""
        self.joined()
        self.assertEqual([self.client().connected for _ in range(4)], [True, True, True, False])

    def test_values(self) -> None:
        """The metrics say how many clients are forwarded and wait, and how many were forwarded and refused so far."""
        self.joined()
        self.client()
        self.owner(self.attempts()[0]).abortConnection()
        for _ in range(2):
            self.client()
        values = {"forwarded_clients": 1, "waiting_clients": 2, "forwards": 1, "forwards_refused": 1}
        self.assertEqual(self.forwarding.values(), {f"cluster_{name}": value for name, value in values.items()})

    def test_serve(self) -> None:
        """The clients that wait when this node becomes the owner are handed over to its broker."""
        client = self.client()
        self.forwarding.aim("n0", ABOUT)
        self.assertEqual(self.attempts(), [])
        self.forwarding.serve()
        (built,) = self.served.built
        self.assertIs(built.transport, client)
        self.assertEqual((client.producerState, self.limit.waiting), ("producing", 0))
        self.reactor.advance(20)
        self.assertTrue(client.connected)

    def test_early(self) -> None:
        """A client of a listener that this node will serve is not forwarded to the owner: it waits until this node
        serves it, or becomes the owner, and is closed if that takes too long.
        """
        self.factory = self.limit.limited(ForwardedFactory(self.forwarding, 0, "+tcp", self.served, isOwn=True))
        self.forwarding.aim("n1", ABOUT)
        for serve in (self.forwarding.serveEarly, self.forwarding.serve):
            client = self.client()
            self.reactor.advance(9)
            self.assertEqual((client.producerState, self.attempts()), ("paused", []))
            self.assertEqual(self.forwarding.values()["cluster_waiting_clients"], 1)
            serve()
            self.assertIs(self.served.built.pop().transport, client)
            self.assertEqual((client.producerState, self.limit.waiting), ("producing", 0))
            self.reactor.advance(20)
            self.assertTrue(client.connected)
        client = self.client()
        with capturedLogs() as logged:
            self.reactor.advance(10)
        self.assertIn("not in the mesh yet", logged[0]["log_format"])
        self.assertEqual((client.connected, self.forwarding.early, self.reactor.getDelayedCalls()), (False, {}, []))

    def test_stop(self) -> None:
        """All clients are closed."""
        client, owner = self.joined()
        waiting = self.client()
        self.factory = ForwardedFactory(self.forwarding, 0, "+tcp", self.served, isOwn=True)
        early = self.client()
        self.forwarding.stop()
        each = client, owner, waiting, early
        self.assertEqual([one.connected for one in each], [False] * 4)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
