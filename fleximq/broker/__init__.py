"""The rules of the broker: clients, topics, queues and requests behind one door, :class:`fleximq.broker.broker.Broker`.

No wire formats, no reactor and no Deferred: a call returns or raises.
"""
