"""Clients of TLS in memory, against a listener that is opened on a reactor in memory."""

import contextlib
import ssl
from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransportWithDisconnection
from twisted.python.failure import Failure

#: Where clients come from.
PEER = IPv4Address("TCP", "192.0.2.7", 50000)


class Echo(Protocol):
    """Sends back what it hears, and notes how it went."""

    def __init__(self) -> None:
        self.heard = b""
        self.reason: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        """Send it back."""
        self.heard += data
        transport: Any = self.transport
        transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Note why."""
        self.reason = reason


class Wire(StringTransportWithDisconnection):
    """The server's end of a connection; it is lost in the reactor's next turn, as real ones are."""

    def __init__(self, reactor: MemoryReactorClock) -> None:
        super().__init__(peerAddress=PEER)
        self.aborted = False
        self._reactor = reactor
        self._losing = False

    def loseConnection(self) -> None:
        """End it."""
        if not self._losing:
            self._losing = True
            self._reactor.callLater(0, super().loseConnection)

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Take no notice, as with the next one."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """There is nothing to keep alive."""

    def abortConnection(self) -> None:
        """End it, whatever waits."""
        self.aborted = True
        self.loseConnection()


class TlsPeer:
    """One client of a listening factory; bytes go to and fro until neither side has any."""

    def __init__(self, reactor: MemoryReactorClock, factory: IProtocolFactory, context: ssl.SSLContext) -> None:
        self._reactor = reactor
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.wire = Wire(reactor)
        self.server = cast(Any, factory.buildProtocol(PEER))
        self.wire.protocol = self.server
        #: The server's protocol inside TLS.
        self.inner: Any = self.server.wrappedProtocol
        self.server.makeConnection(self.wire)

    def exchange(self) -> None:
        """Carry bytes until there are none."""
        while True:
            self._reactor.advance(0)
            heard, said = self.wire.value(), self._outgoing.read()
            self.wire.clear()
            self._incoming.write(heard)
            if said and self.wire.connected:
                self.server.dataReceived(said)
            if not heard and not said:
                return

    def begin(self) -> None:
        """Begin the handshake, without sending anything."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()

    def outgoing(self) -> bytes:
        """Return what the client would send next."""
        return self._outgoing.read()

    def handshake(self) -> dict[str, Any]:
        """Do it and return the server's certificate.

        :raises ssl.SSLError: the handshake failed.
        """
        for _ in range(4):
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.exchange()
            else:
                break
        self.exchange()
        return self.tls.getpeercert() or {}

    def asked(self, text: bytes) -> bytes:
        """Say something and return the answer.

        :raises ssl.SSLError: the server did not like the handshake, or has closed.
        """
        self.tls.write(text)
        self.exchange()
        return self.tls.read(1 << 16)

    def nameShown(self) -> str:
        """Do the handshake and return whose certificate it is."""
        return str(dict(pair for (pair,) in self.handshake()["subject"])["commonName"])
