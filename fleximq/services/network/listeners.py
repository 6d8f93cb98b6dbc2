"""Opens a listener when the broker starts and closes it when it stops.

A listener that cannot be opened ends the process with one sentence. Its connections are ended by their dialects, not
here. Standard input and output are both listener and connection: the broker stops when their client disconnects.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.config.settings import Settings
from fleximq.dialects.connection.tcp_socket import tuneSocket
from fleximq.endpoints.listen import Listen, ListenDefaults
from fleximq.endpoints.stale_sockets import makeFolder, removeStaleSocket
from fleximq.endpoints.standard_streams import StandardStreams
from fleximq.endpoints.tls_endpoint import RenewingCertificate, TlsEndpoint
from fleximq.services.network.open_files import SHORTAGE_PAUSE

_log = Logger()

#: Connections accepted in one reactor turn.
ACCEPTS_PER_ROUND = 10
#: As long as no more than this number may be accepted, it is one in a turn, since other listeners accept too.
SCARCE = 100
#: Seconds without accepting after connections were refused.
REFUSAL_PAUSE = 0.005


@dataclass(eq=False, repr=False)
class ListenerService(Service):
    """One listener.

    :param abortStart: called with a sentence if it cannot be opened before the reactor runs; does not return.
    :param abortRun: called with a sentence and the reactor if it fails later.
    :param refused: returns the number of connections closed at once so far.
    :param left: returns how many more the system's limit on open files permits.
    :param wrapPort: returns the factory of the open port, made from that of its endpoint with all layers, such as TLS;
        only for ports of TCP and UNIX sockets.
    """

    _reactor: Any
    listen: Listen
    _factory: IProtocolFactory
    _abortStart: Callable[[str], NoReturn]
    _abortRun: Callable[[str, Any], None]
    _refused: Callable[[], int] = lambda: 0
    _left: Callable[[], int] = lambda: SCARCE + 1
    _wrapPort: Callable[[IProtocolFactory], IProtocolFactory] | None = None
    _opening: Deferred[Any] | None = field(default=None, init=False)
    _waiting: list[Deferred[None]] = field(default_factory=list, init=False)
    port: Any = field(default=None, init=False)
    #: The certificate, if the broker renews it.
    certificate: RenewingCertificate | None = field(default=None, init=False)

    def whenOpen(self) -> "Deferred[None]":
        """Return a Deferred that fires when the port is open; at once if it is."""
        opened: Deferred[None] = Deferred()
        if self.port is not None:
            opened.callback(None)
        else:
            self._waiting.append(opened)
        return opened

    def privilegedStartService(self) -> None:
        """Open the port, while the process may still bind low ports."""
        super().privilegedStartService()
        self._open()

    def startService(self) -> None:
        """Open the port, unless already done with privileges."""
        super().startService()
        if self._opening is None:
            self._open()
        elif self.port is not None:
            self._logAddress()

    def stopService(self) -> Deferred[None]:
        """Close the port; the Deferred fires after it is closed and a UNIX socket's file removed."""
        super().stopService()
        opening, self._opening = self._opening, None
        if opening is None:
            return succeed(None)
        return opening.addCallback(lambda _: self._close())

    def _open(self) -> None:
        failures: list[Failure] = []
        self._opening = maybeDeferred(self._begin)
        self._opening.addCallbacks(self._opened, failures.append)
        if failures:
            self._abortStart(self._sentence(failures[0]))
        elif not self._opening.called:
            self._opening.addCallback(lambda _: self._failedLate(failures))

    def _failedLate(self, failures: list[Failure]) -> None:
        for failure in failures:
            self._abortRun(self._sentence(failure), self._reactor)

    def _sentence(self, failure: Failure) -> str:
        return f"cannot listen on {self.listen}: {_words(failure.value)}"

    def _begin(self) -> Any:
        listen = self.listen
        if listen.socketPath is not None:
            if listen.url is not None:
                makeFolder(listen.socketPath)
            removeStaleSocket(listen.socketPath)
        endpoint = listen.open(self._reactor)
        self.certificate = endpoint.certificate if isinstance(endpoint, TlsEndpoint) else None
        return endpoint.listen(self._factory)

    def _opened(self, port: Any) -> None:
        self.port = port
        if self._wrapPort is not None:  # nothing was accepted yet: that takes another turn of the reactor
            port.factory = self._wrapPort(port.factory)
        tuneSocket(getattr(port, "socket", None))
        acceptFew(port, self._reactor, self._refused, self._left)
        if self.running:
            self._logAddress()
        while self._waiting:
            self._waiting.pop(0).callback(None)
        if isinstance(port, StandardStreams):
            port.ended.addCallback(lambda _: self._clientGone())

    def _logAddress(self) -> None:
        """Log the address once the start is certain: the journal is opened between the two steps."""
        where = listeningAddress(self.listen.kind, self.port.getHost())
        _log.info("Listening on {where} ({served})", where=where, served=self.listen.served)

    def _clientGone(self) -> None:
        if self.running:
            _log.info("The client at standard input has gone: the broker stops")
            self._reactor.callWhenRunning(self._reactor.stop)

    def _close(self) -> Any:
        port, self.port = self.port, None
        if IListeningPort.providedBy(port):
            return port.stopListening()
        return None if port is None else port.finish(self._reactor)


