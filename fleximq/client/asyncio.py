"""The client for programs on asyncio. Uses asyncio's own transports, without Twisted.

::

    async with connect("tcp://localhost:7890") as client:
        await client.publish("news", {"rain": True})
"""

import asyncio
from collections.abc import Generator, Mapping
from ssl import SSLContext
from types import TracebackType
from typing import Any

from fleximq.client.backoff import Backoff
from fleximq.client.loops.asyncio_loop import AsyncioLoop
from fleximq.client.loops.loop_client import LoopClient, LoopSubscription
from fleximq.client.settings import (
    BACKOFF,
    BUFFER_BYTES,
    KEEP_ALIVE,
    MESSAGEPACK,
    PREFETCH_BYTES,
    TIMEOUT,
    ClientSettings,
    Codec,
    Tls,
    Watcher,
)
from fleximq.client.sockets import checkTls
from fleximq.values.urls import Url

Client = LoopClient
Subscription = LoopSubscription

__all__ = ["Client", "Connecting", "Subscription", "connect"]


def connect(
    url: str = "tcp://localhost:7890",
    *,
    credentials: Mapping[str, str] | None = None,
    name: str | None = None,
    timeout: float = TIMEOUT,
    tls: Tls | SSLContext | None = None,
    reconnect: Backoff | None = BACKOFF,
    buffer: int = BUFFER_BYTES,
    prefetch: int = PREFETCH_BYTES,
    keep_alive: float | None = KEEP_ALIVE,
    codec: Codec = MESSAGEPACK,
    on_state: Watcher | None = None,
) -> "Connecting":
    """Connect and join. Use the result in ``async with``, which closes the client at the end, or await it.

    Parameters as :func:`fleximq.client.blocking.connect`.

    :raises SettingError: the URL or a setting is invalid. The errors of :meth:`LoopClient.open` are raised on awaiting.
    """
    address = Url.parse(url)
    settings = ClientSettings(
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
    checkTls(address, settings)
    return Connecting(address, settings)


class Connecting:
    """A client that connects when it is awaited or entered."""

    def __init__(self, url: Url, settings: ClientSettings) -> None:
        self._url = url
        self._settings = settings
        self._client: Client | None = None

    def __repr__(self) -> str:
        return f"<Connecting to {self._url.withoutQuery}>"

    def __await__(self) -> Generator[Any, Any, Client]:
        return self._open().__await__()

    async def _open(self) -> Client:
        self._client = LoopClient(AsyncioLoop(asyncio.get_running_loop()), self._url, self._settings)
        return await self._client.open()

    async def __aenter__(self) -> Client:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; if the block failed, at once and without a flush."""
        assert self._client is not None
        if error is None:
            await self._client.close()
        else:
            self._client.hang_up()
