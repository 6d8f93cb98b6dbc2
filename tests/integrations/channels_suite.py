"""What the tests of channels_redis import, with the layer of FlexiMQ in place of theirs.

:mod:`tests.integrations.test_channels_suite` puts it into a package ``channels_redis``, for pytest. The environment
variable ``FLEXIMQ_PORT`` has the port of a broker.
"""

import os
from typing import Any

from channels.exceptions import ChannelFull

from fleximq.integrations.channels import ChannelLayer

__all__ = ["ChannelFull", "RedisChannelLayer", "RedisPubSubChannelLayer"]


class RedisChannelLayer(ChannelLayer):
    """Ours, whatever the hosts are."""

    def __init__(self, hosts: Any = None, **options: Any) -> None:
        super().__init__(f"tcp://127.0.0.1:{os.environ['FLEXIMQ_PORT']}", **options)

    close_pools = ChannelLayer.close


RedisPubSubChannelLayer = RedisChannelLayer


async def _close_redis(connection: Any) -> None:
    """Only so that it can be imported."""
