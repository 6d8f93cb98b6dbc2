"""The client for programs on asyncio. Uses asyncio's own transports, without Twisted.

::

    async with connect("tcp://localhost:7890") as client:
        await client.publish("news", {"rain": True})
"""

from collections.abc import Mapping, Sequence
from ssl import SSLContext

from fleximq.client import settings
from fleximq.client.backoff import Backoff
from fleximq.client.loops.asyncio_loop import Connecting
from fleximq.client.loops.loop_client import LoopClient, LoopSubscription
from fleximq.values.urls import addressesOf

Client = LoopClient
Subscription = LoopSubscription

__all__ = ["Client", "Connecting", "Subscription", "connect"]


def connect(
    url: str | Sequence[str] = "tcp://localhost:7890",
    *,
    credentials: Mapping[str, str] | None = None,
    name: str | None = None,
    timeout: float = settings.TIMEOUT,
    tls: settings.Tls | SSLContext | None = None,
    reconnect: Backoff | None = settings.BACKOFF,
    buffer: int = settings.BUFFER_BYTES,
    prefetch: int = settings.PREFETCH_BYTES,
    keep_alive: float | None = settings.KEEP_ALIVE,
    codec: settings.Codec = settings.MESSAGEPACK,
    on_state: settings.Watcher | None = None,
) -> Connecting[Client]:
    """Connect and join. Use the result in ``async with``, which closes the client at the end, or await it.

    Parameters and errors as :func:`fleximq.client.blocking.connect`; those of the broker are raised on awaiting.
    """
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
    return Connecting(addressesOf(url), checked, LoopClient)
