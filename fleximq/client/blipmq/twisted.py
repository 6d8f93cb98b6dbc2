"""The BlipMQ client for programs on Twisted: Deferreds and asynchronous iteration.

::

    client = await connect(reactor, "tcp://localhost:7890", key="secret")
    await client.publish("orders", b"two apples")
"""

from functools import partial
from ssl import SSLContext
from typing import Any, Unpack

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from fleximq.client.blipmq.conversation import BlipDelivery
from fleximq.client.blipmq.loop_client import LoopBlipClient, LoopBlipSubscription, SubscriptionWrapper
from fleximq.client.errors import Nacked
from fleximq.client.keywords import QueueConnectOptions, QueueOptions, spelledOut
from fleximq.client.loops.deferred import DeferredClient, DeferredSubscription, fired, firedWrapping
from fleximq.client.loops.endpoint import JoiningFactory, JoiningProtocol, Place, given, reached
from fleximq.client.settings import ClientSettings, Tls
from fleximq.client.wrapper import called, wrapping

__all__ = [
    "BlipClient",
    "BlipClientFactory",
    "BlipClientProtocol",
    "BlipDelivery",
    "BlipSubscription",
    "Nacked",
    "connect",
]


@spelledOut
def connect(
    reactor: Any,
    url: Place = "tcp://localhost:7890",
    key: str = "",
    **options: Unpack[QueueConnectOptions[Tls | SSLContext | IOpenSSLClientConnectionCreator]],
) -> "Deferred[BlipClient]":
    """Connect and authenticate. Close the client at the end, or use it in ``async with``.

    Parameters and errors as :func:`fleximq.client.blipmq.blocking.connect`; the errors are in the Deferred.

    :param url: or an ``IStreamClientEndpoint``, by which the client connects and reconnects; it may use TLS.
    """

    async def opened() -> BlipClient:
        return BlipClient(await LoopBlipClient(*reached(reactor, url), ClientSettings(**options), key).open())

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


class BlipClientProtocol(JoiningProtocol[BlipClient]):
    """One connection, as :class:`fleximq.client.twisted.ClientProtocol`."""

    @spelledOut
    def __init__(self, reactor: Any, key: str = "", **options: Unpack[QueueOptions]) -> None:
        settings = ClientSettings(reconnect=None, **options)
        super().__init__(*given(reactor, BlipClient, partial(LoopBlipClient, key=key), settings))


class BlipClientFactory(JoiningFactory[BlipClient]):
    """The connections of one client, as :class:`fleximq.client.twisted.ClientFactory`."""

    @spelledOut
    def __init__(self, reactor: Any, key: str = "", **options: Unpack[QueueOptions]) -> None:
        super().__init__(*given(reactor, BlipClient, partial(LoopBlipClient, key=key), ClientSettings(**options)))
