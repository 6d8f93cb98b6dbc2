"""The client for programs without an event loop: scripts, notebooks, worker processes. Uses plain sockets::

    with connect("tcp://localhost:7890") as client:
        client.publish("news", {"rain": True})

Threads may share a client.
"""

from collections.abc import Sequence
from ssl import SSLContext
from typing import Unpack

from fleximq.client.blocking.thread_client import Subscription, ThreadClient
from fleximq.client.blocking.worker import Jobs
from fleximq.client.keywords import ThreadConnectOptions, spelledOut
from fleximq.client.protocol.queue_operations import QueueOperations
from fleximq.client.settings import ClientSettings, Tls
from fleximq.client.wrapper import BlockingClient, called, returning, waiting
from fleximq.values.urls import addressesOf

__all__ = ["Client", "Jobs", "Subscription", "connect"]


@spelledOut
def connect(
    url: str | Sequence[str] = "tcp://localhost:7890", **options: Unpack[ThreadConnectOptions[Tls | SSLContext]]
) -> "Client":
    """Connect and join. Use the client in a ``with`` statement, or close it.

    The keyword arguments are described in :class:`~fleximq.client.settings.ClientSettings`.

    :param url: ``tcp://``, ``tls://``, ``ipc://``, ``ws://``, ``wss://``, or ``stdio://`` in a program that the broker
        has started; ``HOST:PORT`` alone means ``tcp://``. A cluster has several addresses, as ``tcp://a:7890,b:7890``
        or a list of URLs: the client connects to any of them, and to another one after a loss.
    :raises SettingError: the URL or a setting is invalid.
    :raises ConnectionLost: no FlexiMQ broker answers there.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises JoinRefused: the broker refused to admit the client.
    """
    return Client(ThreadClient(addressesOf(url), ClientSettings(**options)))


class Client(BlockingClient[ThreadClient]):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    Values are of the types that MessagePack, or the ``codec``, can encode; others raise TypeError, ValueError or
    OverflowError before they are sent. While the broker is unreachable, publications are buffered up to ``buffer``
    bytes. When the connection is lost, calls that wait for an answer raise
    :class:`~fleximq.client.errors.ConnectionLost`.
    """

    @property
    def id(self) -> int:
        """The id that the broker assigned to this connection; it changes when the client reconnects."""
        return self._inner.id

    publish = waiting(ThreadClient.publish)
    publish_many = waiting(ThreadClient.publish_many)
    notify = waiting(ThreadClient.notify)
    broadcast = waiting(ThreadClient.broadcast)
    flush = waiting(ThreadClient.flush)
    request = waiting(ThreadClient.request)
    ask = waiting(ThreadClient.ask)
    ask_packed = waiting(ThreadClient.ask_packed)
    subscribe = returning("Subscription[Delivery]", waiting(ThreadClient.subscribe))
    notifications = returning("Subscription[Notification]", called(ThreadClient.notifications))
    serve = called(ThreadClient.serve)
    enqueue = waiting(ThreadClient.enqueue)
    enqueue_many = waiting(ThreadClient.enqueue_many)
    consume = returning("Jobs", waiting(ThreadClient.consume))
    work = waiting(QueueOperations.work)
    stop_work = called(QueueOperations.stop_work)
    cancel = waiting(ThreadClient.cancel)
    define_queue = waiting(ThreadClient.define_queue)
    pause_queue = waiting(ThreadClient.pause_queue)
    queues = waiting(ThreadClient.queues)
    schedule = waiting(ThreadClient.schedule)
    repeat = waiting(ThreadClient.repeat)
    schedules = waiting(ThreadClient.schedules)
    cancel_schedule = waiting(ThreadClient.cancel_schedule)
    pause_schedule = waiting(ThreadClient.pause_schedule)
    put_value = waiting(ThreadClient.put_value)
    get_value = waiting(ThreadClient.get_value)
    get_values = waiting(ThreadClient.get_values)
    add_to_value = waiting(ThreadClient.add_to_value)
    delete_value = waiting(ThreadClient.delete_value)
    delete_values = waiting(ThreadClient.delete_values)
    count_values = waiting(ThreadClient.count_values)
    values = waiting(ThreadClient.values)
