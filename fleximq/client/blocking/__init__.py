"""The blocking client: :func:`connect`, :class:`Client` and :class:`Subscription`."""

from fleximq.client.blocking.client import Client, connect
from fleximq.client.blocking.thread_client import Subscription

__all__ = ["Client", "Subscription", "connect"]
