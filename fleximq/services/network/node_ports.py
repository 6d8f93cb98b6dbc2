"""The ports of a node of a cluster: its listeners, which forward until it is the owner, and the one for other nodes.

A listener opens once. Its connections reach the broker of this node while that one serves, and the owner otherwise.
"""

import secrets
from collections.abc import Callable, Mapping
from errno import EADDRNOTAVAIL
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IProtocolFactory
from twisted.logger import Logger
from twisted.protocols.policies import WrappingFactory

from fleximq.cluster.interfaces import NodeRecord, ShardOwner
from fleximq.dialects.connection.tcp_socket import tuneSocket
from fleximq.endpoints.endpoint_string import BACKLOG
from fleximq.endpoints.listen import Listen
from fleximq.errors import SettingError
from fleximq.security.peer_address import isAddress
from fleximq.services.network.connection_limit import ConnectionLimit
from fleximq.services.network.forwarding import ForwardedFactory, Forwarding, OwnerAddress
from fleximq.services.network.listeners import acceptFew
from fleximq.services.network.node_listener import BuildDelegate, NodeListener, makeContext
from fleximq.services.network.open_files import Shortage

_log = Logger()

#: The dialects that each node of a mesh serves, on listeners of one of them alone.
MESHED = frozenset({"fleximq", "identity"})


class NodePorts(MultiService):
    """The listeners of this node, as its services.

    :param wait: the seconds for which a client waits for an owner.
    :param address: the ``HOST:PORT`` by which other nodes reach this one; None to choose a port.
    :param isEncrypted: whether their connections are.
    :param isMesh: whether this node serves the listeners of :data:`MESHED` dialects itself, as soon as it is in a mesh.
    """

    def __init__(
        self,
        reactor: Any,
        node: str,
        wait: float,
        address: str | None = None,
        isEncrypted: bool = False,
        isMesh: bool = False,
    ) -> None:
        super().__init__()
        self.forwarding = Forwarding(reactor, node, wait)
        self.isServing = False
        self.isInMesh = False
        self._isMesh = isMesh
        self._meshed: set[int] = set()
        self._reactor = reactor
        self._address = address
        self._kinds: list[str] = []
        self._served: dict[int, IProtocolFactory] = {}
        tls, self._certificate = makeContext() if isEncrypted else (None, "")
        self._nodes = NodeListener(reactor, secrets.token_hex(16), self._served, tls)
        self._port: Any = None
        self._host = ""

    def sharing(self, listen: Listen, limit: ConnectionLimit) -> "Callable[[IProtocolFactory], NodeFactory]":
        """Return the wrapper of a listener's port, see :class:`ListenerService`.

        :raises SettingError: its clients cannot be forwarded.
        """
        if not listen.isSocket:
            raise SettingError(
                f"listen is {str(listen)!r}, but a node of a cluster listens on TCP or UNIX sockets only"
            )
        number = len(self._kinds)
        self._kinds.append(f"{listen.dialect or ''}+{listen.kind.lower()}")
        isOwn = self._isMesh and listen.dialect in MESHED
        if isOwn:
            self._meshed.add(number)

        def share(served: IProtocolFactory) -> "NodeFactory":
            self._served[number] = served
            forwarded = ForwardedFactory(self.forwarding, number, self._kinds[number], served, isOwn)
            return NodeFactory(lambda: self.serves(number), served, limit.limited(forwarded, listen.proxied))

        return share

    @property
    def isReady(self) -> bool:
        """Whether this node does not let clients wait that it will serve itself."""
        return self.isServing or self.isInMesh or not self._isMesh

    @property
    def about(self) -> Mapping[str, Any]:
        """The part of this node's key about its ports."""
        if self._port is None:
            return {}
        place = OwnerAddress(self._host, self._port.getHost().port, self._nodes.secret, self._kinds, self._certificate)
        return {"forward": place._asdict()}

    def acceptDelegates(self, build: BuildDelegate) -> None:
        """Serve clients of other nodes that need the journal."""
        self._nodes.delegates = build

    def open(self, host: str) -> None:
        """Open the listener for other nodes at this host of the cluster's network; raises CannotListenError."""
        port = 0
        if self._address is not None:
            host, _, digits = self._address.rpartition(":")
            host, port = host.strip("[]"), int(digits)
        self._host = host
        try:
            self._listen(port, host if isAddress(host) else "")
        except CannotListenError as error:
            if error.socketError.errno != EADDRNOTAVAIL:
                raise
            self._listen(port, "")  # the address is translated on the way
        _log.info("other nodes reach this one at {host}:{port}", host=host, port=self._port.getHost().port)

    def _listen(self, port: int, interface: str) -> None:
        self._port = self._reactor.listenTCP(port, self._nodes, BACKLOG, interface)
        tuneSocket(getattr(self._port, "socket", None))
        acceptFew(self._port, self._reactor, lambda: 0, Shortage(self._reactor).left)

    def aim(self, owner: ShardOwner, living: Mapping[str, NodeRecord]) -> None:
        """Forward to this owner, once its key is known."""
        known = living.get(owner.node)
        self.forwarding.aim(owner.node, None if known is None else known.about.get("forward"))

    def serves(self, number: int) -> bool:
        """Return whether this node's broker serves the connections of a listener."""
        return self.isServing or (self.isInMesh and number in self._meshed)

    def joinMesh(self) -> None:
        """Pass connections to listeners for dialects of a mesh to this node's broker."""
        self.isInMesh = True
        self.forwarding.serveEarly()

    def serve(self) -> None:
        """Pass all connections to this node's broker."""
        self.isServing = True
        self.forwarding.serve()
        self._nodes.serve()

    def stopService(self) -> "Deferred[Any]":
        """Close all ports, and end the forwarded connections."""
        self.forwarding.stop()
        port, self._port = self._port, None
        closed = maybeDeferred(lambda: None if port is None else port.stopListening())
        return closed.addCallback(lambda _: super(NodePorts, self).stopService())


class NodeFactory(WrappingFactory[Any]):
    """The factory of an open port: ``served`` while this node serves it, ``forwarded`` otherwise."""

    noisy = False

    def __init__(self, serves: Callable[[], bool], served: IProtocolFactory, forwarded: IProtocolFactory) -> None:
        super().__init__(served)
        self._serves = serves
        self._forwarded = forwarded

    def logPrefix(self) -> str:
        return "FlexiMQ"

    def buildProtocol(self, addr: Any) -> Any:
        return (self.wrappedFactory if self._serves() else self._forwarded).buildProtocol(addr)
