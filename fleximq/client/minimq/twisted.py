"""The MiniMQ client for programs on Twisted: Deferreds and asynchronous iteration.

::

    client = await connect(reactor, "tcp://localhost:7890")
    await client.produce("jobs", "sweep the yard")
"""

from collections.abc import Sequence
from ssl import SSLContext
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConsumeFailed, ProduceFailed
from fleximq.client.loops.deferred import DeferredClient, DeferredSubscription, fired
from fleximq.client.loops.reactor import ReactorLoop
from fleximq.client.minimq.loop_client import ConsumerWrapper, LoopConsumer, LoopMiniClient, Message
from fleximq.client.settings import BACKOFF, BUFFER_BYTES, KEEP_ALIVE, TIMEOUT, ClientSettings, Tls, Watcher
from fleximq.client.wrapper import called, wrapping
from fleximq.values.urls import addressesOf

__all__ = ["ConsumeFailed", "Consumer", "Message", "MiniClient", "ProduceFailed", "connect"]


def connect(
    reactor: Any,
    url: str | Sequence[str] = "tcp://localhost:7890",
    *,
    timeout: float = TIMEOUT,
    tls: Tls | SSLContext | IOpenSSLClientConnectionCreator | None = None,
    reconnect: Backoff | None = BACKOFF,
    buffer: int = BUFFER_BYTES,
    keep_alive: float | None = KEEP_ALIVE,
    on_state: Watcher | None = None,
) -> "Deferred[MiniClient]":
    """Connect. Close the client at the end, or use it in ``async with``.

    Parameters and errors as :func:`fleximq.client.minimq.blocking.connect`; the errors are in the Deferred.
    """

    async def opened() -> MiniClient:
        settings = ClientSettings(
            timeout=timeout, tls=tls, reconnect=reconnect, buffer=buffer, keep_alive=keep_alive, on_state=on_state
        )
        return MiniClient(await LoopMiniClient(ReactorLoop(reactor), addressesOf(url), settings).open())

    return Deferred.fromCoroutine(opened())


class Consumer(ConsumerWrapper, DeferredSubscription[LoopConsumer, Message]):
    """The messages of a queue: iterate over it, or call :meth:`next`, which acknowledges the previous one.

    If a loop ends early, its last message is not acknowledged and returns to the queue later.
    """

    next = fired(LoopConsumer.next)
    next_many = fired(LoopConsumer.next_many)


class MiniClient(DeferredClient[LoopMiniClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    Parameters and errors are those of :class:`~fleximq.client.minimq.loop_client.LoopMiniClient`; errors are in the
    Deferreds.
    """

    produce = fired(LoopMiniClient.produce)
    produce_many = fired(LoopMiniClient.produce_many)
    consume = fired(LoopMiniClient.consume)
    consumer = wrapping(Consumer, called(LoopMiniClient.consumer))
    ack = called(LoopMiniClient.ack)
    request = fired(LoopMiniClient.request)
    serve = called(LoopMiniClient.serve)
