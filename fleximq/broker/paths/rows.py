"""Rows about the broker, its clients and topics; ``/broker`` paths and ``/api`` pages show the same."""

from typing import Any

from fleximq import __version__
from fleximq.broker.authorization import sees
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.topics.topic_table import Topic
from fleximq.values.connection_load import ConnectionLoad
from fleximq.values.records import TopicBounds
from fleximq.values.state_records import GroupProgress


def overview(broker: Broker) -> dict[str, Any]:
    """Return name, version, implementation, uptime (s), numbers of clients, topics and so on, journal, and counts.

    ``journal`` is None without one on disk; otherwise a map with the ``state`` ("ok" or "read-only"), the ``reason``,
    losses found when it was opened, and its size.
    """
    return {
        "name": "FlexiMQ",
        "version": __version__,
        "implementation": broker.implementation,
        "uptime": round(broker.clock.seconds() - broker.started, 3),
        "clients": len(broker.clients),
        "topics": len(broker.topics),
        "queues": len(broker.queues),
        "subscriptions": len(broker.polledSubscriptions),
        "groups": len(broker.groups),
        "journal": broker.journalHealth(),
        "counts": dict(broker.counts.events),
    }


def whoIs(client: ConnectedClient) -> dict[str, Any]:
    """Return the fields of the audit log that name a client."""
    return {"principal": client.principal, "address": client.address, "dialect": client.dialect, "client_id": client.id}


_NO_LOAD = ConnectionLoad(0, 0, 0, 0)


def clientRow(broker: Broker, client: ConnectedClient) -> dict[str, Any]:
    """Return a client's row; ``subscriptions`` includes the polled ones it uses, ``queues`` are those from which it
    consumes, and ``slow`` says what holds it up.
    """
    load = loadOf(client)
    return {
        "client_id": client.id,
        "dialect": client.dialect,
        "name": client.name,
        "client_name": client.service or None,
        "principal": client.principal,
        "address": client.address,
        "connected": round(broker.clock.seconds() - client.joined, 3),
        "subscriptions": len(client.subscriptions) + broker.polledSubscriptions.subscriptionCount(client),
        "queues": broker.consumers.queuesOf(client),
        "received_messages": load.messagesIn,
        "delivered_messages": load.messagesOut,
        "received_bytes": load.bytesIn,
        "sent_bytes": load.bytesOut,
        "unread_bytes": load.unread,
        "unread_limit": load.mark,
        "slow": list(load.slow),
    }


def shownTo(client: ConnectedClient, row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a client without the queues that are hidden from the client which asks."""
    return {**row, "queues": [name for name in row["queues"] if sees(client, name)]}


def loadOf(client: ConnectedClient) -> ConnectionLoad:
    """Return the load of a client's connection."""
    return _NO_LOAD if client.conversation is None else client.conversation.load()


def topicRow(broker: Broker, topic: Topic) -> dict[str, Any]:
    """Return a topic's row; ``queued`` is None if the topic has no work queue."""
    queue = broker.queues.get(topic.name)
    return {
        "topic": topic.name,
        "subscribers": broker.topics.subscriptions(topic),
        "published": topic.published,
        "durable": topic.durable,
        "queued": None if queue is None else queue.depth,
    }


def groupRow(broker: Broker, group: GroupProgress) -> dict[str, Any]:
    """Return a consumer group's row, with its approximate distance to the end of the journal."""
    behind = broker.journal.backlogFrom(group.next)
    return {
        "group": group.group,
        "next": group.next,
        "records": behind.records,
        "bytes": behind.bytes,
        "lost": group.lost,
        "time": group.time // 1000,
    }


def boundsRow(bounds: TopicBounds) -> dict[str, Any]:
    """Return what the journal has of a topic: first and last offset and time, in milliseconds since 1970, and bytes."""
    return {
        "first": bounds.first,
        "last": bounds.last,
        "first_time": bounds.firstTime // 1000,
        "last_time": bounds.lastTime // 1000,
        "bytes": bounds.bytes,
    }
