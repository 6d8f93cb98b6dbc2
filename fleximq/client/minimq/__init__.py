"""The MiniMQ client: :mod:`~fleximq.client.minimq.blocking` and :mod:`~fleximq.client.minimq.twisted`."""
