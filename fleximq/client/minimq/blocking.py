"""The MiniMQ client for programs that wait: scripts, notebooks, worker processes.

::

    with connect("tcp://localhost:7890") as client:
        client.produce("jobs", "sweep the yard")
        for job in client.consumer("jobs"):
            print(job.content)

A client may be used by several threads at once. Its connection is looked after by a thread that all such clients of a
process share; ``onState`` is called there, and must not wait for the client.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Unpack

from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConsumeFailed, ProduceFailed
from fleximq.client.minimq.loop_client import AwaitedConsumer, AwaitedMini, Message
from fleximq.client.queues.blocking import WaitingClient, WaitingPulled, inThread, theThread
from fleximq.client.queues.reconnecting_link import IDLE, QueueWishes
from fleximq.client.settings import PATIENCE, ClientSettings
from fleximq.values.urls import Url

__all__ = ["Client", "ConsumeFailed", "Consumer", "Message", "ProduceFailed", "connect"]


def connect(url: str = "tcp://localhost:7890", **wishes: Unpack[QueueWishes]) -> "Client":
    """Connect; use what is returned in a ``with`` statement, or close it.

    :param url: ``tcp://``, ``tls://`` or ``ipc://``.
    :param wishes: see :class:`~fleximq.client.queues.reconnecting_link.QueueWishes`.
    :raises SettingError: the URL or a wish makes no sense.
    :raises ConnectionLost: nobody listens there, or nobody who speaks MiniMQ.
    :raises Untrusted: one side does not trust the other's certificate.
    """
    thread = theThread()
    inner = AwaitedMini(thread.loop, Url.parse(url), ClientSettings(**wishes))
    thread.run(inner.open)
    return Client(inner)


class Client(WaitingClient[AwaitedMini]):
    """A connection to a broker, made by :func:`connect`, and made anew when it is lost.

    Parameters and errors are those of :class:`~fleximq.client.minimq.loop_client.AwaitedMini`.
    """

    def produce(
        self,
        topic: str,
        content: str,
        id: str | None = None,
        correlation_id: str = "",
        reply_to: str = "",
        timeout: float | None = PATIENCE,
    ) -> str:
        """Put a message into a queue, and return its id when it is safe.

        :param id: its id; by default a new UUID.
        :raises ProduceFailed: the broker refused.
        :raises ValueError: MiniMQ cannot spell it, e.g. a content with a line break.
        :raises ConnectionLost: the connection was lost; the message may be in the queue or not.
        :raises TimeoutError: there was no answer in so many seconds; likewise.
        """
        return self._thread.run(self._inner.produce, topic, content, id, correlation_id, reply_to, timeout)

    def produceMany(self, topic: str, contents: Iterable[str], timeout: float | None = PATIENCE) -> list[str]:
        """Put many messages into a queue, which is much quicker than one by one, and return their ids."""
        return self._thread.run(self._inner.produceMany, topic, list(contents), timeout)

    def consume(self, topic: str, timeout: float | None = PATIENCE) -> Message | None:
        """Return a message of a queue, or None if it is empty; :meth:`ack` it, or after a while it is there again.

        :raises ConsumeFailed: the broker refused.
        :raises ConnectionLost: the connection was lost; a message that was on its way is there again after a while.
        :raises TimeoutError: there was no answer in so many seconds; likewise.
        """
        return self._thread.run(self._inner.consume, topic, timeout)

    def consumer(self, topic: str, prefetch: int = 1, idle: Backoff = IDLE) -> "Consumer":
        """Return what iterates over the messages of a queue, and acknowledges each when the next is asked for."""
        return Consumer(self._thread.call(self._inner.consumer, topic, prefetch, idle))

    def ack(self, message: Message | str) -> None:
        """Say that a message, or the one with this id, is done; there is no answer."""
        self._thread.call(self._inner.ack, message)

    def request(self, topic: str, content: str, timeout: float | None = PATIENCE) -> str:
        """Ask whoever serves a topic, and return the content of the answer.

        :raises TimeoutError: there was no answer in so many seconds; the request may still be in the queue.
        :raises ProduceFailed: and ConnectionLost, as :meth:`produce`.
        """
        return self._thread.run(self._inner.request, topic, content, timeout)

    def serve(self, topic: str, function: Callable[[Message], str | None]) -> None:
        """Answer the messages of a queue, one after the other, with what a function returns for each.

        It is called in a thread of its own, and may use the client. What it raises is logged, and the message comes
        again after a while.

        :raises ValueError: the topic is served already.
        """
        self._thread.call(self._inner.serve, topic, partial(inThread, function))


class Consumer(WaitingPulled[AwaitedConsumer, Message]):
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
        self._thread.call(self._inner.ack, message)

    def leave(self, message: Message) -> None:
        """Do not acknowledge a message that was taken: it comes again."""
        self._thread.call(self._inner.leave, message)
