"""Translates objects of headers that are written as arrays into maps.

A client library in use writes them so: the header as ``[routing, reqrep, topic, status, auth, keepalive]`` with nil for
absent fields, a routing entry as ``[client_id, path]`` or ``[client_name, path, client_id]``, and the other objects
likewise; a status by the name of its code. Its newer generation writes the header as a map and only the objects in it
as arrays. Values that cannot be translated stay unchanged and :mod:`fleximq.wire.fleximq_header` refuses them.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Any

import msgpack

from fleximq.errors import BadRequest
from fleximq.status import Status
from fleximq.values.nesting import NestedTooDeeply, unpack
from fleximq.wire.fleximq_header import OpenHeader, openHeader
from fleximq.wire.fleximq_scanner import FIXED_BYTES

_headerLength = Struct(">I")
_readLength = _headerLength.unpack_from
#: The first bytes of arrays in MessagePack.
_ARRAYS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
_FIELDS = ("routing", "reqrep", "topic", "status", "auth", "keepalive")
_CREDENTIALS = {"token": ("token",), "basic": ("username", "password"), "api_key": ("api_key",)}
_ENTRY = ("client_id", "path")
_NAMED_ENTRY = ("client_name", "path", "client_id")
_STATUS = {"".join(word.capitalize() for word in status.name.split("_")): int(status) for status in Status}
_STATUS_NAMES = {number: name for name, number in _STATUS.items()}


def openMapOrArrays(envelope: bytes) -> OpenHeader:
    """Open the header of an envelope; arrays in it, or in its place, become maps."""
    if len(envelope) > FIXED_BYTES and envelope[FIXED_BYTES] in _ARRAYS:
        return _openArray(envelope)
    fields, unreadable = openHeader(envelope[FIXED_BYTES:])
    get = fields.get
    routing = get("routing")
    if (
        isinstance(get("status"), str)
        or list in (type(get("reqrep")), type(get("keepalive")), type(get("auth")))
        or (isinstance(routing, list) and list in map(type, routing))
    ):
        fields = _translated(dict(fields))
        envelope = _withHeader(envelope, fields)
    return OpenHeader(envelope, fields, unreadable)


def _openArray(envelope: bytes) -> OpenHeader:
    try:
        values = unpack(envelope[FIXED_BYTES:], timestamp=1)
    except NestedTooDeeply as error:
        return OpenHeader(envelope, {}, BadRequest(f"the header is {error}"), True)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return OpenHeader(envelope, {}, BadRequest("the header is not MessagePack"), True)
    if len(values) != len(_FIELDS):
        return OpenHeader(envelope, {}, BadRequest("the header is not a map"), True)
    fields = _translated(_named(_FIELDS, values))
    return OpenHeader(_withHeader(envelope, fields), fields, None, True)


def withStatusName(frame: bytes) -> bytes:
    """Return a frame with the name of its header's status in place of the number."""
    end = FIXED_BYTES + _readLength(frame, FIXED_BYTES - 4)[0]
    if b"\xa6status" not in frame[FIXED_BYTES:end]:
        return frame
    fields = msgpack.unpackb(frame[FIXED_BYTES:end], timestamp=1)
    return _withHeader(frame[:FIXED_BYTES], named(fields)) + frame[end:]


def named(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a header with the name of its status in place of the number."""
    status = fields.get("status")
    return {**fields, "status": _STATUS_NAMES[status]} if status in _STATUS_NAMES else fields


def _withHeader(envelope: bytes, fields: Mapping[Any, Any]) -> bytes:
    header: bytes = msgpack.packb(fields)
    return envelope[: FIXED_BYTES - 4] + _headerLength.pack(len(header)) + header


def _translated(fields: dict[str, Any]) -> dict[str, Any]:
    """Translate the objects of a header."""
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
    isNamed = len(entry) == len(_NAMED_ENTRY) or (entry and isinstance(entry[0], str))
    return _named(_NAMED_ENTRY if isNamed else _ENTRY, entry)


def _auth(auth: list[Any]) -> Any:
    kind = auth[0] if auth else None
    names = _CREDENTIALS.get(kind) if isinstance(kind, str) else None
    return auth if names is None else _named(("type", *names), auth)


def _named(names: tuple[str, ...], values: list[Any]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, values, strict=False) if value is not None}
