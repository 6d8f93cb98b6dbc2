"""The broker of dramatiq: ``FleximqBroker(url="tcp://localhost:7890")`` in place of its RabbitMQ or Redis broker.

A queue of dramatiq is one of FlexiMQ. A message with a delay is a schedule of the broker, so no worker holds it before
its time. A message belongs to its worker as long as the connection of the consumer lasts; a rejected one is a dead
letter. See docs/guides/dramatiq.rst for the differences from other brokers.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ssl import SSLContext
from typing import Any, NamedTuple, TypeVar, Unpack
from uuid import uuid4

try:
    from dramatiq.broker import Broker, Consumer, MessageProxy
    from dramatiq.errors import BrokerError, ConnectionClosed, ConnectionFailed, QueueJoinTimeout, QueueNotFound
    from dramatiq.logging import get_logger
    from dramatiq.message import Message
    from dramatiq.middleware import Middleware, SkipMessage
except ImportError as error:
    raise ImportError('the broker of dramatiq needs dramatiq: pip install "fleximq[dramatiq]"') from error

from fleximq.client.blocking import Client, connect
from fleximq.client.errors import Answered, ClientError, ConnectionLost, NotSettled, RequestFailed, SubscribeFailed
from fleximq.client.jobs import Job
from fleximq.client.keywords import ThreadConnectOptions
from fleximq.client.settings import State, Tls
from fleximq.integrations.definition import DEFINITION, priorityOf, unlessDefined
from fleximq.status import Status

#: The priority of an actor without one in dramatiq, where lower ones are first, is the usual one of a queue, where
#: higher ones are.
_USUAL = 4

T = TypeVar("T")


class FleximqBroker(Broker):
    """A broker of dramatiq.

    :param url: and ``options``: as :func:`fleximq.client.blocking.client.connect` has them.
    :param middleware: that of dramatiq by default.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "tcp://localhost:7890",
        *,
        middleware: list[Middleware] | None = None,
        **options: Unpack[ThreadConnectOptions[Tls | SSLContext]],
    ) -> None:
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self._url = url
        self._options: ThreadConnectOptions[Tls | SSLContext] = {**options, "reconnect": None}
        #: Connections that no thread uses.
        self._idle: deque[_Connection] = deque()
        self.add_middleware(_LostMessages())

    def close(self) -> None:
        """Close the connections of producers; consumers close theirs."""
        while self._idle:
            with suppress(ClientError, TimeoutError):
                self._idle.pop().client.close()

    # -- queues ------------------------------------------------------------------------------------

    def declare_queue(self, queue_name: str) -> None:
        """Note a queue. It is made with its first message or consumer, so actors can be declared without a broker."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        """Return the names of the declared queues."""
        return self.queues.copy()

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Enqueue a message, after a delay in milliseconds, and return when the broker has it: with a journal, on disk.

        :raises ConnectionFailed: there is no connection.
        :raises ConnectionClosed: the connection was lost, and the message may be enqueued; or it is too large.
        :raises BrokerError: the broker refused the message.
        """
        queue = message.queue_name
        self.declare_queue(queue)
        self.emit_before("enqueue", message, delay)
        payload = message.encode()
        options: dict[str, Any] = {
            "priority": self._priorityOf(message),
            # Not that of dramatiq: a retry has the id of the message that failed, and the broker drops repeated ones.
            "message_id": uuid4().hex,
            "delay": delay / 1000 if delay is not None and delay > 0 else None,
        }

        def publish(connection: _Connection) -> None:
            connection.define(queue)
            connection.client.enqueue(queue, payload, **options)
            connection.client.flush()

        self._use(publish)
        self.emit_after("enqueue", message, delay)
        return message

    def _priorityOf(self, message: Message[Any]) -> int:
        given = message.options.get("broker_priority")
        if given is None:
            actor = self.actors.get(message.actor_name)
            given = _USUAL - (0 if actor is None else actor.priority)
        return priorityOf(given)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30000) -> "FleximqConsumer":
        """Return a new consumer, with a connection of its own.

        :param timeout: the milliseconds after which it returns None if there is no message.
        :raises QueueNotFound: the queue is not declared.
        :raises ConnectionFailed: there is no connection, or the broker refused the consumer.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        connection = self._connect()
        try:
            connection.define(queue_name)
            return FleximqConsumer(connection.client, queue_name, prefetch, timeout)
        except (ClientError, TimeoutError) as error:
            connection.client.hang_up()
            raise ConnectionFailed(error) from error

    # -- connections -------------------------------------------------------------------------------

    def _connect(self) -> "_Connection":
        try:
            return _Connection(connect(self._url, **self._options), set())
        except ClientError as error:
            raise ConnectionFailed(error) from error

    def _use(self, operation: "Callable[[_Connection], T]") -> T:
        """Return the result of an operation with a connection that no other thread uses; repeat it with a new one if
        that had ended unnoticed.
        """
        idle = self._takeIdle()
        if idle is not None:
            with suppress(ConnectionClosed):
                return self._useOnce(idle, operation)
        return self._useOnce(self._connect(), operation)

    def _useOnce(self, connection: "_Connection", operation: "Callable[[_Connection], T]") -> T:
        try:
            found = operation(connection)
        except Answered as error:
            self._idle.append(connection)
            raise BrokerError(error) from error
        except (ClientError, TimeoutError) as error:
            connection.client.hang_up()
            raise ConnectionClosed(error) from error
        except BaseException:
            connection.client.hang_up()
            raise
        self._idle.append(connection)
        return found

    def _takeIdle(self) -> "_Connection | None":
        with suppress(IndexError):
            while (connection := self._idle.pop()).client.state is not State.JOINED:  # also those of a forked parent
                pass
            return connection
        return None

    # -- for tests ---------------------------------------------------------------------------------

    def get_queue_message_counts(self, queue_name: str) -> tuple[int, int, int]:
        """Return how many messages of a queue wait or are unsettled, how many are delayed, and how many are dead."""

        def counts(connection: _Connection) -> tuple[int, int, int]:
            delayed = sum("id" in each for each in connection.client.schedules(topic=queue_name))
            rows = {each["queue"]: each["messages"] + each["in_flight"] for each in connection.client.queues()}
            return rows.get(queue_name, 0), delayed, rows.get(f"$dead/{queue_name}", 0)

        return self._use(counts)

    def flush(self, queue_name: str) -> None:
        """Drop all waiting, delayed and dead messages of a queue, which needs the right to ``admin``."""

        def purge(connection: _Connection) -> None:
            for each in connection.client.schedules(topic=queue_name):
                if "id" in each:
                    connection.client.cancel_schedule(each["id"])
            for name in (queue_name, f"$dead/{queue_name}"):
                try:
                    connection.client.ask("/broker/queues/purge", {"topic": name})
                except RequestFailed as error:
                    if error.status != Status.NOT_FOUND:
                        raise

        self._use(purge)

    def flush_all(self) -> None:
        """Drop all messages of all declared queues."""
        for name in self.queues:
            self.flush(name)

    def join(
        self, queue_name: str, min_successes: int = 2, idle_time: int = 100, *, timeout: int | None = None
    ) -> None:
        """Wait until no message of a queue waits, is delayed or unsettled; for tests.

        :param min_successes: how often that must hold in succession, ``idle_time`` milliseconds apart.
        :param timeout: milliseconds.
        :raises QueueJoinTimeout: it took longer than that.
        """
        deadline = None if timeout is None else time.monotonic() + timeout / 1000
        successes = 0
        while True:
            successes = 0 if any(self.get_queue_message_counts(queue_name)[:2]) else successes + 1
            if successes >= min_successes:
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise QueueJoinTimeout(queue_name)
            time.sleep(idle_time / 1000)


class _Connection(NamedTuple):
    """A client that does not reconnect, and the queues that it has defined."""

    client: Client
    defined: set[str]

    def define(self, queue: str) -> None:
        """Define a queue, unless an operator or another program has, or only workers may."""
        if queue not in self.defined:
            with unlessDefined():
                self.client.define_queue(queue, **DEFINITION)
            self.defined.add(queue)


class FleximqMessage(MessageProxy):
    """A message with its delivery."""

    def __init__(self, message: Message[Any], job: Job, client: Client) -> None:
        super().__init__(message)
        self._job = job
        self._client = client

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before."""
        return self._job.attempt > 1


