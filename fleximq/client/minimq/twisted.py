"""The MiniMQ client for programs on Twisted: Deferreds and asynchronous iteration.

::

    client = await connect(reactor, "tcp://localhost:7890")
    await client.produce("jobs", "sweep the yard")
"""

from collections.abc import Iterable
from ssl import SSLContext
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConsumeFailed, ProduceFailed
from fleximq.client.loops.deferred import DeferredClient
from fleximq.client.loops.reactor import ReactorLoop
from fleximq.client.minimq.loop_client import Function, LoopConsumer, LoopMiniClient, Message
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

__all__ = ["ConsumeFailed", "Consumer", "Message", "MiniClient", "ProduceFailed", "connect"]


def connect(
    reactor: Any,
    url: str = "tcp://localhost:7890",
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
        return MiniClient(await LoopMiniClient(ReactorLoop(reactor), Url.parse(url), settings).open())

    return Deferred.fromCoroutine(opened())


class MiniClient(DeferredClient[LoopMiniClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    Parameters and errors are those of :class:`~fleximq.client.minimq.loop_client.LoopMiniClient`; errors are in the
    Deferreds.
    """

    def produce(
        self,
        topic: str,
        content: str,
        id: str | None = None,
        correlation_id: str = "",
        reply_to: str = "",
        timeout: float | None = TIMEOUT,
    ) -> "Deferred[str]":
        """Put a message into a queue, and fire with its id when the broker has confirmed it.

        Errors as :meth:`fleximq.client.minimq.blocking.MiniClient.produce`.
        """
        return Deferred.fromCoroutine(self._inner.produce(topic, content, id, correlation_id, reply_to, timeout))

    def produce_many(
        self, topic: str, contents: Iterable[str], timeout: float | None = TIMEOUT
    ) -> "Deferred[list[str]]":
        """Put several messages into a queue at once, several times as fast as single ones; fire with their ids."""
        return Deferred.fromCoroutine(self._inner.produce_many(topic, contents, timeout))

    def consume(self, topic: str, timeout: float | None = TIMEOUT) -> "Deferred[Message | None]":
        """Fire with a message of a queue, or None if it is empty. Without an :meth:`ack` it returns to the queue.

        Errors as :meth:`fleximq.client.minimq.blocking.MiniClient.consume`.
        """
        return Deferred.fromCoroutine(self._inner.consume(topic, timeout))

    def consumer(self, topic: str, prefetch: int = 1, idle: Backoff = IDLE) -> "Consumer":
        """Return an iterator over a queue that acknowledges each message when the next one is requested."""
        return Consumer(self._inner.consumer(topic, prefetch, idle))

    def ack(self, message: Message | str) -> None:
        """Acknowledge a message, or the message with this id; the broker does not answer."""
        self._inner.ack(message)

    def request(self, topic: str, content: str, timeout: float | None = TIMEOUT) -> "Deferred[str]":
        """Send a request to the services of a topic, and fire with the content of the answer.

        Errors as :meth:`fleximq.client.minimq.blocking.MiniClient.request`.
        """
        return Deferred.fromCoroutine(self._inner.request(topic, content, timeout))

    def serve(self, topic: str, function: Function) -> None:
        """Answer the messages of a queue one after the other, each with the result of a function.

        The function may return a Deferred or a coroutine. If it fails, the error is logged, and the message returns to
        the queue later.

        :raises ValueError: the topic is already served.
        """
        self._inner.serve(topic, function)


class Consumer(DeferredPulled[LoopConsumer, Message]):
    """The messages of a queue: iterate over it, or call :meth:`next`.

    A message is acknowledged when the next one is requested, so after the body of the loop. If the loop ends early, its
    last message is not acknowledged and returns to the queue later.
    """

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def topic(self) -> str:
        """The topic."""
        return self._inner.topic

    def ack(self, message: Message) -> None:
        """Acknowledge a message now instead of on the next :meth:`next`."""
        self._inner.ack(message)

    def leave(self, message: Message) -> None:
        """Do not acknowledge a message; it returns to the queue later."""
        self._inner.leave(message)
