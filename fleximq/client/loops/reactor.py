"""Twisted's reactor for clients, with its endpoints and its TLS."""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from OpenSSL import SSL
from service_identity import CertificateError, VerificationError
from twisted.internet import error as reasons
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import IConsumer, IPushProducer
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import Certificate, PrivateCertificate, optionsForClientTLS, trustRootFromCertificates
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.client.errors import ConnectionLost, Untrusted
from fleximq.client.loops.connection import Cancel, Connection, Loop, Transport
from fleximq.client.loops.steady_timers import timersOf
from fleximq.client.settings import ClientSettings, Tls
from fleximq.client.sockets import IPC_FOLDER, takeStandardStreams
from fleximq.endpoints.standard_streams import StandardStreams
from fleximq.values.urls import Url

_log = Logger()
#: The end of a certificate in a PEM file.
_END = b"-----END CERTIFICATE-----"
#: TLS errors of a peer that does not trust a certificate, or requires one.
_ALERTS = ("alert certificate", "alert bad certificate", "unsupported certificate", "unknown ca", "access denied",
           "certificate verify failed", "certificate required")  # fmt: skip


class ReactorLoop(Loop):
    """A Twisted reactor; ``endpoint`` replaces those that it would make of URLs."""

    def __init__(self, reactor: Any, endpoint: Any = None) -> None:
        self._reactor = reactor
        self._endpoint = endpoint

    def slot(self) -> tuple[Awaitable[None], Callable[[], None]]:
        waiting: Deferred[None] = Deferred()

        def fire() -> None:
            if not waiting.called:
                waiting.callback(None)

        # In the next turn, so that the waiting coroutine continues after the current operation of the client.
        return waiting, lambda: self._reactor.callLater(0, fire)

    def later(self, seconds: float, call: Callable[[], None]) -> Cancel:
        timer = (timersOf(self._reactor) if seconds else self._reactor).callLater(seconds, call)
        return lambda: timer.cancel() if timer.active() else None

    def start(self, work: Coroutine[Any, Any, None]) -> Cancel:
        running = Deferred.fromCoroutine(work)
        running.addErrback(lambda failure: failure.trap(CancelledError, reasons.ConnectingCancelledError) and None)
        running.addErrback(lambda failure: _log.failure("A background task of a client failed", failure))
        return running.cancel

    async def dial(self, url: Url, settings: ClientSettings, connection: Connection) -> None:
        stream = Stream()
        stream.attach(connection)
        if url.scheme == "stdio":
            StandardStreams(stream, *takeStandardStreams(), reactor=self._reactor)
            return
        host = url.host or "localhost"
        factory: Any = Factory.forProtocol(lambda: stream)
        try:
            if self._endpoint is not None:
                endpoint: Any = self._endpoint
            elif url.scheme == "ipc":
                endpoint = UNIXClientEndpoint(self._reactor, url.socketPath(IPC_FOLDER), timeout=None)
            else:
                endpoint = HostnameEndpoint(self._reactor, host, url.port, timeout=None)  # type: ignore[arg-type]
            if url.isSecure:
                # By default its clock would be the global reactor.
                factory = TLSMemoryBIOFactory(_creator(host, settings.tls), True, factory, clock=self._reactor)
            await self._within(settings.timeout, endpoint.connect(factory))
        except (reasons.ConnectError, reasons.DNSLookupError, OSError, ValueError) as error:
            raise ConnectionLost(f"cannot connect to {url}: {str(error) or type(error).__name__}") from None

    async def _within(self, seconds: float, connecting: "Deferred[Any]") -> None:
        """Wait for a connection; raises Twisted's TimeoutError. The endpoint's own timeout follows the system clock."""
        isLate = False

        def giveUp() -> None:
            nonlocal isLate
            isLate = True
            connecting.cancel()

        cancel = self.later(seconds, giveUp)
        try:
            await connecting
        except (CancelledError, reasons.ConnectingCancelledError):
            if isLate:
                raise reasons.TimeoutError from None
            raise
        finally:
            cancel()


def _creator(host: str, tls: Any) -> Any:
    """Return the factory of TLS connections to a host; raises SettingError if a file cannot be read or used."""
    if tls is not None and not isinstance(tls, Tls):
        return tls
    files = tls or Tls()
    files.check_files()
    try:
        trusted = None
        if files.authority is not None:
            several = Path(files.authority).read_bytes().split(_END)[:-1]
            if not several:
                raise ValueError("no certificate found")
            trusted = trustRootFromCertificates([Certificate.loadPEM(each + _END) for each in several])
        shown = None
        if files.certificate is not None:
            both = Path(files.key or files.certificate).read_bytes() + Path(files.certificate).read_bytes()
            shown = PrivateCertificate.loadPEM(both)
        return optionsForClientTLS(host, trustRoot=trusted, clientCertificate=shown)
    except (OSError, ValueError, SSL.Error) as error:
        raise files.refused(error) from error


@implementer(IPushProducer)
class Stream(Protocol, Transport):
    """A connection on the reactor; as a push producer it learns when to pause writing."""

    transport: Any
    #: Whether it has the connection of a client to report to.
    isAttached = False
    _connection: Connection

    def attach(self, connection: Connection) -> None:
        """Report events to a client's connection from now on."""
        self._connection, self.isAttached = connection, True
        connection.transportMade(self)
        if self.connected:
            self._begin()

    def connectionMade(self) -> None:
        self._begin()

    def _begin(self) -> None:
        with suppress(AttributeError):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
        IConsumer(self.transport).registerProducer(self, True)
        self._connection.transportConnected(self)

    def dataReceived(self, data: bytes) -> None:
        self._connection.bytesReceived(self, data)

    def connectionLost(self, reason: Failure = Failure(reasons.ConnectionDone())) -> None:  # noqa: B008
        self._connection.transportLost(self, _lostBy(reason))

    def pauseProducing(self) -> None:
        self._connection.transportPaused(self)

    def resumeProducing(self) -> None:
        # A socket that was to be closed after its output would not be closed while a producer is registered: so it
        # stays open where the broker ends TLS after it has refused a large message.
        self.transport.unregisterProducer()
        self.transport.registerProducer(self, True)
        self._connection.transportResumed(self)

    def stopProducing(self) -> None:
        self._connection.transportResumed(self)

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def pauseReading(self) -> None:
        self.transport.pauseProducing()

    def resumeReading(self) -> None:
        self.transport.resumeProducing()

    def close(self) -> None:
        self.transport.unregisterProducer()
        self.transport.loseConnection()

    def abort(self) -> None:
        self.transport.unregisterProducer()
        self.transport.abortConnection()


def _lostBy(reason: Failure) -> ConnectionLost:
    error = reason.value
    if isinstance(error, reasons.ConnectionDone):
        return ConnectionLost("the broker closed the connection")
    if isinstance(error, VerificationError | CertificateError):
        return Untrusted("cannot connect: its certificate is for another host")
    said = str(error) or type(error).__name__
    if isinstance(error, SSL.Error):
        said = ", ".join(str(each[-1]) for each in error.args[0]) if error.args and error.args[0] else said
        if any(alert in said for alert in _ALERTS):
            return Untrusted(f"cannot connect: a certificate is not trusted ({said})")
    return ConnectionLost(f"the connection ended: {said}")
