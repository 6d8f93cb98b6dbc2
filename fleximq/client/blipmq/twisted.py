"""The BlipMQ client for programs on Twisted: Deferreds and asynchronous iteration.

::

    client = await connect(reactor, "tcp://localhost:7890", key="secret")
    await client.publish("orders", b"two apples")
"""

from collections.abc import Sequence
from ssl import SSLContext
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from fleximq.client.backoff import Backoff
from fleximq.client.blipmq.conversation import BlipDelivery
from fleximq.client.blipmq.loop_client import LoopBlipClient, LoopBlipSubscription, SubscriptionWrapper
from fleximq.client.errors import Nacked
from fleximq.client.loops.deferred import DeferredClient, DeferredSubscription, fired, firedWrapping
from fleximq.client.loops.reactor import ReactorLoop
from fleximq.client.settings import BACKOFF, BUFFER_BYTES, KEEP_ALIVE, TIMEOUT, ClientSettings, Tls, Watcher
from fleximq.client.wrapper import called, wrapping
from fleximq.values.urls import addressesOf

__all__ = ["BlipClient", "BlipDelivery", "BlipSubscription", "Nacked", "connect"]


def connect(
    reactor: Any,
    url: str | Sequence[str] = "tcp://localhost:7890",
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
        return BlipClient(await LoopBlipClient(ReactorLoop(reactor), addressesOf(url), settings, key).open())

    return Deferred.fromCoroutine(opened())


class BlipSubscription(SubscriptionWrapper, DeferredSubscription[LoopBlipSubscription, BlipDelivery]):
    """The messages of a topic, in order: iterate over it, or call :meth:`next`, which acknowledges the previous one.

    If a loop ends early, its last delivery is not acknowledged, and the broker delivers it again.
    """

    next = fired(LoopBlipSubscription.next)
    next_many = fired(LoopBlipSubscription.next_many)


class BlipClient(DeferredClient[LoopBlipClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    While the broker is unreachable, publications are buffered up to ``buffer`` bytes. Parameters and errors are those
    of :class:`~fleximq.client.blipmq.loop_client.LoopBlipClient`; errors are in the Deferreds.
    """

    publish = fired(LoopBlipClient.publish)
    publish_many = fired(LoopBlipClient.publish_many)
    subscribe = firedWrapping(BlipSubscription, LoopBlipClient.subscribe)
    resume = wrapping(BlipSubscription, called(LoopBlipClient.resume))
    ack = called(LoopBlipClient.ack)
    flush = fired(LoopBlipClient.flush)
