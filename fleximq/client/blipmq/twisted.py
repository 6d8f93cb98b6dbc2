"""The BlipMQ client for programs on Twisted: Deferreds and asynchronous iteration.

::

    client = await connect(reactor, "tcp://localhost:7890", key="secret")
    await client.publish("orders", b"two apples")
"""

from collections.abc import Iterable
from ssl import SSLContext
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from fleximq.client.backoff import Backoff
from fleximq.client.blipmq.conversation import BlipDelivery
from fleximq.client.blipmq.loop_client import PREFETCH, LoopBlipClient, LoopBlipSubscription
from fleximq.client.errors import Nacked
from fleximq.client.loops.deferred import DeferredClient
from fleximq.client.loops.reactor import ReactorLoop
from fleximq.client.queues.deferred import DeferredPulled
from fleximq.client.queues.reconnecting_link import IDLE
from fleximq.client.settings import (
    BACKOFF,
    BUFFER_BYTES,
    KEEP_ALIVE,
    TIMEOUT,
    ClientSettings,
    Tls,
    Watcher,
)
from fleximq.values.urls import Url

__all__ = ["BlipClient", "BlipDelivery", "BlipSubscription", "Nacked", "connect"]


def connect(
    reactor: Any,
    url: str = "tcp://localhost:7890",
    key: str = "",
    *,
    timeout: float = TIMEOUT,
    tls: Tls | SSLContext | IOpenSSLClientConnectionCreator | None = None,
    reconnect: Backoff | None = BACKOFF,
    buffer: int = BUFFER_BYTES,
    keep_alive: float | None = KEEP_ALIVE,
    on_state: Watcher | None = None,
) -> "Deferred[BlipClient]":
    """Connect and authenticate. Close the client at the end, or use it in ``async with``.

    Parameters and errors as :func:`fleximq.client.blipmq.blocking.connect`; the errors are in the Deferred.
    """

    async def opened() -> BlipClient:
        settings = ClientSettings(
            timeout=timeout, tls=tls, reconnect=reconnect, buffer=buffer, keep_alive=keep_alive, on_state=on_state
        )
        return BlipClient(await LoopBlipClient(ReactorLoop(reactor), Url.parse(url), settings, key).open())

    return Deferred.fromCoroutine(opened())


class BlipClient(DeferredClient[LoopBlipClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    While the broker is unreachable, publications are buffered up to ``buffer`` bytes. Parameters and errors are those
    of :class:`~fleximq.client.blipmq.loop_client.LoopBlipClient`; errors are in the Deferreds.
    """

    def publish(self, topic: str, payload: bytes | str, qos: int = 1) -> "Deferred[int]":
        """Publish a message and fire with its number; :meth:`flush` waits until it is processed."""
        return Deferred.fromCoroutine(self._inner.publish(topic, payload, qos))

    def publish_many(self, topic: str, payloads: Iterable[bytes | str], qos: int = 1) -> "Deferred[range]":
        """Publish several messages at once, several times as fast as single ones; fire with their numbers."""
        return Deferred.fromCoroutine(self._inner.publish_many(topic, payloads, qos))

    def subscribe(
        self,
        topic: str,
        qos: int = 1,
        prefetch: int = PREFETCH,
        idle: Backoff = IDLE,
        timeout: float | None = TIMEOUT,
    ) -> "Deferred[BlipSubscription]":
        """Subscribe to a topic, and fire when the broker has confirmed it."""

        async def subscribed() -> BlipSubscription:
            return BlipSubscription(await self._inner.subscribe(topic, qos, prefetch, idle, timeout))

        return Deferred.fromCoroutine(subscribed())

    def resume(self, id: int, prefetch: int = PREFETCH, idle: Backoff = IDLE) -> "BlipSubscription":
        """Continue a subscription by its ``id``; it may be of an earlier client with the same key."""
        return BlipSubscription(self._inner.resume(id, prefetch, idle))

    def ack(self, delivery: BlipDelivery) -> None:
        """Acknowledge a delivery now instead of on the next :meth:`BlipSubscription.next`."""
        self._inner.ack(delivery)

    def flush(self, timeout: float | None = TIMEOUT) -> "Deferred[None]":
        """Fire when the broker has processed everything sent so far; with QoS 1 on durable topics, written to disk.

        :raises Nacked: a message sent since the last flush was refused; raised by one of concurrent flushes.
        :raises ConnectionLost: the connection was lost since the last flush, so messages may be lost.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        return Deferred.fromCoroutine(self._inner.flush(timeout))


class BlipSubscription(DeferredPulled[LoopBlipSubscription, BlipDelivery]):
    """The messages of a topic, in order: iterate over it, or call :meth:`next`.

    A delivery is acknowledged when the next one is requested, so after the body of the loop. If the loop ends early,
    its last delivery is not acknowledged, and the broker delivers it again.
    """

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def id(self) -> int:
        """The id at the broker; another client with the same key can resume it."""
        return self._inner.id

    @property
    def topic(self) -> str | None:
        """The topic; None if the subscription was resumed."""
        return self._inner.topic

    def ack(self, delivery: BlipDelivery) -> None:
        """Acknowledge a delivery now instead of on the next :meth:`next`."""
        self._inner.ack(delivery)

    def leave(self, delivery: BlipDelivery) -> None:
        """Do not acknowledge a delivery; the broker delivers it again."""
        self._inner.leave(delivery)
