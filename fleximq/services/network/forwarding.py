"""Forwards the clients of a standby to the owner of the journal (docs/explanation/cluster.rst, Forwarding).

A client that connects while no owner answers waits without being read, for a limited time; so does a client of a
listener that the node itself serves, until it can. TLS is passed on unchanged.
Each side is read only as fast as the other one accepts data; the end of one side's input is passed on.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ClientFactory, Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.dialects.connection.handover import Handover
from fleximq.dialects.connection.tcp_socket import probePeer, quickAcks, tcpSocket, tuneSocket
from fleximq.dialects.stream import tune
from fleximq.security.peer_address import peerAddress
from fleximq.services.network.node_listener import ACCEPTED, DELEGATE, Preface, contextFor, startTls
from fleximq.values.log_limit import LogLimits

_log = Logger()

#: Seconds for a connection to the owner, and between two attempts.
CONNECT, RETRY = 5.0, 0.5
#: Clients that connect to the owner at one time; it would end the oldest of more than 1,000.
AT_ONCE = 100
#: Seconds for the remaining output of one side after the other side is lost.
LINGER = 60.0
#: Seconds of silence after which the system probes whether the other machine is alive.
PROBE = 5
#: Bytes of one read: fewer and larger ones cost less.
READ_BYTES = 1 << 18


class OwnerAddress(NamedTuple):
    """Where the owner accepts connections of nodes: ``kinds`` of its listeners, ``certificate`` for TLS, in PEM."""

    host: str
    port: int
    secret: str
    kinds: Sequence[str]
    certificate: str = ""


class Forwarding:
    """All forwarded clients of this node, which wait so many seconds for an owner."""

    def __init__(self, reactor: Any, node: str, wait: float) -> None:
        self.reactor, self.node, self.wait = reactor, node, wait
        self.logLimits = LogLimits()
        self.place: OwnerAddress | None = None
        self.tls: Any = None
        self.isReachable = True
        self.waiting: dict[ForwardedClient, None] = {}
        self.early: dict[ForwardedClient, None] = {}
        self.joined: set[ForwardedClient] = set()
        self.forwarded = self.refused = 0
        self._owner = ""
        self._known: OwnerAddress | None = None
        self._again: IDelayedCall | None = None

    def aim(self, owner: str, about: Mapping[str, Any] | None) -> None:
        """Learn the owner, "" for none, and its part of :attr:`NodeRecord.about`, None if the owner is silent."""
        place = None
        if about is not None and owner not in ("", self.node):
            place = OwnerAddress(**{name: about[name] for name in OwnerAddress._fields if name in about})
        if owner not in ("", self._owner) or place not in (None, self._known):
            self._owner, self._known = owner, place
            self.end()
        if place != self.place:
            self.place, self.isReachable = place, True
            if place is not None:
                self.tls = contextFor(place.certificate) if place.certificate else None
                words = "clients are forwarded to node {owner}, {host}:{port}"
                _log.info(words, owner=owner, host=place.host, port=place.port)
        self.attempt()

    def connectToOwner(self, description: Mapping[str, Any], transport: Any) -> None:
        """Connect the transport of a client of this node, see :meth:`fleximq.broker.broker.Broker.connectToOwner`."""
        transport.protocol = client = DelegatedClient(self, description)
        client.makeConnection(transport)

    def attempt(self) -> None:
        """Connect the first of the waiting clients to the owner; only one of them while it cannot be reached."""
        if self.place is not None:
            for client in list(islice(self.waiting, AT_ONCE if self.isReachable else 1)):
                client.attempt(self.place)

    def forget(self, client: "ForwardedClient") -> None:
        """Let the next client connect: this one does not wait any more."""
        self.early.pop(client, None)
        if client in self.waiting:
            del self.waiting[client]
            if self.waiting and self.place is not None:
                self.reactor.callLater(0, self.attempt)

    def failed(self) -> None:
        """Try again later: the owner cannot be reached."""
        self.isReachable = False
        if self._again is None or not self._again.active():
            self._again = self.reactor.callLater(RETRY, self._retry)

    def _retry(self) -> None:
        self.attempt()
        if self.waiting and not self.isReachable:
            self.failed()

    def end(self) -> None:
        """End the connections to the owner; clients without any input read yet continue to wait."""
        for client in self.waiting:
            client.withdraw()
        for client in list(self.joined):
            if client.other is not None:
                client.other.transport.abortConnection()

    def serve(self) -> None:
        """Hand the waiting clients over to the broker of this node, and end the others."""
        self.aim(self.node, None)
        for client in list(self.waiting):
            client.serve()
        self.serveEarly()

    def serveEarly(self) -> None:
        """Hand the waiting clients of listeners that this node itself serves over to its broker."""
        for client in list(self.early):
            client.serve()

    def values(self) -> dict[str, float]:
        """Return the metrics of forwarding, by name."""
        waiting = len(self.waiting) + len(self.early)
        now = {"cluster_forwarded_clients": len(self.joined), "cluster_waiting_clients": waiting}
        return {**now, "cluster_forwards": self.forwarded, "cluster_forwards_refused": self.refused}

    def stop(self) -> None:
        """End everything."""
        if self._again is not None and self._again.active():
            self._again.cancel()
        self.place = None
        for client in [*self.waiting, *self.early, *self.joined]:
            client.leave()


class ForwardedFactory(Factory[Protocol]):
    """Builds the protocols of clients of one listener; ``number`` is its position, ``served`` its own factory. With
    ``isOwn`` they are not forwarded, but wait until this node serves that listener.
    """

    noisy = False

    def __init__(self, forwarding: Forwarding, number: int, kind: str, served: Any, isOwn: bool = False) -> None:
        self.forwarding, self.number, self.kind, self.served, self._isOwn = forwarding, number, kind, served, isOwn

    def buildProtocol(self, addr: Any) -> "ForwardedClient":
        protocol = EarlyClient() if self._isOwn else ForwardedClient()
        protocol.factory = self
        return protocol


class _Side(Handover):
    """One of the two connections of a client; ``other`` is the other one while bytes pass between them."""

    forwarding: Forwarding
    transport: Any
    other: "_Side | None" = None
    _inputOver = False

    def join(self, other: "_Side") -> None:
        """Pass all input to the other side, as fast as it takes it."""
        self.other = other
        tune(self.transport)
        self.transport.bufferSize = READ_BYTES
        other.transport.registerProducer(self.transport, True)

    def readConnectionLost(self) -> None:
        """Pass the end of input on; after both ends nothing is left to do."""
        self._inputOver = True
        other = self.other
        if other is None or other._inputOver:
            self.leave()
        if other is not None:
            other.transport.unregisterProducer()
            if other._inputOver:
                other.leave()
            else:
                other.transport.loseWriteConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Close the other side after its remaining output."""
        self._stopClock()
        other, self.other = self.other, None
        if other is not None:
            other.other = None
            other.leave()

    def leave(self) -> None:
        """Close when all output is written, at the latest after :data:`LINGER` seconds."""
        self._stopClock()
        self._timer = self.forwarding.reactor.callLater(LINGER, self.transport.abortConnection)
        self.transport.unregisterProducer()
        self.transport.loseConnection()


