"""The client managers of python-socketio: servers of one application share rooms, events and callbacks.

::

    socketio.AsyncServer(client_manager=AsyncFleximqManager("tcp://localhost:7890"))
    socketio.Server(client_manager=FleximqManager("tcp://localhost:7890"))

Both publish to the same topic, so that servers and other programs of both kinds reach each other's clients.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from threading import Lock
from typing import Any

try:
    from socketio.async_pubsub_manager import AsyncPubSubManager
    from socketio.pubsub_manager import PubSubManager
except ImportError as error:
    raise ImportError('the managers of Socket.IO need socketio: pip install "fleximq[socketio]"') from error

from fleximq.client import asyncio as asynchronous
from fleximq.client import blocking
from fleximq.client.backoff import Backoff
from fleximq.client.errors import ClientError, ConnectionLost
from fleximq.client.settings import ClientSettings, State
from fleximq.values.urls import addressesOf

#: Delays between attempts to connect, again or for the first time: a web application is used meanwhile.
_RECONNECT = Backoff(first=0.1, most=2.0)
#: The errors of a lost or refused connection, and ValueError for a message of another program.
_ERRORS = (ClientError, TimeoutError, ValueError)


class _Publishing:
    """The constructor of both managers; those of socketio are the next one."""

    name = "fleximq"

    def __init__(
        self,
        url: str | Sequence[str] = "tcp://localhost:7890",
        channel: str = "socketio",
        write_only: bool = False,
        resume: bool = False,
        logger: Any = None,
        json: Any = None,
        **options: Any,
    ) -> None:
        own: dict[str, Any] = {"channel": channel, "write_only": write_only, "logger": logger, "json": json}
        super().__init__(**own)
        addressesOf(url)
        ClientSettings(**options)  # the errors of wrong ones are raised now, and not at the first event
        self._url, self._options = url, {"reconnect": _RECONNECT, **options}
        self._resume = resume
        self._isClosed = False


class AsyncFleximqManager(_Publishing, AsyncPubSubManager):
    """A client manager for asyncio.

    :param url: the broker's address, or those of a cluster, as for :func:`fleximq.client.asyncio.connect`.
    :param channel: the topic; it must be the same in all servers.
    :param write_only: only emit, as a process without a server.
    :param resume: after a lost connection, continue where it was lost. This needs a broker with a journal, where the
        topic is durable.
    :param logger: a logger; by default the server's.
    :param json: a module in place of :mod:`json`, for a manager that is ``write_only``.
    :param options: further arguments of :func:`fleximq.client.asyncio.connect`, such as ``credentials`` and ``tls``.
    """

    _joining: asyncio.Task[asynchronous.Client] | None = None

    async def close(self) -> None:
        """Disconnect from the broker."""
        self._isClosed = True
        joining, self._joining = self._joining, None
        if joining is not None:
            await (await joining).close()

    async def _client(self) -> asynchronous.Client:
        """Return the client of this event loop; it connects if there is none, or if its event loop has ended."""
        joining = self._joining
        if joining is not None and joining.done():
            failed = joining.cancelled() or joining.exception() is not None
            if failed or joining.result().state is State.CLOSED:
                joining = None
        if joining is None or joining.get_loop() is not asyncio.get_running_loop():
            joining = self._joining = asyncio.create_task(self._join())
        return await asyncio.shield(joining)

    async def _join(self) -> asynchronous.Client:
        return await asynchronous.connect(self._url, **self._options)

    async def _publish(self, data: Any) -> None:
        """Publish for all servers, once more if the connection was lost. A failure is logged, as by other managers."""
        payload = self.json.dumps(data)
        for isLast in (False, True):
            try:
                client = await self._client()
                await client.publish(self.channel, payload)
                await client.flush()
                return
            except _ERRORS as error:
                if isLast or not isinstance(error, ConnectionLost):
                    self._get_logger().error("Cannot publish to the broker: %s", error)
                    return

    async def _listen(self) -> AsyncIterator[Any]:
        """Yield what the servers have published; it goes on after each loss of the connection."""
        pauses = _RECONNECT.pauses()
        while not self._isClosed:
            try:
                client = await self._client()
                async with await client.subscribe(self.channel, resume=self._resume) as subscription:
                    pauses = _RECONNECT.pauses()
                    async for delivery in subscription:
                        yield delivery.value
            except _ERRORS as error:
                self._get_logger().error("Cannot receive from the broker, trying again: %s", error)
            await asyncio.sleep(next(pauses))


class FleximqManager(_Publishing, PubSubManager):
    """A client manager for threads; parameters as of :class:`AsyncFleximqManager`."""

    _inner: blocking.Client | None = None

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._lock = Lock()

    def close(self) -> None:
        """Disconnect from the broker."""
        self._isClosed = True
        with self._lock:
            if self._inner is not None:
                self._inner.close()

    def _client(self) -> blocking.Client:
        """Return the client; it connects if there is none."""
        with self._lock:
            if self._inner is None or self._inner.state is State.CLOSED:
                self._inner = blocking.connect(self._url, **self._options)
            return self._inner

    def _publish(self, data: Any) -> None:
        """As :meth:`AsyncFleximqManager._publish`."""
        payload = self.json.dumps(data)
        for isLast in (False, True):
            try:
                client = self._client()
                client.publish(self.channel, payload)
                client.flush()
                return
            except _ERRORS as error:
                if isLast or not isinstance(error, ConnectionLost):
                    self._get_logger().error("Cannot publish to the broker: %s", error)
                    return

    def _listen(self) -> Iterator[Any]:
        """As :meth:`AsyncFleximqManager._listen`."""
        pauses = _RECONNECT.pauses()
        while not self._isClosed:
            try:
                with self._client().subscribe(self.channel, resume=self._resume) as subscription:
                    pauses = _RECONNECT.pauses()
                    for delivery in subscription:
                        yield delivery.value
            except _ERRORS as error:
                self._get_logger().error("Cannot receive from the broker, trying again: %s", error)
            time.sleep(next(pauses))
