"""Adds TLS to another endpoint, with a certificate that is reloaded when its files change.

New handshakes use the files' present content. Checking the files costs 10 us, during a handshake, at most once a
second. If files are missing, incomplete or do not match, the previous content stays in use, the log reports it once,
and the next change is tried again. Unlike Twisted's, a closed connection does not wait without limit for the peer.
"""

import time
from collections.abc import Callable
from typing import Any

from OpenSSL.crypto import X509StoreContext, X509StoreContextError
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
from fleximq.values.log_limit import LogLimit

#: Minimum interval of checks of the files, in seconds.
PAUSE = 1.0


@implementer(IOpenSSLServerConnectionCreator)
class RenewingCertificate:
    """Makes the server side of TLS connections. ``clock``: None for the system's. Raises SettingError."""

    def __init__(self, files: TlsFiles, clock: Any) -> None:
        self.files = files
        self._seconds: Callable[[], float] = time.monotonic if clock is None else clock.seconds
        self._lookedAt = self._seconds()
        self._seen = files.stamp()  # before reading, so that a concurrent write counts as a change
        self._context = serverContext(files)

    def serverConnectionForTLS(self, tlsProtocol: Any) -> Any:
        now = self._seconds()
        if now - self._lookedAt >= PAUSE:
            self._lookedAt = now
            self._look()
        return self._context.serverConnectionForTLS(tlsProtocol)

    def trusts(self, connection: Any) -> bool:
        """Return whether the files that are in use now accept the certificate of a connection's peer, if it has one."""
        own = connection.get_peer_certificate()
        if own is None or self.files.clientCA is None:
            return True
        store: Any = self._context.getContext().get_cert_store()
        try:
            X509StoreContext(store, own, connection.get_peer_cert_chain()).verify_certificate()
        except X509StoreContextError:
            return False
        return True

    def prepare(self, files: TlsFiles | None = None) -> Callable[[], None]:
        """Read the files, and return a function that uses them for new handshakes; raises SettingError."""
        wanted = files or self.files
        seen = wanted.stamp()
        context = serverContext(wanted)

        def use() -> None:
            self.files, self._seen, self._context = wanted, seen, context

        return use

    def _look(self) -> None:
        stamp = self.files.stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            context: Any = serverContext(self.files)
        except SettingError as error:
            _log.warn("A certificate has changed but is not taken, what was read before is: {reason}", reason=error)
            return
        self._context = context
        end = context.certificate.to_cryptography().not_valid_after_utc.strftime("%Y-%m-%d %H:%M UTC")
        _log.info("The certificate in {path} was read anew; it ends on {end}", path=self.files.certificate, end=end)


_log = Logger()

#: Seconds that a peer has to read pending output and to confirm the close.
LINGER = 30.0


@implementer(IStreamServerEndpoint)
class TlsEndpoint:
    """Listens with TLS where another endpoint listens. ``clock``: aborts connections that do not close in time."""

    def __init__(self, inner: IStreamServerEndpoint, certificate: RenewingCertificate, clock: Any) -> None:
        self.certificate = certificate
        self._inner = inner
        self._clock = clock

    def listen(self, protocolFactory: IProtocolFactory) -> "Deferred[Any]":
        """Listen; the factory's protocols read and write inside TLS."""
        return self._inner.listen(TlsFactory(self.certificate, False, protocolFactory, self._clock))


class TlsConnection(BufferingTLSTransport):
    """One connection."""

    factory: "TlsFactory"
    _linger: IDelayedCall | None = None

    @property
    def peerIsTrusted(self) -> bool:
        """Whether the peer's certificate would be accepted by a new handshake."""
        return self.factory.certificate.trusts(self._tlsConnection)

    def loseConnection(self) -> None:
        """Send pending output and close; wait for the peer's close for :data:`LINGER` seconds at most."""
        if self.connected and self._linger is None:
            self._linger = self.factory.clock.callLater(LINGER, self._cut)
        super().loseConnection()

    def _cut(self) -> None:
        self._linger = None
        self.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Notify the protocol, and log an error of TLS."""
        linger, self._linger = self._linger, None
        if linger is not None:
            linger.cancel()
        why = self._reason
        if why is not None and why.check(TlsError):
            more = self.factory.logLimit.ending(self.factory.clock.seconds())
            if more is not None:
                transport: Any = self.transport
                peer = peerAddress(transport.getPeer())
                _log.warn("TLS with {peer} failed: {why}{more}", peer=peer, why=_words(why.value), more=more)
        super().connectionLost(reason)


class TlsFactory(TLSMemoryBIOFactory):
    """Wraps the protocols of a factory."""

    protocol = TlsConnection

    def __init__(self, certificate: RenewingCertificate, isClient: bool, inner: IProtocolFactory, clock: Any) -> None:
        super().__init__(certificate, isClient, inner, clock)
        self.certificate = certificate
        self.clock = clock
        self.logLimit = LogLimit()


def _words(error: Any) -> str:
    queue = error.args[0] if error.args else None
    return str(queue[-1][-1]) if isinstance(queue, list) and queue else type(error).__name__
