"""FlexiMQ headers: MessagePack maps, checked and read.

The checks run in the order of docs/reference/dialects.rst: it is a map, forbidden fields, required fields, types,
routing. Keys that no document names are ignored and forwarded, since a header is forwarded unchanged. This broker adds
``from`` to a SUB, and the keys of :mod:`fleximq.values.queue_keys`.

The table of fields that each message type must, may and must not have is that of the FlexiMQ document, section 2.2.3,
with the one exception of docs/reference/dialects.rst: a JOIN may carry ``reqrep``, which section 4.2 expects.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack

from fleximq.errors import AuthenticationFailed, BadRequest, InvalidRouting
from fleximq.limits import ROUTING_ENTRIES
from fleximq.status import FIRST_ERROR
from fleximq.values.header_pairs import readHeader
from fleximq.values.nesting import NestedTooDeeply
from fleximq.values.queue_keys import PUB_KEYS, TEXT_KEYS, QueueKeys, checkTexts, publicationKeys, subscriptionKeys
from fleximq.wire.fleximq_scanner import FIXED_BYTES


class MessageType(IntEnum):
    """FlexiMQ document 3.1."""

    JOIN = 0
    REQ = 1
    REP = 2
    NOTIF = 3
    BCAST = 4
    PUB = 5
    SUB = 6
    UNSUB = 7
    PING = 8
    PONG = 9


class HeaderRule(NamedTuple):
    """The fields a type requires and forbids, in the order of the document; all others are optional."""

    required: tuple[str, ...]
    forbidden: tuple[str, ...]


RULES: dict[int, HeaderRule] = {
    MessageType.JOIN: HeaderRule((), ("routing", "topic", "keepalive", "status")),
    MessageType.REQ: HeaderRule(("routing", "reqrep"), ("topic", "auth", "keepalive")),
    MessageType.REP: HeaderRule(("routing", "reqrep"), ("topic", "auth", "keepalive")),
    MessageType.NOTIF: HeaderRule(("routing",), ("reqrep", "topic", "auth", "keepalive")),
    MessageType.BCAST: HeaderRule((), ("routing", "reqrep", "topic", "auth", "keepalive")),
    MessageType.PUB: HeaderRule(("topic",), ("reqrep", "auth", "keepalive")),
    MessageType.SUB: HeaderRule(("topic",), ("routing", "reqrep", "status", "auth", "keepalive")),
    MessageType.UNSUB: HeaderRule(("topic",), ("routing", "reqrep", "status", "auth", "keepalive")),
    MessageType.PING: HeaderRule(("keepalive",), ("routing", "reqrep", "topic", "status", "auth")),
    MessageType.PONG: HeaderRule(("keepalive",), ("routing", "reqrep", "topic", "status", "auth")),
}

_U32, _U64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
#: The beginning of a header that has only a topic.
_TOPIC = b"\x81\xa5topic"
#: Types whose routing entries must name a path.
_PATHS = frozenset({MessageType.REQ, MessageType.NOTIF})
#: Types that go to exactly one client.
_SINGLE = frozenset({MessageType.REQ, MessageType.REP})
#: Types that begin and end a subscription.
_SUBSCRIBING = frozenset({MessageType.SUB, MessageType.UNSUB})
#: The required value of ``reqrep.type``.
_REQREP = {MessageType.JOIN: "request", MessageType.REQ: "request", MessageType.REP: "correlation"}
#: The string fields of each kind of credentials (FlexiMQ document 5.2).
_CREDENTIALS = {
    "token": ("token",),
    "basic": ("username", "password"),
    "api_key": ("api_key",),
    "public_key": ("public_key",),
}


class StartPosition(NamedTuple):
    """The start of a subscription: ``kind`` is ``"first"``, ``"last"``, ``"offset"`` or ``"time"``.

    ``number`` is the offset, or the time in milliseconds since 1970.
    """

    kind: str
    number: int = 0


class RoutingEntry(NamedTuple):
    """One routing entry; ``path`` is None if absent. ``client_id`` is 0 where ``client_name`` decides."""

    client_id: int
    path: str | None
    client_name: str = ""

    @property
    def target(self) -> int | str:
        """The id of the client, or the name of the clients, that the entry means."""
        return self.client_id or self.client_name

    def asSent(self) -> dict[str, Any]:
        """Return the entry as a map with its original keys."""
        target = {"client_id": self.client_id} if self.client_id else {"client_name": self.client_name}
        return target | ({} if self.path is None else {"path": self.path})

    def __str__(self) -> str:
        return str(self.client_id) if self.client_id else f"named {self.client_name!r}"


class Header(NamedTuple):
    """A checked header. ``fields`` is the full map; the other attributes are read from it, or empty.

    ``queueing``: the keys of a message for queues or schedules, None without them.
    """

    fields: Mapping[Any, Any]
    topic: str = ""
    id: str | None = None
    routing: tuple[RoutingEntry, ...] = ()
    timestamp: int = 0
    interval: int | None = None
    start: StartPosition | None = None
    queueing: QueueKeys | None = None


class OpenHeader(NamedTuple):
    """An unchecked header: its envelope with a map as header, the map, and the error if it cannot be read.

    ``wasArray``: the header as received is an array.
    """

    envelope: bytes
    fields: Mapping[Any, Any]
    unreadable: BadRequest | None
    wasArray: bool = False


def peek(raw: bytes) -> Mapping[Any, Any]:
    """Return the map of a header without any check; an empty one if the header is not a map."""
    return openHeader(raw)[0]


def topicAlone(envelope: bytes, beginning: bytes) -> str | None:
    """Return the topic of an envelope whose header has only that, and these bytes before HeaderLength; else None."""
    if not envelope.startswith(beginning) or envelope[FIXED_BYTES : FIXED_BYTES + len(_TOPIC)] != _TOPIC:
        return None
    try:
        topic = msgpack.unpackb(envelope[FIXED_BYTES + len(_TOPIC) :], timestamp=1)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return topic if isinstance(topic, str) else None


def openMap(envelope: bytes) -> OpenHeader:
    """Open the header of an envelope as the document says: an array cannot be read."""
    return OpenHeader(envelope, *openHeader(envelope[FIXED_BYTES:]))


def openHeader(raw: bytes) -> tuple[Mapping[Any, Any], BadRequest | None]:
    """Return the map of a header; an empty one and the error if it is not a MessagePack map of distinct keys."""
    if not raw:
        return {}, None
    try:
        fields = readHeader(raw)
    except NestedTooDeeply as error:
        return {}, BadRequest(f"the header is {error}")
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {}, BadRequest("the header is not MessagePack")
    return (fields, None) if isinstance(fields, dict) else ({}, BadRequest("the header is not a map"))


def peekId(fields: Mapping[Any, Any]) -> str | None:
    """Return the id under ``reqrep`` if it is a text."""
    reqrep = fields.get("reqrep")
    requestId = reqrep.get("id") if isinstance(reqrep, dict) else None
    return requestId if isinstance(requestId, str) else None


def peekPath(fields: Mapping[Any, Any]) -> str:
    """Return the path of the first routing entry, or an empty one."""
    routing = fields.get("routing")
    first = routing[0] if isinstance(routing, list) and routing else None
    path = first.get("path") if isinstance(first, dict) else None
    return path if isinstance(path, str) else ""


def reportsError(fields: Mapping[Any, Any]) -> bool:
    """Return whether a header carries a status of 400 or more."""
    status = fields.get("status")
    return isinstance(status, int) and not isinstance(status, bool) and status >= FIRST_ERROR


def checkHeader(kind: MessageType, fields: Mapping[Any, Any]) -> Header:
    """Return a message's header from its map.

    :raises BadRequest: a field is forbidden, missing or of a wrong type (400).
    :raises InvalidRouting: ``routing`` is malformed (602).
    :raises AuthenticationFailed: ``auth`` is malformed or of an unknown kind (604).
    """
    rule = RULES[kind]
    if not fields and not rule.required:
        return Header(fields)
    for name in rule.forbidden:
        if name in fields:
            raise BadRequest(f"{kind.name} must not have the field {name!r}")
    for name in rule.required:
        if name not in fields:
            raise BadRequest(f"{kind.name} must have the field {name!r}")
    topic = _topic(kind, fields)
    if "status" in fields and not _isNumber(fields["status"], _U32):
        raise BadRequest("'status' must be a whole number")
    requestId = _reqrep(kind, fields) if "reqrep" in fields else None
    timestamp, interval = _keepalive(kind, fields) if "keepalive" in fields else (0, None)
    if "auth" in fields:
        _auth(fields)
    start = _from(fields) if kind is MessageType.SUB and "from" in fields else None
    routing = _routing(kind, fields) if "routing" in fields else ()
    queueing = None
    if kind is MessageType.PUB and not PUB_KEYS.isdisjoint(fields):
        queueing = publicationKeys(fields)
    elif kind in _SUBSCRIBING and "queue" in fields:
        queueing = subscriptionKeys(fields)
    return Header(fields, topic, requestId, routing, timestamp, interval, start, queueing)


def _topic(kind: MessageType, fields: Mapping[Any, Any]) -> str:
    topic = fields.get("topic", "")
    if not isinstance(topic, str):
        raise BadRequest("'topic' must be a string")
    if kind is MessageType.PUB and not TEXT_KEYS.keys().isdisjoint(fields):
        checkTexts(fields)
    return topic


def _reqrep(kind: MessageType, fields: Mapping[Any, Any]) -> str | None:
    reqrep = fields["reqrep"]
    if not isinstance(reqrep, dict) or not isinstance(reqrep.get("id"), str):
        raise BadRequest("'reqrep' must be a map with the strings 'type' and 'id'")
    if reqrep.get("type") != _REQREP[kind]:
        raise BadRequest(f"'reqrep.type' of a {kind.name} must be {_REQREP[kind]!r}")
    return peekId(fields)


def _keepalive(kind: MessageType, fields: Mapping[Any, Any]) -> tuple[int, int | None]:
    keepalive = fields["keepalive"]
    if not isinstance(keepalive, dict) or not _isNumber(keepalive.get("timestamp"), _U64):
        raise BadRequest("'keepalive' must be a map with the whole number 'timestamp'")
    interval = keepalive.get("interval") if kind is MessageType.PING else None
    if "interval" in keepalive and kind is MessageType.PING and not _isNumber(interval, _U32):
        raise BadRequest("'keepalive.interval' must be a whole number of seconds")
    return keepalive["timestamp"], interval


def _auth(fields: Mapping[Any, Any]) -> None:
    auth = fields["auth"]
    kind = auth.get("type") if isinstance(auth, dict) else None
    names = _CREDENTIALS.get(kind) if isinstance(kind, str) else None
    if names is None:
        raise AuthenticationFailed("'auth' must be a map whose 'type' is 'token', 'basic', 'api_key' or 'public_key'")
    for name in names:
        if not isinstance(auth.get(name), str):
            raise AuthenticationFailed(f"credentials of type {kind!r} must have the string {name!r}")
    if kind == "public_key" and not isinstance(auth.get("signature", ""), str):
        raise AuthenticationFailed("'signature' must be a string")


def _from(fields: Mapping[Any, Any]) -> StartPosition:
    value = fields["from"]
    if isinstance(value, str) and value in ("first", "last"):
        return StartPosition(value)
    if isinstance(value, int) and _isNumber(value, _U64):
        return StartPosition("offset", value)
    if isinstance(value, dict) and value.keys() == {"time"} and _isNumber(value["time"], _U64):
        return StartPosition("time", value["time"])
    raise BadRequest('\'from\' must be "first", "last", an offset or a map {time: milliseconds}')


def _routing(kind: MessageType, fields: Mapping[Any, Any]) -> tuple[RoutingEntry, ...]:
    routing = fields["routing"]
    if not isinstance(routing, list) or not routing:
        raise InvalidRouting("'routing' must be an array of at least one entry")
    if len(routing) > ROUTING_ENTRIES:
        raise InvalidRouting(f"'routing' has {len(routing)} entries, but at most {ROUTING_ENTRIES} are allowed")
    if kind in _SINGLE and len(routing) != 1:
        raise InvalidRouting(f"'routing' of a {kind.name} must have exactly one entry")
    return tuple(_entry(kind, entry) for entry in routing)


def _entry(kind: MessageType, entry: Any) -> RoutingEntry:
    if not isinstance(entry, dict):
        raise InvalidRouting("a routing entry must be a map")
    target, name = entry.get("client_id"), ""
    if target is None and "client_id" not in entry and "client_name" in entry:
        target, name = 0, entry["client_name"]
        if not isinstance(name, str) or not name:
            raise InvalidRouting("'client_name' of a routing entry must be the name of a client")
    elif not isinstance(target, int) or not _isNumber(target, _U32) or target in (0, _U32):
        raise InvalidRouting("'client_id' of a routing entry must be the id of a client")
    path = entry.get("path")
    if "path" in entry and not isinstance(path, str):
        raise InvalidRouting("'path' of a routing entry must be a string")
    if path is None and kind in _PATHS:
        raise InvalidRouting(f"a routing entry of a {kind.name} must have a 'path'")
    return RoutingEntry(target, path, name)


def _isNumber(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def packHeader(fields: Mapping[str, Any]) -> bytes:
    """Return a header's bytes; none for an empty map."""
    return msgpack.packb(fields) if fields else b""
