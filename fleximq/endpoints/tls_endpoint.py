"""An endpoint that adds TLS to another one, with a certificate that renews itself.

Like Twisted's own, except that a connection which is closed is gone soon: Twisted waits for the peer's last word for
as long as the peer likes.

A certificate that is renewed on disk while it is served.

Connections that are there keep what they were made with; new handshakes get what the files hold. A look at the files
costs 10 us, and is taken when somebody comes, at most once a second. Files that are missing, half-written or do not
belong together change nothing: what was read last stays, the log says so once, and the next change is looked at again.
"""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from OpenSSL.SSL import Error as TlsError
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IDelayedCall,
    IOpenSSLServerConnectionCreator,
    IProtocolFactory,
    IStreamServerEndpoint,
)
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.endpoints.tls_context import TlsFiles, serverContext
from fleximq.errors import SettingError
from fleximq.security.peer_address import peerAddress

_renewalLog = Logger("fleximq.endpoints.renewal")

#: Seconds between two looks at the files.
PAUSE = 1.0


@implementer(IOpenSSLServerConnectionCreator)
class RenewingCertificate:
    """Makes the server's side of TLS connections.

    ``expires`` is the end of the present certificate, in seconds since 1970.

    :param seconds: a clock that never goes back.
    :raises SettingError: the files cannot be used, in the words of :func:`fleximq.endpoints.tls_context.serverContext`.
    """

    def __init__(self, files: TlsFiles, seconds: Callable[[], float] = time.monotonic) -> None:
        self.files = files
        self._seconds = seconds
        self._lookedAt = seconds()
        self._seen = files.stamp()  # before it is read: what is written meanwhile is a change
        self._context = serverContext(files)

    @property
    def expires(self) -> float:
        """When the certificate that is shown ends, in seconds since 1970."""
        return _endOf(self._context).timestamp()

    def serverConnectionForTLS(self, tlsProtocol: Any) -> Any:
        """Return a new connection with the newest certificate that can be used."""
        now = self._seconds()
        if now - self._lookedAt >= PAUSE:
            self._lookedAt = now
            self._look()
        return self._context.serverConnectionForTLS(tlsProtocol)

    def prepare(self, files: TlsFiles | None = None) -> Callable[[], None]:
        """Read the files anew, and return what makes the next handshakes use them; nothing changes until it is called.

        :param files: others than before; None: the same.
        :raises SettingError: they cannot be used.
        """
        wanted = files or self.files
        seen = wanted.stamp()
        context = serverContext(wanted)

        def use() -> None:
            self.files, self._seen, self._context = wanted, seen, context

        return use

    def reload(self) -> None:
        """Read the files anew for the next handshakes.

        :raises SettingError: they cannot be used; what was read last stays.
        """
        self.prepare()()

    def _look(self) -> None:
        stamp = self.files.stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            context = serverContext(self.files)
        except SettingError as error:
            _renewalLog.warn(
                "A certificate has changed but is not taken, what was read before is: {reason}", reason=error
            )
            return
        self._context = context
        _renewalLog.info(
            "The certificate in {path} was read anew; it ends on {end}",
            path=self.files.certificate,
            end=_endOf(context).strftime("%Y-%m-%d %H:%M UTC"),
        )


def _endOf(context: Any) -> datetime:
    end: datetime = context.certificate.to_cryptography().not_valid_after_utc
    return end


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
