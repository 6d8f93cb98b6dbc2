"""The client manager of python-socketio for asyncio: servers of one application share rooms, events and callbacks.

::

    socketio.AsyncServer(client_manager=AsyncFleximqManager("tcp://localhost:7890"))

Servers that do not use asyncio have the ``KombuManager`` of python-socketio over :mod:`fleximq.integrations.kombu`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

try:
    from socketio.async_pubsub_manager import AsyncPubSubManager
except ImportError as error:
    raise ImportError('the manager of Socket.IO needs socketio: pip install "fleximq[socketio]"') from error

from fleximq.client.asyncio import Client, connect
from fleximq.client.backoff import Backoff
from fleximq.client.errors import ClientError, ConnectionLost
from fleximq.client.settings import State

#: Delays between attempts to connect, again or for the first time: a web application is used meanwhile.
_RECONNECT = Backoff(first=0.1, most=2.0)


class AsyncFleximqManager(AsyncPubSubManager):
    """A client manager over a topic.

    :param url: the broker's address, or those of a cluster, as for :func:`fleximq.client.asyncio.connect`.
    :param channel: the topic; it must be the same in all servers.
    :param write_only: only emit, as a process without a server.
    :param resume: after a lost connection, continue where it was lost. This needs a broker with a journal, where the
        topic is durable.
    :param logger: a logger; by default the server's.
    :param json: a module in place of :mod:`json`, for a manager that is ``write_only``.
    :param options: further arguments of :func:`fleximq.client.asyncio.connect`, such as ``credentials`` and ``tls``.
    """

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
        super().__init__(channel=channel, write_only=write_only, logger=logger, json=json)
        self._connect = lambda: connect(url, **{"reconnect": _RECONNECT, **options})
        self._connect()  # raises the errors of wrong arguments; it connects when it is awaited
        self._resume = resume
        self._joining: asyncio.Task[Client] | None = None

    async def _client(self) -> Client:
        """Return the client of this event loop; it connects if there is none, or if its event loop has ended."""
        joining = self._joining
        if joining is not None and joining.done():
            failed = joining.cancelled() or joining.exception() is not None
            if failed or joining.result().state is State.CLOSED:
                joining = None
        if joining is None or joining.get_loop() is not asyncio.get_running_loop():
            joining = self._joining = asyncio.create_task(self._join())
        return await asyncio.shield(joining)

    async def _join(self) -> Client:
        return await self._connect()

    async def _publish(self, data: Any) -> None:
        """Publish for all servers, once more if the connection was lost. What fails is logged, as by other managers."""
        payload = self.json.dumps(data)
        for isLast in (False, True):
            try:
                client = await self._client()
                await client.publish(self.channel, payload)
                await client.flush()
                return
            except (ClientError, TimeoutError) as error:
                if isLast or not isinstance(error, ConnectionLost):
                    self._get_logger().error("Cannot publish to the broker: %s", error)
                    return

    async def _listen(self) -> AsyncIterator[Any]:
        """Yield what the servers have published; it goes on after each loss of the connection."""
        pauses = _RECONNECT.pauses()
        while True:
            try:
                client = await self._client()
                async with await client.subscribe(self.channel, resume=self._resume) as subscription:
                    pauses = _RECONNECT.pauses()
                    async for delivery in subscription:
                        yield delivery.value
            except (ClientError, TimeoutError, ValueError) as error:
                self._get_logger().error("Cannot receive from the broker, trying again: %s", error)
            await asyncio.sleep(next(pauses))

    async def close(self) -> None:
        """Disconnect from the broker."""
        joining, self._joining = self._joining, None
        if joining is not None:
            await (await joining).close()
