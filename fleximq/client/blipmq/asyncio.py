"""The BlipMQ client for programs on asyncio. Uses asyncio's own transports, without Twisted.

::

    async with connect("tcp://localhost:7890", key="secret") as client:
        await client.publish("orders", b"two apples")
"""

from collections.abc import Sequence
from functools import partial
from ssl import SSLContext
from typing import Unpack

from fleximq.client.blipmq.conversation import BlipDelivery
from fleximq.client.blipmq.loop_client import LoopBlipClient, LoopBlipSubscription
from fleximq.client.errors import Nacked
from fleximq.client.keywords import QueueConnectOptions, spelledOut
from fleximq.client.loops.asyncio_loop import Connecting
from fleximq.client.settings import ClientSettings, Tls
from fleximq.values.urls import addressesOf

BlipClient = LoopBlipClient
BlipSubscription = LoopBlipSubscription

__all__ = ["BlipClient", "BlipDelivery", "BlipSubscription", "Nacked", "connect"]


@spelledOut
def connect(
    url: str | Sequence[str] = "tcp://localhost:7890",
    key: str = "",
    **options: Unpack[QueueConnectOptions[Tls | SSLContext]],
) -> Connecting[BlipClient]:
    """Connect and authenticate. Use the result in ``async with``, which closes the client at the end, or await it.

    Parameters and errors as :func:`fleximq.client.blipmq.blocking.connect`; those of the broker are raised on awaiting.
    """
    return Connecting(addressesOf(url), ClientSettings(**options), partial(LoopBlipClient, key=key))
