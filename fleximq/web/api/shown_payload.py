"""Payloads as values for people: MessagePack, JSON and text are decoded."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fleximq.limits import KIBIBYTE
from fleximq.values.message import Content
from fleximq.values.nesting import checkNesting
from fleximq.wire.messagepack_json import toJson

#: Larger payloads are not shown.
SHOWN = 64 * KIBIBYTE
#: Maximum values in a payload that is decoded.
_VALUES = 1 << 14
_decode = msgspec.json.Decoder().decode
_FAULTS = (msgspec.DecodeError, ValueError, RecursionError)


def withValue(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a message with the ``form`` of its payload, ``messagepack``, ``json``, ``text`` or ``bytes``,
    and the ``value`` that it is in this form; None for bytes, and without a payload.
    """
    payload, form, value = row.get("payload"), None, None
    if isinstance(payload, bytes):
        form, value = _decoded(row["content"], payload)
    return {**row, "form": form, "value": value}


def valueOf(packed: bytes) -> Any:
    """Return a MessagePack value as one of JSON: bytes are base64; raises ValueError if it is none, or too large."""
    return _decode(toJson(packed, _VALUES)) if packed else None


def _decoded(content: str, payload: bytes) -> tuple[str, Any]:
    if content == Content.MESSAGEPACK.value:
        try:
            return "messagepack", valueOf(payload)
        except _FAULTS:
            return "bytes", None
    if payload[:1] in (b"{", b"["):
        try:
            value = _decode(payload)
            checkNesting(value)
            return "json", value
        except _FAULTS:
            pass
    try:
        return "text", payload.decode()
    except UnicodeDecodeError:
        return "bytes", None
