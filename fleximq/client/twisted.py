"""The client for programs on Twisted: Deferreds, async iteration, and the reactor that it is given.

::

    client = await connect(reactor, "tcp://localhost:7890")
    await client.publish("news", {"rain": True})

This is the one module of the client library that knows Twisted.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from OpenSSL import SSL
from service_identity import CertificateError, VerificationError
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.error import (
    AlreadyCalled,
    AlreadyCancelled,
    ConnectError,
    ConnectingCancelledError,
    ConnectionDone,
    DNSLookupError,
)
from twisted.internet.interfaces import IConsumer, IDelayedCall, IPushProducer
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import Certificate, PrivateCertificate, optionsForClientTLS, trustRootFromCertificates
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.client.awaited import AwaitedClient, AwaitedSubscription, Cancellable, Function, Line, Listener, Loop
from fleximq.client.dial import IPC_FOLDER, checkTls
from fleximq.client.errors import ConnectionLost, Untrusted
from fleximq.client.pipes import ownPipes
from fleximq.client.settings import PATIENCE, ClientSettings, Start, State, Tls, Wishes
from fleximq.endpoints.standard_streams import StandardStreams
from fleximq.endpoints.urls import Url
from fleximq.errors import SettingError

__all__ = ["Client", "Subscription", "connect"]
_log = Logger()
#: Where one certificate of a PEM file ends.
_END = b"-----END CERTIFICATE-----"
#: What a peer says in TLS that does not trust a certificate, or wants one.
_ALERTS = ("alert certificate", "alert bad certificate", "unsupported certificate", "unknown ca", "access denied",
           "certificate verify failed", "certificate required")  # fmt: skip


def connect(reactor: Any, url: str = "tcp://localhost:7890", **wishes: Unpack[Wishes]) -> "Deferred[Client]":
    """Connect and join; close the client in the end, or use it in ``async with``.

    :param url: ``tcp://``, ``tls://``, ``ipc://``, ``ws://``, ``wss://``, or ``stdio://`` in a program that the broker
        has started.
    :param wishes: see :class:`~fleximq.client.settings.ClientSettings`; ``tls`` may be what Twisted calls an
        ``IOpenSSLClientConnectionCreator``.
    :raises SettingError: the URL or a wish makes no sense; like all errors, in the Deferred.
    :raises ConnectionLost: nobody listens there, or nobody who speaks FlexiMQ.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises JoinRefused: the broker does not let this client in.
    """

    async def opened() -> Client:
        place, settings = Url.parse(url), ClientSettings(**wishes)
        checkTls(place, settings)
        return Client(await AwaitedClient(_ReactorLoop(reactor), place, settings).open())

    return Deferred.fromCoroutine(opened())


class Client:
    """A connection to a broker, made by :func:`connect`, and made anew when it is lost.

    Values may be whatever MessagePack can hold, or the ``codec``; others raise TypeError, ValueError or OverflowError.
    What is published while the broker is away is kept for it, up to ``buffer`` bytes; whoever waits for an answer when
    the connection is lost gets :class:`~fleximq.client.errors.ConnectionLost`. All errors come in the Deferreds.
    """

    def __init__(self, inner: AwaitedClient) -> None:
        self._inner = inner

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close; if the block failed, at once and without a flush."""
        if error is None:
            await self._inner.close()
        else:
            self._inner.hangUp()

    @property
    def id(self) -> int:
        """The id that the broker gave to this connection; another one after the next."""
        return self._inner.id

    @property
    def state(self) -> State:
        """Where the client stands."""
        return self._inner.state

    def publish(self, topic: str, value: object, /, **keys: Any) -> "Deferred[None]":
        """Publish a value, see :meth:`AwaitedClient.publish <fleximq.client.awaited.AwaitedClient.publish>`."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.publish(topic, value, **keys))

    def publishMany(self, topic: str, values: Iterable[object]) -> "Deferred[None]":
        """Publish many values at once, which is much quicker than one by one; errors as :meth:`publish`."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.publishMany(topic, values))

    def notify(self, targets: int | Sequence[int], path: str, value: object = None) -> "Deferred[None]":
        """Send a notification to one client or several; nobody answers it."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.notify(targets, path, value))

    def broadcast(self, value: object = None) -> "Deferred[None]":
        """Send a value to every other client."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.broadcast(value))

    def flush(self, timeout: float | None = PATIENCE) -> "Deferred[None]":
        """Fire when all that was sent is done and, on durable topics, on disk.

        :raises PublishFailed: something was refused since the last flush; of several who flush, one is told.
        :raises ConnectionLost: the connection was lost since then; what was sent before may not have arrived. Each
            coroutine of whose publications that is so is told once, and so is the first of all others.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        return Deferred.fromCoroutine(self._inner.flush(timeout))

    def ping(self, timeout: float | None = PATIENCE) -> "Deferred[float]":
        """Fire with how many seconds the broker takes to answer, everything sent before included."""
        return Deferred.fromCoroutine(self._inner.ping(timeout))

    def request(
        self, target: int, path: str, value: object = None, timeout: float | None = PATIENCE
    ) -> "Deferred[Any]":
        """Ask another client and fire with its answer's value.

        :param target: its id.
        :raises RequestFailed: it answered with an error, or the broker could not reach it.
        :raises TimeoutError: there was no answer in so many seconds.
        :raises ConnectionLost: the connection ended; whether the request arrived is not known.
        :raises ValueError: the answer cannot be read.
        """
        return Deferred.fromCoroutine(self._inner.request(target, path, value, timeout))

    def ask(self, path: str, value: object = None, timeout: float | None = PATIENCE) -> "Deferred[Any]":
        """Ask the broker itself, e.g. ``/broker/about``; errors as for :meth:`request`."""
        return Deferred.fromCoroutine(self._inner.ask(path, value, timeout))

    def subscribe(
        self, topic: str, from_: Start | None = None, timeout: float | None = PATIENCE
    ) -> "Deferred[Subscription]":
        """Subscribe to a topic or pattern, and fire when the broker has done it.

        Parameters and errors as :meth:`AwaitedClient.subscribe <fleximq.client.awaited.AwaitedClient.subscribe>`.
        """

        async def subscribed() -> Subscription:
            return Subscription(await self._inner.subscribe(topic, from_, timeout))

        return Deferred.fromCoroutine(subscribed())

    def notifications(self) -> "Subscription":
        """Return what iterates over what comes from now on to this client itself: notifications and broadcasts."""
        return Subscription(self._inner.notifications())

    def serve(self, path: str, function: Function) -> None:
        """Answer requests to a path with what a function returns for each; it may return a Deferred or a coroutine.

        An :class:`~fleximq.client.errors.Answered` that it raises is the answer, with its status and words; any other
        exception is logged, and answered with 500. A path is served until the client is closed, over every connection.

        :raises ValueError: the path is served already.
        """
        self._inner.serve(path, function)

    def close(self, timeout: float | None = PATIENCE) -> "Deferred[None]":
        """Flush, if anything was sent since the last flush, and end the connection; iterations over subscriptions end.

        It is ended in any case; a second time nothing happens. Errors as :meth:`flush`.
        """
        return Deferred.fromCoroutine(self._inner.close(timeout))

    def hangUp(self) -> None:
        """End the connection at once, without a flush."""
        self._inner.hangUp()


class Subscription:
    """What is published to a topic or pattern, in order: iterate over it, or take one by one."""

    def __init__(self, inner: AwaitedSubscription) -> None:
        self._inner = inner

    @property
    def topic(self) -> str:
        """The topic or pattern."""
        return self._inner.topic

    @property
    def waiting(self) -> int:
        """How many deliveries came and were not taken."""
        return self._inner.waiting

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> AwaitedSubscription:
        """Iterate over every delivery, waiting for each as long as it takes, until this or the client is closed."""
        return self._inner

    def next(self, timeout: float | None = None) -> "Deferred[Any]":
        """Fire with the next delivery; None if none came within ``timeout`` seconds, or if this was closed.

        Errors as :meth:`AwaitedSubscription.next <fleximq.client.awaited.AwaitedSubscription.next>`.
        """
        return Deferred.fromCoroutine(self._inner.next(timeout))

    def close(self) -> None:
        """Subscribe no longer; what came before can still be taken."""
        self._inner.close()


class _Timer:
    """A delayed call that can be cancelled when it was called."""

    def __init__(self, call: IDelayedCall) -> None:
        self._call = call

    def cancel(self) -> None:
        with suppress(AlreadyCalled, AlreadyCancelled):
            self._call.cancel()


class _ReactorLoop(Loop):
    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def slot(self) -> tuple[Awaitable[None], Callable[[], None]]:
        waiting: Deferred[None] = Deferred()
        isFired = False

        def call() -> None:
            if not waiting.called:
                waiting.callback(None)

        def fire() -> None:
            # In a turn of its own: who waits goes on when the client is done with what it does now.
            nonlocal isFired
            if not isFired:
                isFired = True
                self._reactor.callLater(0, call)

        return waiting, fire

    def later(self, seconds: float, call: Callable[[], None]) -> Cancellable:
        return _Timer(self._reactor.callLater(seconds, call))

    def start(self, work: Coroutine[Any, Any, None]) -> Cancellable:
        running = Deferred.fromCoroutine(work)
        running.addErrback(lambda failure: failure.trap(CancelledError, ConnectingCancelledError) and None)
        running.addErrback(lambda failure: _log.failure("What a client does by itself failed", failure))
        return running

    async def dial(self, url: Url, settings: ClientSettings, listener: Listener) -> None:
        stream = _Stream(listener, f"cannot connect to {url}")
        if url.scheme == "stdio":
            StandardStreams(stream, *ownPipes(), reactor=self._reactor)
            return
        try:
            await self._endpoint(url, settings.timeout).connect(self._factory(url, settings, stream))
        except (ConnectError, DNSLookupError, OSError, ValueError, CancelledError) as error:
            raise ConnectionLost(f"cannot connect to {url}: {str(error) or type(error).__name__}") from error

    def _endpoint(self, url: Url, timeout: float) -> Any:
        if url.scheme == "ipc":
            return UNIXClientEndpoint(self._reactor, url.socketPath(IPC_FOLDER), timeout)
        return HostnameEndpoint(self._reactor, url.host or "localhost", url.port, timeout)

    def _factory(self, url: Url, settings: ClientSettings, stream: "_Stream") -> Any:
        plain = Factory.forProtocol(lambda: stream)
        if not url.isSecure:
            return plain
        # Of its own accord it would take the global reactor for its clock.
        return TLSMemoryBIOFactory(_creator(url.host or "localhost", settings.tls), True, plain, clock=self._reactor)


def _creator(host: str, tls: Any) -> Any:
    """Return what makes the connections of TLS to a host.

    :raises SettingError: a file cannot be read or used.
    """
    if tls is not None and not isinstance(tls, Tls):
        return tls
    files = tls or Tls()
    try:
        trusted = None
        if files.authority is not None:
            several = Path(files.authority).read_bytes().split(_END)[:-1]
            trusted = trustRootFromCertificates([Certificate.loadPEM(each + _END) for each in several])
        shown = None
        if files.certificate is not None:
            both = Path(files.key or files.certificate).read_bytes() + Path(files.certificate).read_bytes()
            shown = PrivateCertificate.loadPEM(both)
        return optionsForClientTLS(host, trustRoot=trusted, clientCertificate=shown)
    except (OSError, ValueError, SSL.Error) as error:
        raise SettingError(f"the files for TLS cannot be used: {error}") from error


@implementer(IPushProducer)
class _Stream(Protocol, Line):
    """A connection on the reactor; it is told by its transport when to write no more."""

    def __init__(self, listener: Listener, what: str) -> None:
        self._listener = listener
        self._what = what

    def connectionMade(self) -> None:
        transport: Any = self.transport
        with suppress(AttributeError):
            transport.setTcpNoDelay(True)
            transport.setTcpKeepAlive(True)
        IConsumer(transport).registerProducer(self, True)
        self._listener.lineMade(self)

    def dataReceived(self, data: bytes) -> None:
        self._listener.lineHeard(self, data)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        self._listener.lineLost(self, _lostBy(reason))

    # -- what the transport says -------------------------------------------------------------------

    def pauseProducing(self) -> None:
        self._listener.lineFull(self)

    def resumeProducing(self) -> None:
        self._listener.lineDrained(self)

    def stopProducing(self) -> None:
        self._listener.lineDrained(self)

    # -- what the client says ----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def pauseReading(self) -> None:
        self._transport.pauseProducing()

    def resumeReading(self) -> None:
        self._transport.resumeProducing()

    def close(self) -> None:
        self._transport.unregisterProducer()
        self._transport.loseConnection()

    def abort(self) -> None:
        self._transport.unregisterProducer()
        self._transport.abortConnection()

    @property
    def _transport(self) -> Any:
        return self.transport


def _lostBy(reason: Failure) -> ConnectionLost:
    error = reason.value
    if isinstance(error, ConnectionDone):
        return ConnectionLost("the broker closed the connection")
    if isinstance(error, VerificationError | CertificateError):
        return Untrusted("cannot connect: its certificate is not to be trusted, for it is for another host")
    said = str(error) or type(error).__name__
    if isinstance(error, SSL.Error):
        said = ", ".join(str(each[-1]) for each in error.args[0]) if error.args and error.args[0] else said
        if any(alert in said for alert in _ALERTS):
            return Untrusted(f"cannot connect: a certificate is not to be trusted ({said})")
    return ConnectionLost(f"the connection ended: {said}")
