"""The BlipMQ client for programs that wait: scripts, notebooks, worker processes.

::

    with connect("tcp://localhost:7890", key="secret") as client:
        client.publish("orders", b"two apples")

A client may be used by several threads at once. Its connection is looked after by a thread that all such clients of a
process share; ``onState`` is called there, and must not wait for the client.
"""

from collections.abc import Iterable
from typing import Unpack

from fleximq.client.backoff import Backoff
from fleximq.client.blipmq.conversation import Delivery
from fleximq.client.blipmq.loop_client import PREFETCH, AwaitedBlip, AwaitedSubscription
from fleximq.client.errors import Nacked
from fleximq.client.queues.blocking import WaitingClient, WaitingPulled, theThread
from fleximq.client.queues.reconnecting_link import IDLE, QueueWishes
from fleximq.client.settings import PATIENCE, ClientSettings
from fleximq.values.urls import Url

__all__ = ["Client", "Delivery", "Nacked", "Subscription", "connect"]


def connect(url: str = "tcp://localhost:7890", key: str = "", **wishes: Unpack[QueueWishes]) -> "Client":
    """Connect and authenticate; use what is returned in a ``with`` statement, or close it.

    :param url: ``tcp://``, ``tls://`` or ``ipc://``.
    :param key: the API key; whoever uses the same one may go on with this client's subscriptions.
    :param wishes: see :class:`~fleximq.client.queues.reconnecting_link.QueueWishes`.
    :raises SettingError: the URL or a wish makes no sense.
    :raises ConnectionLost: nobody listens there, or nobody who speaks BlipMQ.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises JoinRefused: the broker does not let this client in.
    """
    thread = theThread()
    inner = AwaitedBlip(thread.loop, Url.parse(url), ClientSettings(**wishes), key)
    thread.run(inner.open)
    return Client(inner)


class Client(WaitingClient[AwaitedBlip]):
    """A connection to a broker, made by :func:`connect`, and made anew when it is lost.

    What is published while the broker is away is kept for it, up to ``buffer`` bytes. Parameters and errors are those
    of :class:`~fleximq.client.blipmq.loop_client.AwaitedBlip`.
    """

    def publish(self, topic: str, payload: bytes | str, qos: int = 1) -> int:
        """Publish a message, and return its number; it is done after the next :meth:`flush`."""
        return self._thread.run(self._inner.publish, topic, payload, qos)

    def publishMany(self, topic: str, payloads: Iterable[bytes | str], qos: int = 1) -> range:
        """Publish many messages at once, which is much quicker than one by one; return their numbers."""
        return self._thread.run(self._inner.publishMany, topic, list(payloads), qos)

    def subscribe(
        self,
        topic: str,
        qos: int = 1,
        prefetch: int = PREFETCH,
        idle: Backoff = IDLE,
        timeout: float | None = PATIENCE,
    ) -> "Subscription":
        """Subscribe to a topic, and return when the broker has done it."""
        return Subscription(self._thread.run(self._inner.subscribe, topic, qos, prefetch, idle, timeout))

    def resume(self, id: int, prefetch: int = PREFETCH, idle: Backoff = IDLE) -> "Subscription":
        """Go on with a subscription whose ``id`` is known, of this client or of an earlier one with the same key."""
        return Subscription(self._thread.call(self._inner.resume, id, prefetch, idle))

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge a delivery now, instead of when the next one is asked for."""
        self._thread.call(self._inner.ack, delivery)

    def flush(self, timeout: float | None = PATIENCE) -> None:
        """Return when all that was sent is done and, with QoS 1 on durable topics, on disk.

        :raises Nacked: something was refused since the last flush; of several who flush, one is told.
        :raises ConnectionLost: the connection was lost since then; what was sent before may not have arrived.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        self._thread.run(self._inner.flush, timeout)


class Subscription(WaitingPulled[AwaitedSubscription, Delivery]):
    """What is published to a topic, in order: iterate over it, or take one by one.

    A delivery is acknowledged when the next one is asked for, so when the body of the loop is done with it. Whoever
    leaves the loop early has not acknowledged the last one: it comes again.
    """

    @property
    def id(self) -> int:
        """What the broker calls it: another client with the same key can resume it."""
        return self._inner.id

    @property
    def topic(self) -> str | None:
        """The topic; None where it was resumed."""
        return self._inner.topic

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge a delivery now, instead of when the next one is asked for."""
        self._thread.call(self._inner.ack, delivery)

    def leave(self, delivery: Delivery) -> None:
        """Do not acknowledge a delivery that was taken: it comes again."""
        self._thread.call(self._inner.leave, delivery)