def acceptFew(
    port: Any, reactor: Any, refused: Callable[[], int], left: Callable[[], int] = lambda: SCARCE + 1
) -> None:
    """Limit a port to :data:`ACCEPTS_PER_ROUND` accepted connections in one reactor turn; Twisted accepts 100 or more.

    After refusals, which ``refused`` counts, the port pauses for :data:`REFUSAL_PAUSE` seconds: otherwise peers that
    reconnect after each refusal would use all processor time. While no more are ``left``, it pauses too, and peers wait
    in the system's queue.
    """
    if not hasattr(port, "numberAccepts"):
        return
    doRead, seen = port.doRead, refused()

    def doReadFew() -> None:
        nonlocal seen
        room = left()
        wasRefused = seen != (seen := refused())
        if wasRefused or room <= 0:
            port.stopReading()
            reactor.callLater(REFUSAL_PAUSE if room > 0 else SHORTAGE_PAUSE, goOn)
            return
        port.numberAccepts = min(port.numberAccepts, ACCEPTS_PER_ROUND if room > SCARCE else 1)
        doRead()

    def goOn() -> None:
        if port.connected:
            port.startReading()

    port.doRead = doReadFew


def listeningAddress(kind: str, address: Any) -> str:
    """Return the address of a port, with its actual number: ``tcp:127.0.0.1:7890``, ``unix:/run/fleximq``."""
    host, name = getattr(address, "host", None), getattr(address, "name", None)
    if host is not None:
        return f"{kind}:[{host}]:{address.port}" if ":" in host else f"{kind}:{host}:{address.port}"
    return f"{kind}:{name.decode(errors='replace')}" if name is not None else f"{kind}:"


def _words(error: BaseException | None) -> str:
    """Return the system's reason why a port could not be opened, as the end of a sentence."""
    cause: object = error.socketError if isinstance(error, CannotListenError) else error
    words = (cause.strerror if isinstance(cause, OSError) else None) or " ".join(str(cause).split()).rstrip(".")
    words = words or type(cause).__name__
    return words[0].lower() + words[1:] if words.split()[0].istitle() else words


def prepareCertificates(listeners: Sequence[ListenerService], settings: Settings | None = None) -> Callable[[], None]:
    """Read all certificates, and return a function that applies them to new handshakes; no change is made before.

    :param settings: new settings for ``tls://`` and ``wss://``; None if the file names are the same.
    :raises SettingError: one cannot be used; all stay unchanged.
    """
    files = None if settings is None or settings.tlsCertificate is None else ListenDefaults.of(settings).tlsFiles
    ready = [
        each.certificate.prepare(files if each.listen.url is not None else None)
        for each in listeners
        if each.certificate is not None
    ]

    def use() -> None:
        for each in ready:
            each()

    return use
