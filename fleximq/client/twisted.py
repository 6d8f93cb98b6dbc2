"""The client for programs on Twisted: Deferreds, async iteration, and the reactor that it is given.

::

    client = await connect(reactor, "tcp://localhost:7890")
    await client.publish("news", {"rain": True})
"""

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from twisted.internet.defer import Deferred

from fleximq.client.loops.deferred import DeferredClient, DeferredSubscription
from fleximq.client.loops.loop_client import AwaitedClient, AwaitedSubscription, Function
from fleximq.client.loops.reactor import ReactorLoop
from fleximq.client.settings import PATIENCE, ClientSettings, Start, Wishes
from fleximq.client.sockets import checkTls
from fleximq.values.urls import Url

__all__ = ["Client", "Subscription", "connect"]


def connect(reactor: Any, url: str = "tcp://localhost:7890", **wishes: Unpack[Wishes]) -> "Deferred[Client]":
    """Connect and join; close the client in the end, or use it in ``async with``.

    :param url: ``tcp://``, ``tls://``, ``ipc://``, ``ws://``, ``wss://``, or ``stdio://`` in a program that the broker
        has started.
    :param wishes: see :class:`~fleximq.client.settings.ClientSettings`; ``tls`` may be what Twisted calls an
        ``IOpenSSLClientConnectionCreator``.
    :raises SettingError: the URL or a wish makes no sense; like all errors, in the Deferred.
    :raises ConnectionLost: nobody listens there, or nobody who speaks FlexiMQ.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises JoinRefused: the broker does not let this client in.
    """

    async def opened() -> Client:
        place, settings = Url.parse(url), ClientSettings(**wishes)
        checkTls(place, settings)
        return Client(await AwaitedClient(ReactorLoop(reactor), place, settings).open())

    return Deferred.fromCoroutine(opened())


class Client(DeferredClient[AwaitedClient]):
    """A connection to a broker, made by :func:`connect`, and made anew when it is lost.

    Values may be whatever MessagePack can hold, or the ``codec``; others raise TypeError, ValueError or OverflowError.
    What is published while the broker is away is kept for it, up to ``buffer`` bytes; whoever waits for an answer when
    the connection is lost gets :class:`~fleximq.client.errors.ConnectionLost`. All errors come in the Deferreds.
    """

    @property
    def id(self) -> int:
        """The id that the broker gave to this connection; another one after the next."""
        return self._inner.id

    def publish(self, topic: str, value: object, /, **keys: Any) -> "Deferred[None]":
        """Publish a value, see :meth:`AwaitedClient.publish
        <fleximq.client.loops.loop_client.AwaitedClient.publish>`."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.publish(topic, value, **keys))

    def publishMany(self, topic: str, values: Iterable[object]) -> "Deferred[None]":
        """Publish many values at once, which is much quicker than one by one; errors as :meth:`publish`."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.publishMany(topic, values))

    def notify(self, targets: int | Sequence[int], path: str, value: object = None) -> "Deferred[None]":
        """Send a notification to one client or several; nobody answers it."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.notify(targets, path, value))

    def broadcast(self, value: object = None) -> "Deferred[None]":
        """Send a value to every other client."""
        self._inner.claim()
        return Deferred.fromCoroutine(self._inner.broadcast(value))

    def flush(self, timeout: float | None = PATIENCE) -> "Deferred[None]":
        """Fire when all that was sent is done and, on durable topics, on disk.

        :raises PublishFailed: something was refused since the last flush; of several who flush, one is told.
        :raises ConnectionLost: the connection was lost since then; what was sent before may not have arrived. Each
            coroutine of whose publications that is so is told once, and so is the first of all others.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        return Deferred.fromCoroutine(self._inner.flush(timeout))

    def request(
        self, target: int, path: str, value: object = None, timeout: float | None = PATIENCE
    ) -> "Deferred[Any]":
        """Ask another client and fire with its answer's value.

        :param target: its id.
        :raises RequestFailed: it answered with an error, or the broker could not reach it.
        :raises TimeoutError: there was no answer in so many seconds.
        :raises ConnectionLost: the connection ended; whether the request arrived is not known.
        :raises ValueError: the answer cannot be read.
        """
        return Deferred.fromCoroutine(self._inner.request(target, path, value, timeout))

    def ask(self, path: str, value: object = None, timeout: float | None = PATIENCE) -> "Deferred[Any]":
        """Ask the broker itself, e.g. ``/broker/about``; errors as for :meth:`request`."""
        return Deferred.fromCoroutine(self._inner.ask(path, value, timeout))

    def subscribe(
        self, topic: str, from_: Start | None = None, timeout: float | None = PATIENCE
    ) -> "Deferred[Subscription]":
        """Subscribe to a topic or pattern, and fire when the broker has done it.

        Parameters and errors as :meth:`AwaitedClient.subscribe
        <fleximq.client.loops.loop_client.AwaitedClient.subscribe>`.
        """

        async def subscribed() -> Subscription:
            return Subscription(await self._inner.subscribe(topic, from_, timeout))

        return Deferred.fromCoroutine(subscribed())

    def notifications(self) -> "Subscription":
        """Return what iterates over what comes from now on to this client itself: notifications and broadcasts."""
        return Subscription(self._inner.notifications())

    def serve(self, path: str, function: Function) -> None:
        """Answer requests to a path with what a function returns for each; it may return a Deferred or a coroutine.

        An :class:`~fleximq.client.errors.Answered` that it raises is the answer, with its status and words; any other
        exception is logged, and answered with 500. A path is served until the client is closed, over every connection.

        :raises ValueError: the path is served already.
        """
        self._inner.serve(path, function)


class Subscription(DeferredSubscription[AwaitedSubscription]):
    """What is published to a topic or pattern, in order: iterate over it, or take one by one."""

    @property
    def topic(self) -> str:
        """The topic or pattern."""
        return self._inner.topic

    def next(self, timeout: float | None = None) -> "Deferred[Any]":
        """Fire with the next delivery; None if none came within ``timeout`` seconds, or if this was closed.

        Errors as :meth:`AwaitedSubscription.next <fleximq.client.loops.loop_client.AwaitedSubscription.next>`.
        """
        return Deferred.fromCoroutine(self._inner.next(timeout))
