"""The MiniMQ client for programs on Twisted: Deferreds, async iteration, and the reactor that it is given.

::

    client = await connect(reactor, "tcp://localhost:7890")
    await client.produce("jobs", "sweep the yard")
"""

from collections.abc import Iterable
from typing import Any, Unpack

from twisted.internet.defer import Deferred

from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConsumeFailed, ProduceFailed
from fleximq.client.loops.deferred import DeferredClient
from fleximq.client.loops.reactor import ReactorLoop
from fleximq.client.minimq.loop_client import AwaitedConsumer, AwaitedMini, Function, Message
from fleximq.client.queues.deferred import DeferredPulled
from fleximq.client.queues.reconnecting_link import IDLE, QueueWishes
from fleximq.client.settings import PATIENCE, ClientSettings
from fleximq.values.urls import Url

__all__ = ["Client", "ConsumeFailed", "Consumer", "Message", "ProduceFailed", "connect"]


def connect(reactor: Any, url: str = "tcp://localhost:7890", **wishes: Unpack[QueueWishes]) -> "Deferred[Client]":
    """Connect; close the client in the end, or use it in ``async with``.

    Parameters and errors as :func:`fleximq.client.minimq.blocking.connect`; the errors come in the Deferred.
    """

    async def opened() -> Client:
        return Client(await AwaitedMini(ReactorLoop(reactor), Url.parse(url), ClientSettings(**wishes)).open())

    return Deferred.fromCoroutine(opened())


class Client(DeferredClient[AwaitedMini]):
    """A connection to a broker, made by :func:`connect`, and made anew when it is lost.

    Parameters and errors are those of :class:`~fleximq.client.minimq.loop_client.AwaitedMini`; errors come in the
    Deferreds.
    """

    def produce(
        self,
        topic: str,
        content: str,
        id: str | None = None,
        correlation_id: str = "",
        reply_to: str = "",
        timeout: float | None = PATIENCE,
    ) -> "Deferred[str]":
        """Put a message into a queue, and fire with its id when it is safe.

        Errors as :meth:`fleximq.client.minimq.blocking.Client.produce`.
        """
        return Deferred.fromCoroutine(self._inner.produce(topic, content, id, correlation_id, reply_to, timeout))

    def produceMany(
        self, topic: str, contents: Iterable[str], timeout: float | None = PATIENCE
    ) -> "Deferred[list[str]]":
        """Put many messages into a queue, which is much quicker than one by one, and fire with their ids."""
        return Deferred.fromCoroutine(self._inner.produceMany(topic, contents, timeout))

    def consume(self, topic: str, timeout: float | None = PATIENCE) -> "Deferred[Message | None]":
        """Fire with a message of a queue, or None if it is empty; :meth:`ack` it, or after a while it is there again.

        Errors as :meth:`fleximq.client.minimq.blocking.Client.consume`.
        """
        return Deferred.fromCoroutine(self._inner.consume(topic, timeout))

    def consumer(self, topic: str, prefetch: int = 1, idle: Backoff = IDLE) -> "Consumer":
        """Return what iterates over the messages of a queue, and acknowledges each when the next is asked for."""
        return Consumer(self._inner.consumer(topic, prefetch, idle))

    def ack(self, message: Message | str) -> None:
        """Say that a message, or the one with this id, is done; there is no answer."""
        self._inner.ack(message)

    def request(self, topic: str, content: str, timeout: float | None = PATIENCE) -> "Deferred[str]":
        """Ask whoever serves a topic, and fire with the content of the answer.

        Errors as :meth:`fleximq.client.minimq.blocking.Client.request`.
        """
        return Deferred.fromCoroutine(self._inner.request(topic, content, timeout))

    def serve(self, topic: str, function: Function) -> None:
        """Answer the messages of a queue, one after the other, with what a function returns for each.

        It may return a Deferred or a coroutine. What it raises is logged, and the message comes again after a while.

        :raises ValueError: the topic is served already.
        """
        self._inner.serve(topic, function)


class Consumer(DeferredPulled[AwaitedConsumer, Message]):
    """The messages of a queue: iterate over it, or take one by one.

    A message is acknowledged when the next one is asked for, so when the body of the loop is done with it. Whoever
    leaves the loop early has not acknowledged the last one: it comes again after a while.
    """

    @property
    def topic(self) -> str:
        """The topic."""
        return self._inner.topic

    def ack(self, message: Message) -> None:
        """Acknowledge a message now, instead of when the next one is asked for."""
        self._inner.ack(message)

    def leave(self, message: Message) -> None:
        """Do not acknowledge a message that was taken: it comes again."""
        self._inner.leave(message)
