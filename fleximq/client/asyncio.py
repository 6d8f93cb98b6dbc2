"""The client for programs on asyncio. Uses asyncio's own transports, without Twisted.

::

    async with connect("tcp://localhost:7890") as client:
        await client.publish("news", {"rain": True})
"""

from collections.abc import Mapping, Sequence
from ssl import SSLContext

from fleximq.client.backoff import Backoff
from fleximq.client.loops.asyncio_loop import Connecting
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
from fleximq.values.urls import addressesOf

Client = LoopClient
Subscription = LoopSubscription

__all__ = ["Client", "Connecting", "Subscription", "connect"]


def connect(
    url: str | Sequence[str] = "tcp://localhost:7890",
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
) -> Connecting[Client]:
    """Connect and join. Use the result in ``async with``, which closes the client at the end, or await it.

    Parameters as :func:`fleximq.client.blocking.connect`.

    :raises SettingError: the URL or a setting is invalid. The errors of :meth:`LoopClient.open` are raised on awaiting.
    """
    addresses = addressesOf(url)
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
    return Connecting(addresses, settings, lambda loop: LoopClient(loop, addresses, settings))