class ForwardedClient(_Side):
    """A client, and its side of the way to the owner."""

    factory: ForwardedFactory
    description: Mapping[str, Any] = {}
    _owners: "_OwnersSide | None" = None

    def connectionMade(self) -> None:
        """Wait for the owner without reading."""
        self.forwarding = forwarding = self.factory.forwarding
        self.transport.pauseProducing()
        self._timer = forwarding.reactor.callLater(forwarding.wait, self.refuse, "no owner was found for it")
        forwarding.waiting[self] = None
        if not forwarding.isReachable:
            forwarding.failed()
        else:
            forwarding.attempt()

    def attempt(self, place: OwnerAddress) -> None:
        """Connect to the owner, unless that is under way."""
        if self._owners is not None:
            return
        number = self.factory.number
        if number != DELEGATE and self.factory.kind not in place.kinds[number : number + 1]:
            self.refuse("listener {number} of this node, {kind}, differs from the owner's", kind=self.factory.kind)
            return
        peer = self.transport.getPeer()
        host, port = getattr(peer, "host", ""), getattr(peer, "port", 0)
        preface = Preface(place.secret, number, self.forwarding.node, host, port, self.description)
        self._owners = _OwnersSide(self, preface)
        self._owners.connect(place)

    def withdraw(self) -> None:
        owners, self._owners = self._owners, None
        if owners is not None:
            owners.withdraw()

    def accepted(self, owners: "_OwnersSide", data: bytes) -> None:
        """Pass bytes between both sides; ``data`` came with the owner's answer."""
        self._stopClock()
        forwarding = self.forwarding
        forwarding.isReachable = True
        forwarding.forget(self)
        forwarding.joined.add(self)
        forwarding.forwarded += 1
        self._owners = None
        self.join(owners)
        owners.join(self)
        self._acknowledge = quickAcks(self.transport)
        self.transport.write(data)
        self.transport.resumeProducing()

    def dataReceived(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)
        self._acknowledge()

    def failed(self) -> None:
        self._owners = None
        self.forwarding.failed()

    def serve(self) -> None:
        """Hand over to the broker of this node."""
        self._stopClock()
        self.withdraw()
        self.forwarding.forget(self)
        leave, self.whenLost = self.whenLost, None
        if leave is not None:
            leave()  # the broker counts it again
        self.handOver(self.factory.served.buildProtocol(self.transport.getPeer()), b"")
        self.transport.resumeProducing()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget this client, and end the owner's side."""
        self.withdraw()
        self.forwarding.forget(self)
        self.forwarding.joined.discard(self)
        super().connectionLost(reason)

    def leave(self) -> None:
        """Close; a client that waits will not be served."""
        self.forwarding.forget(self)
        super().leave()

    def refuse(self, why: str, **more: object) -> None:
        forwarding = self.forwarding
        forwarding.refused += 1
        end = forwarding.logLimits[why].ending(forwarding.reactor.seconds())
        if end is not None:
            words = "closing the connection from {peer}: " + why + "{end}"
            _log.warn(words, peer=peerAddress(self.transport.getPeer()), number=self.factory.number, end=end, **more)
        self.leave()


