"""`__init__` re-exports connect, Client, Subscription."""

from fleximq.client.blocking.client import Client, connect
from fleximq.client.blocking.subscription import Subscription

__all__ = ["Client", "Subscription", "connect"]