class FleximqConsumer(Consumer):
    """Iterates over the messages of a queue; its connection is its own, and does not reconnect: dramatiq does."""

    def __init__(self, client: Client, queue: str, prefetch: int, timeout: int) -> None:
        self.logger = get_logger(__name__, type(self))
        self._client = client
        self._timeout = timeout / 1000
        self._jobs = client.consume(queue, prefetch)

    def __next__(self) -> FleximqMessage | None:
        """Return the next message, None after the timeout; raises ConnectionClosed."""
        try:
            job = self._jobs.take(self._timeout)
        except (ConnectionLost, SubscribeFailed) as error:
            raise ConnectionClosed(error) from error
        if job is None:
            return None
        try:
            return FleximqMessage(Message.decode(job.value), job, self._client)
        except Exception as error:  # those of any encoder
            self.logger.exception("%r cannot be decoded.", job)
            self._settle(job.reject, f"cannot be decoded: {error}")
            return None

    def ack(self, message: MessageProxy) -> None:
        """Acknowledge a message; one whose connection has ended is logged, since it is delivered again."""
        assert isinstance(message, FleximqMessage)
        self._settle(message._job.ack)

    def nack(self, message: MessageProxy) -> None:
        """Make a message a dead letter, with its exception as words."""
        assert isinstance(message, FleximqMessage)
        self._settle(message._job.reject, "" if message._exception is None else repr(message._exception))

    def _settle(self, settle: Callable[..., None], *words: str) -> None:
        try:
            settle(*words)
        except NotSettled as error:
            self.logger.warning("%s", error.words)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Nothing: unsettled messages return to their queue when the connection is closed."""

    def close(self) -> None:
        """Send the acknowledgements, and close the connection."""
        try:
            self._client.close()
        except (ClientError, TimeoutError) as error:
            raise ConnectionClosed(error) from error


class _LostMessages(Middleware):
    """Skips messages that a worker has prefetched, but whose connection has ended: other workers get them."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Skip a message that belongs to the worker no more."""
        if isinstance(message, FleximqMessage) and message._client.state is not State.JOINED:
            raise SkipMessage("its connection has ended, and it is delivered again")
