"""Decodes headers, MessagePack maps (docs/reference/journal-format.rst, "Headers"), into the columns ``headers``, texts
by name, and ``key``. Equal headers are decoded once for each batch; one that no other record of the batch has costs 3
us.
"""

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from fleximq.wire.messagepack_json import toJson

_MAP = pa.map_(pa.string(), pa.string())


def headersColumn(headers: pa.Array) -> pa.Array:
    """Return a map of texts, or JSON of other values, for each header; null without one, empty if malformed."""
    return _column(headers, _MAP, lambda header: list(_textsOf(_unpacked(header)).items()) if header else None)


def keyColumn(headers: pa.Array) -> pa.Array:
    """Return the value of ``key`` in each header as bytes, null if it has none."""
    return _column(headers, pa.binary(), lambda header: _keyOf(_unpacked(header)))


def _column(headers: pa.Array, dataType: pa.DataType, convert: Callable[[bytes], Any]) -> pa.Array:
    ends = np.frombuffer(headers.buffers()[1], np.int32)
    if ends[headers.offset + len(headers)] == ends[headers.offset]:
        return pa.nulls(len(headers), dataType)
    encoded = headers.dictionary_encode()
    return pa.array(list(map(convert, encoded.dictionary.to_pylist())), dataType).take(encoded.indices)


def _unpacked(header: bytes) -> dict[Any, Any]:
    """Return the map of a header, an empty one if it is malformed."""
    try:
        value = msgpack.unpackb(header, strict_map_key=False) if header else {}
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _textsOf(header: dict[Any, Any]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in header.items()}


def _text(value: Any) -> str:
    """Return a text unchanged, other values as JSON."""
    if isinstance(value, str):
        return value
    try:
        return toJson(msgpack.packb(value)).decode()
    except (ValueError, TypeError, OverflowError, RecursionError):
        return repr(value)


def _keyOf(header: dict[Any, Any]) -> bytes | None:
    key = header.get("key")
    return key if key is None or isinstance(key, bytes) else _text(key).encode()