class EarlyClient(ForwardedClient):
    """A client of a listener that this node will serve itself."""

    def connectionMade(self) -> None:
        """Wait without reading."""
        self.forwarding = forwarding = self.factory.forwarding
        self.transport.pauseProducing()
        self._timer = forwarding.reactor.callLater(
            forwarding.wait, self.refuse, "this node is not in the mesh yet, so that it does not serve it"
        )
        forwarding.early[self] = None


class DelegatedClient(ForwardedClient):
    """The part of a client of this node that needs the journal; ``description`` is that of the client."""

    def __init__(self, forwarding: Forwarding, description: Mapping[str, Any]) -> None:
        self.factory = ForwardedFactory(forwarding, DELEGATE, "", None)
        self.description = description

    def serve(self) -> None:
        """Close: this node has become the owner meanwhile, so the client needs no connection."""
        self.leave()


class _OwnersSide(_Side):
    """The connection to the owner."""

    def __init__(self, client: ForwardedClient, preface: Preface) -> None:
        self.forwarding = client.forwarding
        self._client: ForwardedClient | None = client
        self._preface = preface

    def connect(self, place: OwnerAddress) -> None:
        self._connector = self.forwarding.reactor.connectTCP(place.host, place.port, _OnceFactory(self), CONNECT)

    def withdraw(self) -> None:
        """Learn that the client does not need it any more."""
        self._client = None
        if self.transport is None:
            self._connector.disconnect()
        else:
            self.transport.abortConnection()  # TLS would wait for an owner that hangs

    def connectionMade(self) -> None:
        if self.forwarding.tls is not None:
            startTls(self, self.forwarding.tls)
        tune(self.transport)
        tuneSocket(tcpSocket(self.transport))
        probePeer(self.transport, PROBE)
        self.transport.write(self._preface.encode())

    def dataReceived(self, data: bytes) -> None:
        """Learn that the owner accepts the client, then pass bytes on."""
        if self.other is not None:
            self.other.transport.write(data)
            return
        client, self._client = self._client, None
        if client is not None and data.startswith(ACCEPTED):
            client.accepted(self, data[len(ACCEPTED) :])
        else:
            self.transport.abortConnection()

    def unreached(self) -> None:
        if self._client is not None:
            self._client.failed()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End the client's side, also if the owner did not accept it."""
        if self._client is not None:
            self._client.refuse("the owner does not accept it: {error}", error=reason.getErrorMessage())
        super().connectionLost(reason)


class _OnceFactory(ClientFactory):
    """Returns one protocol."""

    noisy = False

    def __init__(self, protocol: _OwnersSide) -> None:
        self._protocol = protocol

    def buildProtocol(self, addr: Any) -> _OwnersSide:
        return self._protocol

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        self._protocol.unreached()
