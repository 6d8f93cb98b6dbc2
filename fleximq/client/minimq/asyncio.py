"""The MiniMQ client for programs on asyncio. Uses asyncio's own transports, without Twisted.

::

    async with connect("tcp://localhost:7890") as client:
        await client.produce("jobs", "sweep the yard")
        async for job in client.consumer("jobs"):
            print(job.content)
"""

from collections.abc import Sequence
from ssl import SSLContext
from typing import Unpack

from fleximq.client.errors import ConsumeFailed, ProduceFailed
from fleximq.client.keywords import QueueConnectOptions, spelledOut
from fleximq.client.loops.asyncio_loop import Connecting
from fleximq.client.minimq.loop_client import LoopConsumer, LoopMiniClient, Message
from fleximq.client.settings import ClientSettings, Tls
from fleximq.values.urls import addressesOf

Consumer = LoopConsumer
MiniClient = LoopMiniClient

__all__ = ["ConsumeFailed", "Consumer", "Message", "MiniClient", "ProduceFailed", "connect"]


@spelledOut
def connect(
    url: str | Sequence[str] = "tcp://localhost:7890",
    **options: Unpack[QueueConnectOptions[Tls | SSLContext]],
) -> Connecting[MiniClient]:
    """Connect. Use the result in ``async with``, which closes the client at the end, or await it.

    Parameters and errors as :func:`fleximq.client.minimq.blocking.connect`; those of the broker are raised on awaiting.
    """
    return Connecting(addressesOf(url), ClientSettings(**options), LoopMiniClient)
