"""The BlipMQ client: :mod:`~fleximq.client.blipmq.blocking` and :mod:`~fleximq.client.blipmq.twisted`."""
