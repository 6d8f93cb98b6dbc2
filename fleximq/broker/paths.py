"""What the broker tells about itself, as answers to REQs on its own paths.

Each path takes a map of arguments and returns a value for MessagePack. Listings are paged: ``limit`` (1 to 1,000,
100 by default) entries that come ``after`` a key, and in the answer ``next``, the key to go on after, or nil.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from fleximq import __version__
from fleximq.broker.topics import Topic
from fleximq.broker.values import Client
from fleximq.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from fleximq.broker.broker import Broker

Arguments = Mapping[str, Any]

_PAGE = 100
_PAGE_MOST = 1000


def about(broker: "Broker", arguments: Arguments) -> dict[str, Any]:
    """Answer ``/broker/about``: name, version, uptime in seconds, counts of clients, topics and events, the journal.

    That is nil without a journal on disk; otherwise a map with the ``state`` ("ok" or "read-only") and the ``reason``,
    what was lost or cut off, and how large it is.
    """
    return {
        "name": "FlexiMQ",
        "version": __version__,
        "dialects": ["fleximq", "blipmq", "minimq", "identity"],
        "uptime": round(broker.clock.seconds() - broker.started, 3),
        "time": int(time.time() * 1000),
        "clients": len(broker.clients),
        "topics": len(broker.topics),
        "queues": len(broker.queues),
        "subscriptions": len(broker.subscriptions),
        "journal": broker.journalHealth(),
        "counts": dict(broker.counts.events),
    }


def clients(broker: "Broker", arguments: Arguments) -> dict[str, Any]:
    """Answer ``/broker/clients``: who is connected, by id."""
    after, limit = _page(arguments, int, 0)
    return _listing("clients", broker.clients, lambda client: client.id, after, limit, _client(broker))


def topics(broker: "Broker", arguments: Arguments) -> dict[str, Any]:
    """Answer ``/broker/topics``: every topic by name, with its subscribers, messages and queue."""
    after, limit = _page(arguments, str, "")
    return _listing("topics", broker.topics, lambda topic: topic.name, after, limit, _topic(broker))


PATHS: dict[str, Callable[["Broker", Arguments], Any]] = {
    "/broker/about": about,
    "/broker/clients": clients,
    "/broker/topics": topics,
}


def find(path: str) -> Callable[["Broker", Arguments], Any]:
    """Return what answers a broker path.

    :raises NotFound: there is no such path.
    """
    tell = PATHS.get(path)
    if tell is None:
        raise NotFound(f"the broker has no path {path!r}")
    return tell


def answer(broker: "Broker", path: str, arguments: Any) -> Any:
    """Return the answer of a broker path.

    :param arguments: a map, or None for none.
    :raises NotFound: there is no such path.
    :raises BadRequest: the arguments are no map, or one has a wrong type or value.
    """
    tell = find(path)
    if arguments is not None and not isinstance(arguments, Mapping):
        raise BadRequest("the payload of a broker path is a map or empty")
    return tell(broker, arguments or {})


def _client(broker: "Broker") -> Callable[[Client], dict[str, Any]]:
    def row(client: Client) -> dict[str, Any]:
        return {
            "client_id": client.id,
            "dialect": client.dialect,
            "name": client.name,
            "principal": client.principal,
            "address": client.address,
            "connected": round(broker.clock.seconds() - client.joined, 3),
            "subscriptions": len(client.patterns),
        }

    return row


def _topic(broker: "Broker") -> Callable[[Topic], dict[str, Any]]:
    def row(topic: Topic) -> dict[str, Any]:
        queue = broker.queues.get(topic.name)
        return {
            "topic": topic.name,
            "subscribers": topic.subscribers,
            "published": topic.published,
            "queued": None if queue is None else queue.depth,
        }

    return row


def _page(arguments: Arguments, kind: type, first: Any) -> tuple[Any, int]:
    after = arguments.get("after", first)
    limit = arguments.get("limit", _PAGE)
    if isinstance(after, bool) or not isinstance(after, kind):
        raise BadRequest(f"'after' must be of type {kind.__name__}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _PAGE_MOST:
        raise BadRequest(f"'limit' must be a whole number from 1 to {_PAGE_MOST}")
    return after, limit


def _listing(
    title: str, rows: Iterable[Any], key: Callable[[Any], Any], after: Any, limit: int, show: Callable[[Any], Any]
) -> dict[str, Any]:
    page = nsmallest(limit + 1, (row for row in rows if key(row) > after), key)
    more = len(page) > limit
    return {title: [show(row) for row in page[:limit]], "next": key(page[limit - 1]) if more else None}
