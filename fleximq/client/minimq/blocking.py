"""The MiniMQ client for programs without an event loop: scripts, notebooks, worker processes.

::

    with connect("tcp://localhost:7890") as client:
        client.produce("jobs", "sweep the yard")
        for job in client.consumer("jobs"):
            print(job.content)

Threads may share a client. All of these clients in a process share one background thread; ``on_state``
is called in that thread and must not wait for the client.
"""

from collections.abc import Callable, Iterable
from functools import partial
from ssl import SSLContext

from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConsumeFailed, ProduceFailed
from fleximq.client.minimq.loop_client import LoopConsumer, LoopMiniClient, Message
from fleximq.client.queues.blocking import BlockingPulled, BlockingQueueClient, inThread, loopThread
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
    url: str = "tcp://localhost:7890",
    *,
    timeout: float = TIMEOUT,
    tls: Tls | SSLContext | None = None,
    reconnect: Backoff | None = BACKOFF,
    buffer: int = BUFFER_BYTES,
    keep_alive: float | None = KEEP_ALIVE,
    on_state: Watcher | None = None,
) -> "MiniClient":
    """Connect. Use the client in a ``with`` statement, or close it.

    The other keyword arguments are described in :class:`~fleximq.client.settings.ClientSettings`.

    :param url: ``tcp://``, ``tls://`` or ``ipc://``.
    :param buffer: accepted as by the other clients; this one buffers no messages.
    :raises SettingError: the URL or a setting is invalid.
    :raises ConnectionLost: no MiniMQ broker answers there.
    :raises Untrusted: one side does not trust the other's certificate.
    """
    settings = ClientSettings(
        timeout=timeout, tls=tls, reconnect=reconnect, buffer=buffer, keep_alive=keep_alive, on_state=on_state
    )
    thread = loopThread()
    inner = LoopMiniClient(thread.loop, Url.parse(url), settings)
    thread.run(inner.open)
    return MiniClient(inner)


class MiniClient(BlockingQueueClient[LoopMiniClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    Parameters and errors are those of :class:`~fleximq.client.minimq.loop_client.LoopMiniClient`.
    """

    def produce(
        self,
        topic: str,
        content: str,
        id: str | None = None,
        correlation_id: str = "",
        reply_to: str = "",
        timeout: float | None = TIMEOUT,
    ) -> str:
        """Put a message into a queue, and return its id when the broker has confirmed it.

        :param id: the message's id; a new UUID by default.
        :raises ProduceFailed: the broker refused.
        :raises ValueError: the message cannot be written in MiniMQ, e.g. its content has a line break.
        :raises ConnectionLost: the connection was lost; the message may be in the queue.
        :raises TimeoutError: no answer within ``timeout`` seconds; the message may be in the queue.
        """
        return self._thread.run(self._inner.produce, topic, content, id, correlation_id, reply_to, timeout)

    def produce_many(self, topic: str, contents: Iterable[str], timeout: float | None = TIMEOUT) -> list[str]:
        """Put several messages into a queue at once, several times as fast as single ones; return their ids."""
        return self._thread.run(self._inner.produce_many, topic, list(contents), timeout)

    def consume(self, topic: str, timeout: float | None = TIMEOUT) -> Message | None:
        """Return a message of a queue, or None if it is empty. Without an :meth:`ack` it returns to the queue.

        :raises ConsumeFailed: the broker refused.
        :raises ConnectionLost: the connection was lost; a message in transit returns to the queue later.
        :raises TimeoutError: no answer within ``timeout`` seconds; a message in transit returns to the queue later.
        """
        return self._thread.run(self._inner.consume, topic, timeout)

    def consumer(self, topic: str, prefetch: int = 1, idle: Backoff = IDLE) -> "Consumer":
        """Return an iterator over a queue that acknowledges each message when the next one is requested."""
        return Consumer(self._thread.call(self._inner.consumer, topic, prefetch, idle))

    def ack(self, message: Message | str) -> None:
        """Acknowledge a message, or the message with this id; the broker does not answer."""
        self._thread.call(self._inner.ack, message)

    def request(self, topic: str, content: str, timeout: float | None = TIMEOUT) -> str:
        """Send a request to the services of a topic, and return the content of the answer.

        :raises TimeoutError: no answer within ``timeout`` seconds; the request may still be in the queue.
        :raises ProduceFailed: and ConnectionLost, as :meth:`produce`.
        """
        return self._thread.run(self._inner.request, topic, content, timeout)

    def serve(self, topic: str, function: Callable[[Message], str | None]) -> None:
        """Answer the messages of a queue one after the other, each with the return value of a function.

        The function runs in its own thread and may use the client. If it raises, the error is logged, and the message
        returns to the queue later.

        :raises ValueError: the topic is already served.
        """
        self._thread.call(self._inner.serve, topic, partial(inThread, function))


class Consumer(BlockingPulled[LoopConsumer, Message]):
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
        self._thread.call(self._inner.ack, message)

    def leave(self, message: Message) -> None:
        """Do not acknowledge a message; it returns to the queue later."""
        self._thread.call(self._inner.leave, message)
