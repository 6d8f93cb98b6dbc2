"""The BlipMQ client for programs on Twisted: Deferreds, async iteration, and the reactor that it is given.

::

    client = await connect(reactor, "tcp://localhost:7890", key="secret")
    await client.publish("orders", b"two apples")
"""

from collections.abc import Iterable
from typing import Any, Unpack

from twisted.internet.defer import Deferred

from fleximq.client.backoff import Backoff
from fleximq.client.blipmq.conversation import Delivery
from fleximq.client.blipmq.loop_client import PREFETCH, AwaitedBlip, AwaitedSubscription
from fleximq.client.errors import Nacked
from fleximq.client.loops.deferred import DeferredClient
from fleximq.client.loops.reactor import ReactorLoop
from fleximq.client.queues.deferred import DeferredPulled
from fleximq.client.queues.reconnecting_link import IDLE, QueueWishes
from fleximq.client.settings import PATIENCE, ClientSettings
from fleximq.values.urls import Url

__all__ = ["Client", "Delivery", "Nacked", "Subscription", "connect"]


def connect(
    reactor: Any, url: str = "tcp://localhost:7890", key: str = "", **wishes: Unpack[QueueWishes]
) -> "Deferred[Client]":
    """Connect and authenticate; close the client in the end, or use it in ``async with``.

    Parameters and errors as :func:`fleximq.client.blipmq.blocking.connect`; the errors come in the Deferred.
    """

    async def opened() -> Client:
        inner = AwaitedBlip(ReactorLoop(reactor), Url.parse(url), ClientSettings(**wishes), key)
        return Client(await inner.open())

    return Deferred.fromCoroutine(opened())


class Client(DeferredClient[AwaitedBlip]):
    """A connection to a broker, made by :func:`connect`, and made anew when it is lost.

    What is published while the broker is away is kept for it, up to ``buffer`` bytes. Parameters and errors are those
    of :class:`~fleximq.client.blipmq.loop_client.AwaitedBlip`; errors come in the Deferreds.
    """

    def publish(self, topic: str, payload: bytes | str, qos: int = 1) -> "Deferred[int]":
        """Publish a message, and fire with its number; it is done after the next :meth:`flush`."""
        return Deferred.fromCoroutine(self._inner.publish(topic, payload, qos))

    def publishMany(self, topic: str, payloads: Iterable[bytes | str], qos: int = 1) -> "Deferred[range]":
        """Publish many messages at once, which is much quicker than one by one; fire with their numbers."""
        return Deferred.fromCoroutine(self._inner.publishMany(topic, payloads, qos))

    def subscribe(
        self,
        topic: str,
        qos: int = 1,
        prefetch: int = PREFETCH,
        idle: Backoff = IDLE,
        timeout: float | None = PATIENCE,
    ) -> "Deferred[Subscription]":
        """Subscribe to a topic, and fire when the broker has done it."""

        async def subscribed() -> Subscription:
            return Subscription(await self._inner.subscribe(topic, qos, prefetch, idle, timeout))

        return Deferred.fromCoroutine(subscribed())

    def resume(self, id: int, prefetch: int = PREFETCH, idle: Backoff = IDLE) -> "Subscription":
        """Go on with a subscription whose ``id`` is known, of this client or of an earlier one with the same key."""
        return Subscription(self._inner.resume(id, prefetch, idle))

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge a delivery now, instead of when the next one is asked for."""
        self._inner.ack(delivery)

    def flush(self, timeout: float | None = PATIENCE) -> "Deferred[None]":
        """Fire when all that was sent is done and, with QoS 1 on durable topics, on disk.

        :raises Nacked: something was refused since the last flush; of several who flush, one is told.
        :raises ConnectionLost: the connection was lost since then; what was sent before may not have arrived.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        return Deferred.fromCoroutine(self._inner.flush(timeout))


class Subscription(DeferredPulled[AwaitedSubscription, Delivery]):
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
        self._inner.ack(delivery)

    def leave(self, delivery: Delivery) -> None:
        """Do not acknowledge a delivery that was taken: it comes again."""
        self._inner.leave(delivery)
