"""The BlipMQ client for programs without an event loop: scripts, notebooks, worker processes.

::

    with connect("tcp://localhost:7890", key="secret") as client:
        client.publish("orders", b"two apples")

Threads may share a client. All of these clients in a process share one background thread; ``on_state``
is called in that thread and must not wait for the client.
"""

from collections.abc import Iterable
from ssl import SSLContext

from fleximq.client.backoff import Backoff
from fleximq.client.blipmq.conversation import BlipDelivery
from fleximq.client.blipmq.loop_client import PREFETCH, LoopBlipClient, LoopBlipSubscription
from fleximq.client.errors import Nacked
from fleximq.client.queues.blocking import BlockingPulled, BlockingQueueClient, loopThread
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
    url: str = "tcp://localhost:7890",
    key: str = "",
    *,
    timeout: float = TIMEOUT,
    tls: Tls | SSLContext | None = None,
    reconnect: Backoff | None = BACKOFF,
    buffer: int = BUFFER_BYTES,
    keep_alive: float | None = KEEP_ALIVE,
    on_state: Watcher | None = None,
) -> "BlipClient":
    """Connect and authenticate. Use the client in a ``with`` statement, or close it.

    The other keyword arguments are described in :class:`~fleximq.client.settings.ClientSettings`.

    :param url: ``tcp://``, ``tls://`` or ``ipc://``.
    :param key: the API key; clients with the same key may resume this client's subscriptions.
    :raises SettingError: the URL or a setting is invalid.
    :raises ConnectionLost: no BlipMQ broker answers there.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises JoinRefused: the broker refused to admit the client.
    """
    settings = ClientSettings(
        timeout=timeout, tls=tls, reconnect=reconnect, buffer=buffer, keep_alive=keep_alive, on_state=on_state
    )
    thread = loopThread()
    inner = LoopBlipClient(thread.loop, Url.parse(url), settings, key)
    thread.run(inner.open)
    return BlipClient(inner)


class BlipClient(BlockingQueueClient[LoopBlipClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    While the broker is unreachable, publications are buffered up to ``buffer`` bytes. Parameters and errors are those
    of :class:`~fleximq.client.blipmq.loop_client.LoopBlipClient`.
    """

    def publish(self, topic: str, payload: bytes | str, qos: int = 1) -> int:
        """Publish a message and return its number; :meth:`flush` waits until it is processed."""
        return self._thread.run(self._inner.publish, topic, payload, qos)

    def publish_many(self, topic: str, payloads: Iterable[bytes | str], qos: int = 1) -> range:
        """Publish several messages at once, several times as fast as single ones; return their numbers."""
        return self._thread.run(self._inner.publish_many, topic, list(payloads), qos)

    def subscribe(
        self,
        topic: str,
        qos: int = 1,
        prefetch: int = PREFETCH,
        idle: Backoff = IDLE,
        timeout: float | None = TIMEOUT,
    ) -> "BlipSubscription":
        """Subscribe to a topic, and wait until the broker has confirmed it."""
        return BlipSubscription(self._thread.run(self._inner.subscribe, topic, qos, prefetch, idle, timeout))

    def resume(self, id: int, prefetch: int = PREFETCH, idle: Backoff = IDLE) -> "BlipSubscription":
        """Continue a subscription by its ``id``; it may be of an earlier client with the same key."""
        return BlipSubscription(self._thread.call(self._inner.resume, id, prefetch, idle))

    def ack(self, delivery: BlipDelivery) -> None:
        """Acknowledge a delivery now instead of on the next :meth:`BlipSubscription.next`."""
        self._thread.call(self._inner.ack, delivery)

    def flush(self, timeout: float | None = TIMEOUT) -> None:
        """Wait until the broker has processed everything sent so far; with QoS 1 on durable topics, written to disk.

        :raises Nacked: a message sent since the last flush was refused; raised by one of concurrent flushes.
        :raises ConnectionLost: the connection was lost since the last flush, so messages may be lost.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        self._thread.run(self._inner.flush, timeout)


class BlipSubscription(BlockingPulled[LoopBlipSubscription, BlipDelivery]):
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
        self._thread.call(self._inner.ack, delivery)

    def leave(self, delivery: BlipDelivery) -> None:
        """Do not acknowledge a delivery; the broker delivers it again."""
        self._thread.call(self._inner.leave, delivery)
