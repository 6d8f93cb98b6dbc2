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
from types import TracebackType
from typing import Self, Unpack

from fleximq.client.backoff import Backoff
from fleximq.client.minimq.awaited import AwaitedConsumer, AwaitedMini, Message
from fleximq.client.minimq.errors import ConsumeFailed, ProduceFailed
from fleximq.client.queues.settings import IDLE, QueueWishes
from fleximq.client.queues.thread import inThread, theThread
from fleximq.client.settings import PATIENCE, ClientSettings, State
from fleximq.endpoints.urls import Url

__all__ = ["Client", "ConsumeFailed", "Consumer", "Message", "ProduceFailed", "connect"]


def connect(url: str = "tcp://localhost:7890", **wishes: Unpack[QueueWishes]) -> "Client":
    """Connect; use what is returned in a ``with`` statement, or close it.

    :param url: ``tcp://``, ``tls://`` or ``ipc://``.
    :param wishes: see :class:`~fleximq.client.queues.settings.QueueWishes`.
    :raises SettingError: the URL or a wish makes no sense.
    :raises ConnectionLost: nobody listens there, or nobody who speaks MiniMQ.
    :raises Untrusted: one side does not trust the other's certificate.
    """
    thread = theThread()
    inner = AwaitedMini(thread.loop, Url.parse(url), ClientSettings(**wishes))
    thread.run(inner.open)
    return Client(inner)


class Client:
    """A connection to a broker, made by :func:`connect`, and made anew when it is lost.

    Parameters and errors are those of :class:`~fleximq.client.minimq.awaited.AwaitedMini`.
    """

    def __init__(self, inner: AwaitedMini) -> None:
        self._inner = inner
        self._thread = theThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close; if the block failed, at once."""
        if error is None:
            self.close()
        else:
            self.hangUp()

    @property
    def state(self) -> State:
        """Where the client stands."""
        return self._inner.state

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

    def ping(self, timeout: float | None = PATIENCE) -> float:
        """Return how many seconds the broker takes to answer; everything that was sent before is done then."""
        return self._thread.run(self._inner.ping, timeout)

    def close(self, timeout: float | None = PATIENCE) -> None:
        """See that all ACKs have arrived, and end the connection; iterations end."""
        self._thread.run(self._inner.close, timeout)

    def hangUp(self) -> None:
        """End the connection at once."""
        self._thread.call(self._inner.hangUp)


class Consumer:
    """The messages of a queue: iterate over it, or take one by one.

    A message is acknowledged when the next one is asked for, so when the body of the loop is done with it. Whoever
    leaves the loop early has not acknowledged the last one: it comes again after a while.
    """

    def __init__(self, inner: AwaitedConsumer) -> None:
        self._inner = inner
        self._thread = theThread()

    @property
    def topic(self) -> str:
        """The topic."""
        return self._inner.topic

    @property
    def waiting(self) -> int:
        """How many messages were fetched and not taken."""
        return self._inner.waiting

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """Return the next message, waiting as long as it takes; the iteration ends when this or the client is closed.

        Raises what :meth:`next` raises.
        """
        message = self.next()
        if message is None:
            raise StopIteration
        return message

    def next(self, timeout: float | None = None) -> Message | None:
        """Acknowledge what was taken before, and return the next message; None if none came, or if this was closed.

        :param timeout: seconds; with 0 the broker is asked once. None: wait as long as it takes.
        :raises ConnectionLost: the connection ended, and there will be none.
        :raises ConsumeFailed: the broker refuses.
        """
        return self._thread.run(self._inner.next, timeout)

    def nextMany(self, most: int, timeout: float | None = None) -> list[Message]:
        """Return up to ``most`` messages, at least one; they are acknowledged together. Otherwise as :meth:`next`."""
        return self._thread.run(self._inner.nextMany, most, timeout)

    def ack(self, message: Message) -> None:
        """Acknowledge a message now, instead of when the next one is asked for."""
        self._thread.call(self._inner.ack, message)

    def leave(self, message: Message) -> None:
        """Do not acknowledge a message that was taken: it comes again."""
        self._thread.call(self._inner.leave, message)

    def close(self) -> None:
        """Fetch no more; what was fetched before can still be taken."""
        self._thread.call(self._inner.close)
