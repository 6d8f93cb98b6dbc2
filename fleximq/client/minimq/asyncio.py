"""The MiniMQ client for programs on asyncio. Uses asyncio's own transports, without Twisted.

::

    async with connect("tcp://localhost:7890") as client:
        await client.produce("jobs", "sweep the yard")
        async for job in client.consumer("jobs"):
            print(job.content)
"""

from collections.abc import Sequence
from ssl import SSLContext

from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConsumeFailed, ProduceFailed
from fleximq.client.loops.asyncio_loop import Connecting
from fleximq.client.minimq.loop_client import LoopConsumer, LoopMiniClient, Message
from fleximq.client.settings import BACKOFF, BUFFER_BYTES, KEEP_ALIVE, TIMEOUT, ClientSettings, Tls, Watcher
from fleximq.values.urls import addressesOf

Consumer = LoopConsumer
MiniClient = LoopMiniClient

__all__ = ["ConsumeFailed", "Consumer", "Message", "MiniClient", "ProduceFailed", "connect"]


def connect(
    url: str | Sequence[str] = "tcp://localhost:7890",
    *,
    timeout: float = TIMEOUT,
    tls: Tls | SSLContext | None = None,
    reconnect: Backoff | None = BACKOFF,
    buffer: int = BUFFER_BYTES,
    keep_alive: float | None = KEEP_ALIVE,
    on_state: Watcher | None = None,
) -> Connecting[MiniClient]:
    """Connect. Use the result in ``async with``, which closes the client at the end, or await it.

    Parameters and errors as :func:`fleximq.client.minimq.blocking.connect`; those of the broker are raised on awaiting.
    """
    settings = ClientSettings(
        timeout=timeout, tls=tls, reconnect=reconnect, buffer=buffer, keep_alive=keep_alive, on_state=on_state
    )
    return Connecting(addressesOf(url), settings, LoopMiniClient)
