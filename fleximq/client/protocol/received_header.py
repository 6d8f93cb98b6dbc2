"""Decoded headers with the memory that they may take, since a sender can make many objects of few bytes."""

from collections.abc import Mapping
from typing import Any

#: Approximate memory for an event with one field in its header, in addition to its payload.
EVENT_BYTES = 128
#: Approximate memory for a field whose value is no list or map, and for a byte of its text.
_FIELD_BYTES, _TEXT_FACTOR = 128, 4
#: Decoding can turn a byte of a list or map into an object of this size.
_NESTED_FACTOR = 64
_areFlat = frozenset({dict, list}).isdisjoint


class ReceivedHeader(dict[Any, Any]):
    """A header; ``size`` is the memory for its event, in addition to the payload."""

    __slots__ = ("size",)
    size: int


def received(fields: Mapping[Any, Any], encoded: int) -> ReceivedHeader:
    """Return a header whose fields had ``encoded`` bytes before they were decoded; 0.3 us."""
    header = ReceivedHeader(fields)
    if _areFlat(map(type, fields.values())):
        header.size = EVENT_BYTES + _FIELD_BYTES * len(fields) + _TEXT_FACTOR * encoded
    else:
        header.size = EVENT_BYTES + _NESTED_FACTOR * encoded
    return header


def memoryOf(event: Any) -> int:
    """Return the approximate memory for a delivery, notification or request."""
    header = event.header
    return len(event.payload) + (header.size if type(header) is ReceivedHeader else EVENT_BYTES)
