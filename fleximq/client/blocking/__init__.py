"""The blocking client: :func:`connect`, :class:`Client`, :class:`Subscription` and :class:`Jobs`.

It reads and writes its socket in the calling threads, unlike the blocking clients of BlipMQ and MiniMQ, which use a
loop in a thread: there each answer needs two more changes of thread. Measured, a request takes 60 % longer in a loop
thread and ``publish_many`` reaches 75 % of the rate (``docs/measurements/blocking.txt``).
"""

from fleximq.client.blocking.client import Client, connect
from fleximq.client.blocking.thread_client import Subscription
from fleximq.client.blocking.worker import Jobs

__all__ = ["Client", "Jobs", "Subscription", "connect"]
