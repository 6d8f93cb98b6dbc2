"""fleximq.services.network.node_ports: where a node listens for others, and what its key says of that."""

import errno
from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cluster.interfaces import NodeRecord, ShardOwner
from fleximq.endpoints.listen import Listen
from fleximq.limits import Limits
from fleximq.services.network.connection_limit import ConnectionLimit
from fleximq.services.network.forwarding import EarlyClient, ForwardedClient
from fleximq.services.network.node_ports import NodePorts

#: The first four are those of a mesh.
LISTENERS = (
    "fleximq+tcp:7890", "identity+tcp:7891", "fleximq+ws://127.0.0.1:7892", "identity+unix:/tmp/identity",
    "tcp:7893", "blipmq+tcp:7894", "minimq+tcp:7895", "http+tcp:7896",
)  # fmt: skip


class NodePortsTests(SynchronousTestCase):
    """A node in memory."""

    def opened(self, address: str | None, foreign: str = "") -> tuple[int, str]:
        """Open the listener for nodes; return its port and interface. ``foreign`` is no address of this machine."""
        reactor: Any = MemoryReactorClock()
        listen = reactor.listenTCP

        def listenTCP(port: int, factory: Any, backlog: int, interface: str) -> Any:
            if interface == foreign != "":
                raise CannotListenError(interface, port, OSError(errno.EADDRNOTAVAIL, "no such address"))
            return listen(port, factory, backlog, interface)

        reactor.listenTCP = listenTCP
        self.ports = NodePorts(reactor, "a", 10, address)
        self.assertEqual(self.ports.about, {})
        self.ports.open("10.0.0.1")
        ((port, _, _, interface),) = reactor.tcpServers
        return port, interface

    def test_open(self) -> None:
        """By default it is at the address in the cluster's network; another one, or a name, may be given."""
        for address, foreign, place, host in (
            (None, "", (0, "10.0.0.1"), "10.0.0.1"),
            ("10.0.0.2:7800", "", (7800, "10.0.0.2"), "10.0.0.2"),
            ("[fd00::2]:7800", "", (7800, "fd00::2"), "fd00::2"),
            ("east.example:7800", "", (7800, ""), "east.example"),
            ("192.0.2.1:7800", "192.0.2.1", (7800, ""), "192.0.2.1"),
        ):
            self.assertEqual(self.opened(address, foreign), place)
            self.assertEqual(self.ports.about["forward"]["host"], host)

    def test_aim(self) -> None:
        """Clients go to the owner's place once its key has it; two nodes have different secrets."""
        self.opened(None)
        owner = self.ports
        self.opened(None)
        for living, found in (
            ({}, None),
            ({"b": NodeRecord({})}, None),
            ({"b": NodeRecord({}, owner.about)}, "10.0.0.1"),
        ):
            self.ports.aim(ShardOwner("b", 1, 1), living)
            place = self.ports.forwarding.place
            self.assertEqual(place.host if place else None, found)
        self.assertNotEqual(owner.about["forward"]["secret"], self.ports.about["forward"]["secret"])

    def protocols(self, isMesh: bool, *changes: Callable[[NodePorts], None]) -> list[list[type]]:
        """Return the protocols that clients of :data:`LISTENERS` get at first, and after each change of the node."""
        reactor: Any = MemoryReactorClock()
        ports = NodePorts(reactor, "a", 10, isMesh=isMesh)
        limit = ConnectionLimit(reactor, Limits(), lambda: 0, lambda event, number: None)
        served = Factory.forProtocol(Protocol)
        shared = [ports.sharing(Listen.parse(each), limit)(served) for each in LISTENERS]
        found = []
        for change in (lambda ports: None, *changes):
            change(ports)
            built = [factory.buildProtocol(IPv4Address("TCP", "192.0.2.7", 5)) for factory in shared]
            found.append([type(each) for each in built])
            self.ready.append(ports.isReady)
        return found

    def test_mesh(self) -> None:
        """In a mesh the clients of its dialects, over TCP, WebSocket or a UNIX socket, are never forwarded: they wait
        until the node is in the mesh, which is not ready before.
        """
        self.ready: list[bool] = []
        found = self.protocols(True, NodePorts.joinMesh, NodePorts.serve)
        self.assertEqual(found[0], [EarlyClient] * 4 + [ForwardedClient] * 4)
        self.assertEqual(found[1], [Protocol] * 4 + [ForwardedClient] * 4)
        self.assertEqual(found[2], [Protocol] * 8)
        self.assertEqual(self.ready, [False, True, True])

    def test_withoutMesh(self) -> None:
        """Without a mesh all of them are forwarded until the node is the owner."""
        self.ready = []
        self.assertEqual(self.protocols(False, NodePorts.serve), [[ForwardedClient] * 8, [Protocol] * 8])
        self.assertEqual(self.ready, [True, True])
