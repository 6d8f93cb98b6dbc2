"""Immediate TCP acknowledgements, on real sockets of the loopback interface."""

import socket
from typing import Any

from twisted.internet.interfaces import ISystemHandle, ITCPTransport
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import StringTransport
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from fleximq.dialects.connection.tcp_socket import quickAcks

_OPTION = getattr(socket, "TCP_QUICKACK", None)


@implementer(ITCPTransport, ISystemHandle)
class _Transport:  # type: ignore[misc]  # the rest of the two interfaces is not asked for
    """As much of a TCP transport as is asked for."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def getHandle(self) -> Any:
        return self._handle


class QuickAckTests(SynchronousTestCase):
    """What is asked of the socket."""

    if _OPTION is None:
        skip = "this platform has no TCP_QUICKACK"

    def connected(self) -> socket.socket:
        """Return one end of a TCP connection."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = socket.create_connection(server.getsockname())
            self.addCleanup(client.close)
            accepted, _ = server.accept()
        self.addCleanup(accepted.close)
        return accepted

    def isQuick(self, accepted: socket.socket) -> bool:
        """Return whether the system acknowledges at once."""
        return bool(accepted.getsockopt(socket.IPPROTO_TCP, _OPTION or 0))

    def test_asks(self) -> None:
        """Each call asks again, whatever the system has decided meanwhile."""
        accepted = self.connected()
        ask = quickAcks(_Transport(accepted))
        for _ in range(2):
            accepted.setsockopt(socket.IPPROTO_TCP, _OPTION or 0, 0)
            self.assertFalse(self.isQuick(accepted))
            ask()
            self.assertTrue(self.isQuick(accepted))

    def test_wrapped(self) -> None:
        """The socket is found under TLS and the like."""
        accepted = self.connected()
        wrapper = ProtocolWrapper(WrappingFactory(Factory.forProtocol(Protocol)), Protocol())
        wrapper.transport = _Transport(accepted)
        accepted.setsockopt(socket.IPPROTO_TCP, _OPTION or 0, 0)
        quickAcks(wrapper)()
        self.assertTrue(self.isQuick(accepted))

    def test_closed(self) -> None:
        """A socket that was closed meanwhile is no trouble."""
        accepted = self.connected()
        ask = quickAcks(_Transport(accepted))
        accepted.close()
        self.assertIsNone(ask())

    def test_otherSockets(self) -> None:
        """UNIX sockets have no such option, and are not asked."""
        one, other = socket.socketpair()
        self.addCleanup(one.close)
        self.addCleanup(other.close)
        self.assertIsNone(quickAcks(_Transport(one))())

    def test_otherTransports(self) -> None:
        """A transport without a socket is not asked."""
        self.assertIsNone(quickAcks(StringTransport())())
        self.assertIsNone(quickAcks(_Transport(None))())
