"""The broker: clients, topics, queues and requests; its facade is :class:`fleximq.broker.broker.Broker`.

No wire formats, no reactor and no Deferred: a call returns or raises.
"""
