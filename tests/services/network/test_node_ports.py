"""fleximq.services.network.node_ports: where a node listens for others, and what its key says of that."""

import errno
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cluster.interfaces import NodeRecord, ShardOwner
from fleximq.services.network.node_ports import NodePorts


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
