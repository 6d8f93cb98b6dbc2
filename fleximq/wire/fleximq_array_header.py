"""Translates headers written as arrays into maps.

A client library in use writes them so: the header as ``[routing, reqrep, topic, status, auth, keepalive]`` with nil for
absent fields, a routing entry as ``[client_id, path]`` or ``[client_name, path, client_id]``, and the other objects
likewise; a status by the name of its code. Values that cannot be translated stay unchanged and
:mod:`fleximq.wire.fleximq_header` refuses them.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Any

import msgpack

from fleximq.errors import BadRequest
from fleximq.status import Status
from fleximq.wire.fleximq_scanner import FIXED_BYTES

_headerLength = Struct(">I").pack
_FIELDS = ("routing", "reqrep", "topic", "status", "auth", "keepalive")
_CREDENTIALS = {"token": ("token",), "basic": ("username", "password"), "api_key": ("api_key",)}
_ENTRY = ("client_id", "path")
_NAMED_ENTRY = ("client_name", "path", "client_id")
_STATUS = {"".join(word.capitalize() for word in status.name.split("_")): int(status) for status in Status}


def isArrayHeader(envelope: bytes) -> bool:
    """Return whether an envelope's header is an array."""
    if len(envelope) == FIXED_BYTES:
        return False
    marker = envelope[FIXED_BYTES]
    return 0x90 <= marker <= 0x9F or marker in (0xDC, 0xDD)


def withMapHeader(envelope: bytes) -> tuple[bytes, Mapping[Any, Any], BadRequest | None]:
    """Return the envelope with its array header as a map, and the map; unchanged with an error if it cannot be read."""
    try:
        values = msgpack.unpackb(envelope[FIXED_BYTES:], timestamp=1)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return envelope, {}, BadRequest("the header is not MessagePack")
    if len(values) != len(_FIELDS):
        return envelope, {}, BadRequest("the header is not a map")
    fields = fromArray(values)
    header: bytes = msgpack.packb(fields)
    return envelope[: FIXED_BYTES - 4] + _headerLength(len(header)) + header, fields, None


def fromArray(values: list[Any]) -> dict[str, Any]:
    """Return the map for a header's array of six."""
    fields = _named(_FIELDS, values)
    if isinstance(fields.get("routing"), list):
        fields["routing"] = [_entry(entry) for entry in fields["routing"]]
    if isinstance(fields.get("reqrep"), list):
        fields["reqrep"] = _named(("type", "id"), fields["reqrep"])
    if isinstance(fields.get("keepalive"), list):
        fields["keepalive"] = _named(("timestamp", "interval"), fields["keepalive"])
    if isinstance(fields.get("auth"), list):
        fields["auth"] = _auth(fields["auth"])
    if isinstance(fields.get("status"), str):
        fields["status"] = _STATUS.get(fields["status"], fields["status"])
    return fields


def _entry(entry: Any) -> Any:
    if not isinstance(entry, list):
        return entry
    return _named(_NAMED_ENTRY if entry and isinstance(entry[0], str) else _ENTRY, entry)


def _auth(auth: list[Any]) -> Any:
    kind = auth[0] if auth else None
    names = _CREDENTIALS.get(kind) if isinstance(kind, str) else None
    return auth if names is None else _named(("type", *names), auth)


def _named(names: tuple[str, ...], values: list[Any]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, values, strict=False) if value is not None}
