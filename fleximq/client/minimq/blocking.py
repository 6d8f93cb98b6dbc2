"""The MiniMQ client for programs without an event loop: scripts, notebooks, worker processes::

    with connect("tcp://localhost:7890") as client:
        client.produce("jobs", "sweep the yard")
        for job in client.consumer("jobs"):
            print(job.content)

Threads may share a client. All of these clients in a process share one background thread; ``on_state``
is called in that thread and must not wait for the client.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from ssl import SSLContext
from typing import Unpack

from fleximq.client.errors import ConsumeFailed, ProduceFailed
from fleximq.client.keywords import QueueConnectOptions, spelledOut
from fleximq.client.minimq.loop_client import ConsumerWrapper, LoopConsumer, LoopMiniClient, Message
from fleximq.client.payloads import severalOf
from fleximq.client.queues.blocking import BlockingPulled, BlockingQueueClient, inThread, loopThread
from fleximq.client.settings import TIMEOUT, ClientSettings, Tls
from fleximq.client.topic_warnings import literalTopic
from fleximq.client.wrapper import called, waiting, wrapping
from fleximq.values.urls import addressesOf

__all__ = ["ConsumeFailed", "Consumer", "Message", "MiniClient", "ProduceFailed", "connect"]


@spelledOut
def connect(
    url: str | Sequence[str] = "tcp://localhost:7890",
    **options: Unpack[QueueConnectOptions[Tls | SSLContext]],
) -> "MiniClient":
    """Connect. Use the client in a ``with`` statement, or close it.

    Other parameters and errors as :func:`fleximq.client.blocking.connect`.

    :param url: ``tcp://``, ``tls://`` or ``ipc://``, or several of them.
    :param buffer: accepted as by the other clients; this one buffers no messages.
    """
    thread = loopThread()
    return MiniClient(thread.run(LoopMiniClient(thread.loop, addressesOf(url), ClientSettings(**options)).open()))


class Consumer(ConsumerWrapper, BlockingPulled[LoopConsumer, Message]):
    """The messages of a queue: iterate over it, or call :meth:`next`, which acknowledges the previous one.

    If a loop ends early, its last message is not acknowledged and returns to the queue later.
    """

    next = waiting(LoopConsumer.next)
    next_many = waiting(LoopConsumer.next_many)


class MiniClient(BlockingQueueClient[LoopMiniClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    Parameters and errors are those of :class:`~fleximq.client.minimq.loop_client.LoopMiniClient`.
    """

    produce = waiting(LoopMiniClient.produce)
    consume = waiting(LoopMiniClient.consume)
    consumer = wrapping(Consumer, literalTopic(called(LoopMiniClient.consumer)))
    ack = called(LoopMiniClient.ack)
    request = waiting(LoopMiniClient.request)

    def produce_many(self, topic: str, contents: Iterable[str], timeout: float | None = TIMEOUT) -> list[str]:
        """Put several messages into a queue at once, several times as fast as single ones; return their ids.

        Errors as :meth:`LoopMiniClient.produce_many <fleximq.client.minimq.loop_client.LoopMiniClient.produce_many>`.
        """
        return self._wait(self._inner.produce_many(topic, list(severalOf(contents)), timeout))

    @literalTopic
    def serve(self, topic: str, function: Callable[[Message], str | None]) -> None:
        """Answer the messages of a queue one after the other, each with the return value of a function.

        The function runs in its own thread and may use the client. If it raises, the error is logged, and the message
        returns to the queue later. ValueError if the topic is already served.
        """
        self._call(self._inner.serve, topic, partial(inThread, function))
