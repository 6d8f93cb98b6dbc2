"""The client for programs on Twisted: Deferreds and asynchronous iteration.

::

    client = await connect(reactor, "tcp://localhost:7890")
    await client.publish("news", {"rain": True})
"""

from collections.abc import Callable
from functools import update_wrapper
from ssl import SSLContext
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from fleximq.client.events import Delivery, Notification
from fleximq.client.jobs import Job
from fleximq.client.keywords import ConnectOptions, FlexiOptions, spelledOut
from fleximq.client.loops.deferred import DeferredClient, DeferredSubscription, fired, firedWrapping
from fleximq.client.loops.endpoint import JoiningFactory, JoiningProtocol, Place, given, reached
from fleximq.client.loops.loop_client import LoopClient, LoopSubscription
from fleximq.client.loops.worker import LoopJobs
from fleximq.client.protocol.queue_operations import QueueOperations
from fleximq.client.settings import ClientSettings, Tls
from fleximq.client.wrapper import called, wrapping

__all__ = ["Client", "ClientFactory", "ClientProtocol", "Jobs", "Subscription", "connect"]

P = ParamSpec("P")
M = TypeVar("M", bound=Delivery | Notification)


@spelledOut
def connect(
    reactor: Any,
    url: Place = "tcp://localhost:7890",
    **options: Unpack[ConnectOptions[Tls | SSLContext | IOpenSSLClientConnectionCreator]],
) -> "Deferred[Client]":
    """Connect and join. Close the client at the end, or use it in ``async with``.

    Parameters and errors as :func:`fleximq.client.blocking.connect`; all errors are in the Deferred.

    :param url: or an ``IStreamClientEndpoint``, by which the client connects and reconnects; it may use TLS.
    """

    async def opened() -> Client:
        return Client(await LoopClient(*reached(reactor, url), ClientSettings(**options)).open())

    return Deferred.fromCoroutine(opened())


class Subscription(DeferredSubscription[LoopSubscription[M], M]):
    """The messages of a topic or pattern, in order: iterate over it, or call :meth:`next`.

    Errors as :meth:`LoopSubscription.next <fleximq.client.loops.loop_client.LoopSubscription.next>`.
    """

    @property
    def topic(self) -> str:
        """The topic or pattern; "" for notifications."""
        return self._inner.topic


class Jobs(DeferredSubscription[LoopJobs, Job]):
    """The jobs of a queue: iterate over it, or call :meth:`next`, which acknowledges the previous one.

    If a loop ends early, its last job is not acknowledged; :meth:`close` returns it. ``take`` acknowledges none.
    """

    @property
    def queue(self) -> str:
        """The queue."""
        return self._inner.queue

    next = fired(LoopJobs.next)
    take = fired(LoopJobs.take)
    halt = called(LoopJobs.halt)


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
    enqueue = _claiming(fired(LoopClient.enqueue))
    enqueue_many = _claiming(fired(LoopClient.enqueue_many))
    consume = firedWrapping(Jobs, LoopClient.consume)
    work = fired(QueueOperations.work)
    stop_work = called(QueueOperations.stop_work)
    cancel = fired(LoopClient.cancel)
    define_queue = fired(LoopClient.define_queue)
    pause_queue = fired(LoopClient.pause_queue)
    queues = fired(LoopClient.queues)
    schedule = fired(LoopClient.schedule)
    repeat = fired(LoopClient.repeat)
    schedules = fired(LoopClient.schedules)
    cancel_schedule = fired(LoopClient.cancel_schedule)
    pause_schedule = fired(LoopClient.pause_schedule)
    put_value = fired(LoopClient.put_value)
    get_value = fired(LoopClient.get_value)
    get_values = fired(LoopClient.get_values)
    add_to_value = fired(LoopClient.add_to_value)
    delete_value = fired(LoopClient.delete_value)
    delete_values = fired(LoopClient.delete_values)
    count_values = fired(LoopClient.count_values)
    values = fired(LoopClient.values)


class ClientProtocol(JoiningProtocol[Client]):
    """One connection, for ``connectProtocol(endpoint, ClientProtocol(reactor))``; its ``client`` ends with it.

    The keyword arguments are those of :func:`connect`, without ``tls`` and ``reconnect``; raises SettingError.
    """

    @spelledOut
    def __init__(self, reactor: Any, **options: Unpack[FlexiOptions]) -> None:
        super().__init__(*given(reactor, Client, LoopClient, ClientSettings(reconnect=None, **options)))


class ClientFactory(JoiningFactory[Client]):
    """Makes the connections of one ``client``, for ``ClientService(endpoint, ClientFactory(reactor))``.

    The client can be used at once, and waits for a connection; with each further one it restores its subscriptions. The
    service decides when to connect again. A client that was closed, or that the broker refuses for good, accepts no
    further connection: close it first, then stop the service. Arguments as those of :class:`ClientProtocol`.
    """

    @spelledOut
    def __init__(self, reactor: Any, **options: Unpack[FlexiOptions]) -> None:
        super().__init__(*given(reactor, Client, LoopClient, ClientSettings(**options)))
