"""The client for programs on asyncio. Uses asyncio's own transports, without Twisted.

::

    async with connect("tcp://localhost:7890") as client:
        await client.publish("news", {"rain": True})
"""

from collections.abc import Sequence
from ssl import SSLContext
from typing import Unpack

from fleximq.client.keywords import ConnectOptions, spelledOut
from fleximq.client.loops.asyncio_loop import Connecting
from fleximq.client.loops.loop_client import LoopClient, LoopSubscription
from fleximq.client.loops.worker import LoopJobs
from fleximq.client.settings import ClientSettings, Tls
from fleximq.values.urls import addressesOf

Client = LoopClient
Jobs = LoopJobs
Subscription = LoopSubscription

__all__ = ["Client", "Connecting", "Jobs", "Subscription", "connect"]


@spelledOut
def connect(
    url: str | Sequence[str] = "tcp://localhost:7890", **options: Unpack[ConnectOptions[Tls | SSLContext]]
) -> Connecting[Client]:
    """Connect and join. Use the result in ``async with``, which closes the client at the end, or await it.

    Parameters and errors as :func:`fleximq.client.blocking.connect`; those of the broker are raised on awaiting.
    """
    return Connecting(addressesOf(url), ClientSettings(**options), LoopClient)
