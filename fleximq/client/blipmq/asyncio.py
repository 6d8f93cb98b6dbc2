"""The BlipMQ client for programs on asyncio. Uses asyncio's own transports, without Twisted.

::

    async with connect("tcp://localhost:7890", key="secret") as client:
        await client.publish("orders", b"two apples")
"""

from collections.abc import Sequence
from functools import partial
from ssl import SSLContext

from fleximq.client.backoff import Backoff
from fleximq.client.blipmq.conversation import BlipDelivery
from fleximq.client.blipmq.loop_client import LoopBlipClient, LoopBlipSubscription
from fleximq.client.errors import Nacked
from fleximq.client.loops.asyncio_loop import Connecting
from fleximq.client.settings import BACKOFF, BUFFER_BYTES, KEEP_ALIVE, TIMEOUT, ClientSettings, Tls, Watcher
from fleximq.values.urls import addressesOf

BlipClient = LoopBlipClient
BlipSubscription = LoopBlipSubscription

__all__ = ["BlipClient", "BlipDelivery", "BlipSubscription", "Nacked", "connect"]


def connect(
    url: str | Sequence[str] = "tcp://localhost:7890",
    key: str = "",
    *,
    timeout: float = TIMEOUT,
    tls: Tls | SSLContext | None = None,
    reconnect: Backoff | None = BACKOFF,
    buffer: int = BUFFER_BYTES,
    keep_alive: float | None = KEEP_ALIVE,
    on_state: Watcher | None = None,
) -> Connecting[BlipClient]:
    """Connect and authenticate. Use the result in ``async with``, which closes the client at the end, or await it.

    Parameters and errors as :func:`fleximq.client.blipmq.blocking.connect`; those of the broker are raised on awaiting.
    """
    settings = ClientSettings(
        timeout=timeout, tls=tls, reconnect=reconnect, buffer=buffer, keep_alive=keep_alive, on_state=on_state
    )
    return Connecting(addressesOf(url), settings, partial(LoopBlipClient, key=key))
