"""The client for programs on asyncio: its own transports, and nothing of Twisted.

::

    async with connect("tcp://localhost:7890") as client:
        await client.publish("news", {"rain": True})
"""

import asyncio
from collections.abc import Generator
from types import TracebackType
from typing import Any, Unpack

from fleximq.client.loops.asyncio_loop import AsyncioLoop
from fleximq.client.loops.loop_client import AwaitedClient, AwaitedSubscription
from fleximq.client.settings import ClientSettings, Wishes
from fleximq.client.sockets import checkTls
from fleximq.values.urls import Url

Client = AwaitedClient
Subscription = AwaitedSubscription

__all__ = ["Client", "Connecting", "Subscription", "connect"]


def connect(url: str = "tcp://localhost:7890", **wishes: Unpack[Wishes]) -> "Connecting":
    """Connect and join: use it in ``async with``, which closes in the end, or await it.

    :param url: ``tcp://``, ``tls://``, ``ipc://``, ``ws://``, ``wss://``, or ``stdio://`` in a program that the broker
        has started.
    :param wishes: see :class:`~fleximq.client.settings.ClientSettings`; ``tls`` may be an ``ssl.SSLContext``.
    :raises SettingError: the URL or a wish makes no sense. Errors of :meth:`AwaitedClient.open` come when awaited.
    """
    place, settings = Url.parse(url), ClientSettings(**wishes)
    checkTls(place, settings)
    return Connecting(place, settings)


class Connecting:
    """A client that connects when it is awaited or entered."""

    def __init__(self, url: Url, settings: ClientSettings) -> None:
        self._url = url
        self._settings = settings
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, Any, Client]:
        return self._open().__await__()

    async def _open(self) -> Client:
        self._client = AwaitedClient(AsyncioLoop(asyncio.get_running_loop()), self._url, self._settings)
        return await self._client.open()

    async def __aenter__(self) -> Client:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close; if the block failed, at once and without a flush."""
        assert self._client is not None
        if error is None:
            await self._client.close()
        else:
            self._client.hangUp()
