"""The MiniMQ client for programs on Twisted: Deferreds and asynchronous iteration.

::

    client = await connect(reactor, "tcp://localhost:7890")
    await client.produce("jobs", "sweep the yard")
"""

from ssl import SSLContext
from typing import Any, Unpack

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from fleximq.client.errors import ConsumeFailed, ProduceFailed
from fleximq.client.keywords import QueueConnectOptions, QueueOptions, spelledOut
from fleximq.client.loops.deferred import DeferredClient, DeferredSubscription, fired
from fleximq.client.loops.endpoint import JoiningFactory, JoiningProtocol, Place, given, reached
from fleximq.client.minimq.loop_client import ConsumerWrapper, LoopConsumer, LoopMiniClient, Message
from fleximq.client.settings import ClientSettings, Tls
from fleximq.client.wrapper import called, wrapping

__all__ = [
    "ConsumeFailed",
    "Consumer",
    "Message",
    "MiniClient",
    "MiniClientFactory",
    "MiniClientProtocol",
    "ProduceFailed",
    "connect",
]


@spelledOut
def connect(
    reactor: Any,
    url: Place = "tcp://localhost:7890",
    **options: Unpack[QueueConnectOptions[Tls | SSLContext | IOpenSSLClientConnectionCreator]],
) -> "Deferred[MiniClient]":
    """Connect. Close the client at the end, or use it in ``async with``.

    Parameters and errors as :func:`fleximq.client.minimq.blocking.connect`; the errors are in the Deferred.

    :param url: or an ``IStreamClientEndpoint``, by which the client connects and reconnects; it may use TLS.
    """

    async def opened() -> MiniClient:
        return MiniClient(await LoopMiniClient(*reached(reactor, url), ClientSettings(**options)).open())

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


class MiniClientProtocol(JoiningProtocol[MiniClient]):
    """One connection, as :class:`fleximq.client.twisted.ClientProtocol`."""

    @spelledOut
    def __init__(self, reactor: Any, **options: Unpack[QueueOptions]) -> None:
        settings = ClientSettings(reconnect=None, **options)
        super().__init__(*given(reactor, MiniClient, LoopMiniClient, settings))


class MiniClientFactory(JoiningFactory[MiniClient]):
    """The connections of one client, as :class:`fleximq.client.twisted.ClientFactory`."""

    @spelledOut
    def __init__(self, reactor: Any, **options: Unpack[QueueOptions]) -> None:
        super().__init__(*given(reactor, MiniClient, LoopMiniClient, ClientSettings(**options)))
