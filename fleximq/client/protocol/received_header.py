"""Decoded headers with an estimate of their memory, since few bytes of a sender can become many objects.

Hot: a short header has no cost, a flat one 0.3 us, others 0.5 us.
"""

from collections.abc import Mapping
from typing import Any

#: Approximate memory for a field of a header, and for an event with one, in addition to its payload.
EVENT_BYTES = 128
#: The size of a header is estimated from the number of its fields alone if it has at most so many encoded bytes.
SHORT_BYTES = 64
#: The same for one without lists and maps with at most so many fields and encoded bytes.
_FEW_FIELDS, _FEW_BYTES = 8, 256
#: Bytes in memory for an encoded byte: of text, and of lists or maps, where each byte may become an object.
_TEXT_FACTOR, _NESTED_FACTOR = 4, 64
_NESTED = frozenset({dict, list})


class LargeHeader(dict[Any, Any]):
    """A header that takes more memory than its number of fields suggests; ``size`` is the memory for its event."""

    __slots__ = ("size",)
    size: int


def received(fields: Mapping[Any, Any], encoded: int) -> Mapping[Any, Any]:
    """Return a header whose fields had ``encoded`` bytes before they were decoded."""
    isFlat = _NESTED.isdisjoint(map(type, fields.values()))
    if isFlat and encoded <= _FEW_BYTES and len(fields) <= _FEW_FIELDS:
        return fields
    header = LargeHeader(fields)
    header.size = EVENT_BYTES * (len(fields) + 1) + (_TEXT_FACTOR if isFlat else _NESTED_FACTOR) * encoded
    return header


def memoryOf(event: Any) -> int:
    """Return the approximate memory for a delivery, notification or request."""
    header = event.header
    size: int = header.size if type(header) is LargeHeader else EVENT_BYTES * (len(header) or 1)
    return len(event.payload) + size
