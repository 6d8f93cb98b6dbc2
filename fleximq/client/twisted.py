"""The client for programs on Twisted: Deferreds and asynchronous iteration.

::

    client = await connect(reactor, "tcp://localhost:7890")
    await client.publish("news", {"rain": True})
"""

from collections.abc import Iterable, Mapping, Sequence
from ssl import SSLContext
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from fleximq.client.backoff import Backoff
from fleximq.client.events import Delivery, Notification
from fleximq.client.loops.deferred import DeferredClient, DeferredSubscription
from fleximq.client.loops.loop_client import Function, LoopClient, LoopSubscription
from fleximq.client.loops.reactor import ReactorLoop
from fleximq.client.settings import (
    BACKOFF,
    BUFFER_BYTES,
    KEEP_ALIVE,
    MESSAGEPACK,
    PREFETCH_BYTES,
    TIMEOUT,
    ClientSettings,
    Codec,
    Start,
    Tls,
    Watcher,
)
from fleximq.client.sockets import checkTls
from fleximq.values.urls import Url

__all__ = ["Client", "Subscription", "connect"]

M = TypeVar("M", bound=Delivery | Notification)


def connect(
    reactor: Any,
    url: str = "tcp://localhost:7890",
    *,
    credentials: Mapping[str, str] | None = None,
    name: str | None = None,
    timeout: float = TIMEOUT,
    tls: Tls | SSLContext | IOpenSSLClientConnectionCreator | None = None,
    reconnect: Backoff | None = BACKOFF,
    buffer: int = BUFFER_BYTES,
    prefetch: int = PREFETCH_BYTES,
    keep_alive: float | None = KEEP_ALIVE,
    codec: Codec = MESSAGEPACK,
    on_state: Watcher | None = None,
) -> "Deferred[Client]":
    """Connect and join. Close the client at the end, or use it in ``async with``.

    The keyword arguments are described in :class:`~fleximq.client.settings.ClientSettings`.

    :param url: ``tcp://``, ``tls://``, ``ipc://``, ``ws://``, ``wss://``, or ``stdio://`` in a program that the broker
        has started.
    :raises SettingError: the URL or a setting is invalid. All errors are in the Deferred.
    :raises ConnectionLost: no FlexiMQ broker answers there.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises JoinRefused: the broker refused to admit the client.
    """

    async def opened() -> Client:
        address = Url.parse(url)
        settings = ClientSettings(
            credentials=credentials,
            name=name,
            timeout=timeout,
            tls=tls,
            reconnect=reconnect,
            buffer=buffer,
            prefetch=prefetch,
            keep_alive=keep_alive,
            codec=codec,
            on_state=on_state,
        )
        checkTls(address, settings)
        return Client(await LoopClient(ReactorLoop(reactor), address, settings).open())

    return Deferred.fromCoroutine(opened())


class Client(DeferredClient[LoopClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    Values are of the types that MessagePack, or the ``codec``, can encode; others raise TypeError, ValueError or
    OverflowError. While the broker is unreachable, publications are buffered up to ``buffer`` bytes. When the
    connection is lost, calls that wait for an answer fail with :class:`~fleximq.client.errors.ConnectionLost`. All
    errors are in the Deferreds.
    """

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def id(self) -> int:
        """The id that the broker assigned to this connection; it changes when the client reconnects."""
        return self._inner.id

    def publish(
        self,
        topic: str,
        value: object,
        /,
        *,
        key: str | bytes | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> "Deferred[None]":
        """Publish a value.

        Parameters and errors as :meth:`LoopClient.publish <fleximq.client.loops.loop_client.LoopClient.publish>`.
        """
        self._inner.claim()
        published = self._inner.publish(
            topic,
            value,
            key=key,
            message_id=message_id,
            correlation_id=correlation_id,
            reply_to=reply_to,
            headers=headers,
        )
        return Deferred.fromCoroutine(published)

    def publish_many(self, topic: str, values: Iterable[object]) -> "Deferred[None]":
        """Publish several values at once, several times as fast as single ones; errors as :meth:`publish`."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.publish_many(topic, values))

    def notify(self, targets: int | Sequence[int], path: str, value: object = None) -> "Deferred[None]":
        """Send a notification, which has no answer, to one or more clients."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.notify(targets, path, value))

    def broadcast(self, value: object = None) -> "Deferred[None]":
        """Send a value to every other client."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.broadcast(value))

    def flush(self, timeout: float | None = TIMEOUT) -> "Deferred[None]":
        """Fire when the broker has processed everything sent so far and, on durable topics, written it to disk.

        :raises PublishFailed: a message sent since the last flush was refused; raised by one of concurrent flushes.
        :raises ConnectionLost: the connection was lost since the last flush, so messages may be lost. Raised once in
            each coroutine that has sent such messages, and once in the first other one that flushes.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        return Deferred.fromCoroutine(self._inner.flush(timeout))

    def request(self, target: int, path: str, value: object = None, timeout: float | None = TIMEOUT) -> "Deferred[Any]":
        """Send a request to another client and fire with the value of its answer.

        :param target: the client's id.
        :raises RequestFailed: the answer is an error, or the broker could not reach the client.
        :raises TimeoutError: no answer within ``timeout`` seconds.
        :raises ConnectionLost: the connection ended; the request may have arrived.
        :raises ValueError: the answer cannot be decoded.
        """
        return Deferred.fromCoroutine(self._inner.request(target, path, value, timeout))

    def ask(self, path: str, value: object = None, timeout: float | None = TIMEOUT) -> "Deferred[Any]":
        """Send a request to the broker itself, e.g. ``/broker/about``; errors as for :meth:`request`."""
        return Deferred.fromCoroutine(self._inner.ask(path, value, timeout))

    def subscribe(
        self, topic: str, from_: Start | None = None, timeout: float | None = TIMEOUT
    ) -> "Deferred[Subscription[Delivery]]":
        """Subscribe to a topic or pattern, and fire when the broker has confirmed it.

        Parameters and errors as :meth:`LoopClient.subscribe
        <fleximq.client.loops.loop_client.LoopClient.subscribe>`.
        """

        async def subscribed() -> Subscription[Delivery]:
            return Subscription(await self._inner.subscribe(topic, from_, timeout))

        return Deferred.fromCoroutine(subscribed())

    def notifications(self) -> "Subscription[Notification]":
        """Return a subscription to the notifications and broadcasts that this client receives from now on."""
        return Subscription(self._inner.notifications())

    def serve(self, path: str, function: Function) -> None:
        """Answer requests to a path with the result of a function, which may return a Deferred or a coroutine.

        If it raises :class:`~fleximq.client.errors.Answered`, that status and text are the answer; other exceptions are
        logged and answered with 500. The path is served until the client is closed, also after a reconnect.

        :raises ValueError: the path is already served.
        """
        self._inner.serve(path, function)


class Subscription(DeferredSubscription[LoopSubscription[M], M]):
    """The messages of a topic or pattern, in order: iterate over it, or call :meth:`next`.

    Errors as :meth:`LoopSubscription.next <fleximq.client.loops.loop_client.LoopSubscription.next>`.
    """

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def topic(self) -> str:
        """The topic or pattern; "" for notifications."""
        return self._inner.topic
