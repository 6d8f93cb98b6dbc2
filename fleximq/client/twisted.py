"""The client for programs on Twisted: Deferreds and asynchronous iteration.

::

    client = await connect(reactor, "tcp://localhost:7890")
    await client.publish("news", {"rain": True})
"""

from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from ssl import SSLContext
from typing import Any, Concatenate, ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from fleximq.client import settings
from fleximq.client.backoff import Backoff
from fleximq.client.events import Delivery, Notification
from fleximq.client.loops.deferred import DeferredClient, DeferredSubscription, fired, firedWrapping
from fleximq.client.loops.loop_client import LoopClient, LoopSubscription
from fleximq.client.loops.reactor import ReactorLoop
from fleximq.client.wrapper import called, wrapping
from fleximq.values.urls import addressesOf

__all__ = ["Client", "Subscription", "connect"]

P = ParamSpec("P")
M = TypeVar("M", bound=Delivery | Notification)


def connect(
    reactor: Any,
    url: str | Sequence[str] = "tcp://localhost:7890",
    *,
    credentials: Mapping[str, str] | None = None,
    name: str | None = None,
    timeout: float = settings.TIMEOUT,
    tls: settings.Tls | SSLContext | IOpenSSLClientConnectionCreator | None = None,
    reconnect: Backoff | None = settings.BACKOFF,
    buffer: int = settings.BUFFER_BYTES,
    prefetch: int = settings.PREFETCH_BYTES,
    keep_alive: float | None = settings.KEEP_ALIVE,
    codec: settings.Codec = settings.MESSAGEPACK,
    on_state: settings.Watcher | None = None,
) -> "Deferred[Client]":
    """Connect and join. Close the client at the end, or use it in ``async with``.

    Parameters and errors as :func:`fleximq.client.blocking.connect`; all errors are in the Deferred.
    """

    async def opened() -> Client:
        checked = settings.ClientSettings(
            credentials=credentials,
            name=name,
            timeout=timeout,
            tls=tls,
            reconnect=reconnect,
            buffer=buffer,
            prefetch=prefetch,
            keep_alive=keep_alive,
            codec=codec,
            on_state=on_state,
        )
        return Client(await LoopClient(ReactorLoop(reactor), addressesOf(url), checked).open())

    return Deferred.fromCoroutine(opened())


class Subscription(DeferredSubscription[LoopSubscription[M], M]):
    """The messages of a topic or pattern, in order: iterate over it, or call :meth:`next`.

    Errors as :meth:`LoopSubscription.next <fleximq.client.loops.loop_client.LoopSubscription.next>`.
    """

    @property
    def topic(self) -> str:
        """The topic or pattern; "" for notifications."""
        return self._inner.topic


def _claiming(
    method: Callable[Concatenate[Any, P], "Deferred[None]"],
) -> Callable[Concatenate[Any, P], "Deferred[None]"]:
    """Attribute a publication to the caller, since a Deferred's coroutine runs in a copy of the caller's context."""

    def call(self: Any, /, *arguments: P.args, **more: P.kwargs) -> "Deferred[None]":
        self._inner.claim()
        return method(self, *arguments, **more)

    return update_wrapper(call, method)


class Client(DeferredClient[LoopClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    Values and errors as those of :class:`~fleximq.client.loops.loop_client.LoopClient`; errors are in the Deferreds.
    """

    @property
    def id(self) -> int:
        """The id that the broker assigned to this connection; it changes when the client reconnects."""
        return self._inner.id

    publish = _claiming(fired(LoopClient.publish))
    publish_many = _claiming(fired(LoopClient.publish_many))
    notify = _claiming(fired(LoopClient.notify))
    broadcast = _claiming(fired(LoopClient.broadcast))
    flush = fired(LoopClient.flush)
    request = fired(LoopClient.request)
    ask = fired(LoopClient.ask)
    subscribe = firedWrapping(Subscription[Delivery], LoopClient.subscribe)
    notifications = wrapping(Subscription[Notification], called(LoopClient.notifications))
    serve = called(LoopClient.serve)
