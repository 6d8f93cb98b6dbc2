"""An endpoint that adds TLS to another one, with a certificate that renews itself.

Like Twisted's own, except that a connection which is closed is gone soon: Twisted waits for the peer's last word for
as long as the peer likes.
"""

from typing import Any

from OpenSSL.SSL import Error as TlsError
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IProtocolFactory, IStreamServerEndpoint
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.endpoints.renewal import RenewingCertificate
from fleximq.security.peer_address import peerAddress

_log = Logger("fleximq.endpoints.tls_endpoint")

#: Seconds that a peer has for taking what waits and for saying that it has heard that the connection is closed.
LINGER = 30.0


@implementer(IStreamServerEndpoint)
class TlsEndpoint:
    """Listens where another endpoint does, and speaks TLS there.

    :param clock: cuts connections that are closed but do not go.
    """

    def __init__(self, inner: IStreamServerEndpoint, certificate: RenewingCertificate, clock: Any) -> None:
        self.certificate = certificate
        self._inner = inner
        self._clock = clock

    def listen(self, protocolFactory: IProtocolFactory) -> "Deferred[Any]":
        """Listen; what the factory builds reads and writes inside TLS."""
        return self._inner.listen(TlsFactory(self.certificate, False, protocolFactory, self._clock))


class TlsConnection(BufferingTLSTransport):
    """One connection."""

    factory: "TlsFactory"
    _linger: IDelayedCall | None = None

    def loseConnection(self) -> None:
        """Send what waits and say goodbye; then wait for the peer to do so too, for :data:`LINGER` seconds at most."""
        if self.connected and self._linger is None:
            self._linger = self.factory.clock.callLater(LINGER, self._cut)
        super().loseConnection()

    def _cut(self) -> None:
        self._linger = None
        self.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the protocol, and the log if TLS was the reason."""
        linger, self._linger = self._linger, None
        if linger is not None:
            linger.cancel()
        why = self._reason
        if why is not None and why.check(TlsError):
            transport: Any = self.transport
            _log.warn("TLS with {peer} failed: {why}", peer=peerAddress(transport.getPeer()), why=_words(why.value))
        super().connectionLost(reason)


class TlsFactory(TLSMemoryBIOFactory):
    """Wraps the protocols of a factory."""

    protocol = TlsConnection

    def __init__(self, certificate: RenewingCertificate, isClient: bool, inner: IProtocolFactory, clock: Any) -> None:
        super().__init__(certificate, isClient, inner, clock)
        self.clock = clock


def _words(error: Any) -> str:
    """Return OpenSSL's last words."""
    queue = error.args[0] if error.args else None
    return str(queue[-1][-1]) if isinstance(queue, list) and queue else type(error).__name__
