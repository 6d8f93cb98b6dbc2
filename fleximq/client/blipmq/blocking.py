"""The BlipMQ client for programs without an event loop: scripts, notebooks, worker processes::

    with connect("tcp://localhost:7890", key="secret") as client:
        client.publish("orders", b"two apples")

Threads may share a client. All of these clients in a process share one background thread; ``on_state``
is called in that thread and must not wait for the client.
"""

from collections.abc import Iterable, Sequence
from ssl import SSLContext
from typing import Unpack

from fleximq.client.blipmq.conversation import BlipDelivery
from fleximq.client.blipmq.loop_client import LoopBlipClient, LoopBlipSubscription, SubscriptionWrapper
from fleximq.client.errors import Nacked
from fleximq.client.keywords import QueueConnectOptions, spelledOut
from fleximq.client.payloads import severalOf
from fleximq.client.queues.blocking import BlockingPulled, BlockingQueueClient, loopThread
from fleximq.client.settings import ClientSettings, Tls
from fleximq.client.wrapper import called, waiting, wrapping
from fleximq.values.urls import addressesOf

__all__ = ["BlipClient", "BlipDelivery", "BlipSubscription", "Nacked", "connect"]


@spelledOut
def connect(
    url: str | Sequence[str] = "tcp://localhost:7890",
    key: str = "",
    **options: Unpack[QueueConnectOptions[Tls | SSLContext]],
) -> "BlipClient":
    """Connect and authenticate. Use the client in a ``with`` statement, or close it.

    Other parameters and errors as :func:`fleximq.client.blocking.connect`.

    :param url: ``tcp://``, ``tls://`` or ``ipc://``, or several of them.
    :param key: the API key; clients with the same key may resume this client's subscriptions.
    """
    thread = loopThread()
    return BlipClient(thread.run(LoopBlipClient(thread.loop, addressesOf(url), ClientSettings(**options), key).open()))


class BlipSubscription(SubscriptionWrapper, BlockingPulled[LoopBlipSubscription, BlipDelivery]):
    """The messages of a topic, in order: iterate over it, or call :meth:`next`, which acknowledges the previous one.

    If a loop ends early, its last delivery is not acknowledged, and the broker delivers it again.
    """

    next = waiting(LoopBlipSubscription.next)
    next_many = waiting(LoopBlipSubscription.next_many)


class BlipClient(BlockingQueueClient[LoopBlipClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    While the broker is unreachable, publications are buffered up to ``buffer`` bytes. Parameters and errors are those
    of :class:`~fleximq.client.blipmq.loop_client.LoopBlipClient`.
    """

    publish = waiting(LoopBlipClient.publish)
    subscribe = wrapping(BlipSubscription, waiting(LoopBlipClient.subscribe))
    resume = wrapping(BlipSubscription, called(LoopBlipClient.resume))
    ack = called(LoopBlipClient.ack)
    flush = waiting(LoopBlipClient.flush)

    def publish_many(self, topic: str, payloads: Iterable[bytes | str], qos: int = 1) -> range:
        """Publish several messages at once, several times as fast as single ones; return their numbers.

        Errors as :meth:`publish`; if the buffer becomes full, earlier chunks may have been sent.
        """
        return self._wait(self._inner.publish_many(topic, list(severalOf(payloads)), qos))
