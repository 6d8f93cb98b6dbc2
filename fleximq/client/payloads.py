"""Payloads of the FlexiMQ dialect: values to MessagePack and back."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgpack

from fleximq.limits import KIBIBYTE

T = TypeVar("T")

#: Values of these types share one packer for all threads: packing them runs no Python code, so no other thread can
#: interrupt, and a packer for each value would take three times as long. The packer's buffer grows to the largest
#: value that it has packed, so longer ones get their own.
_PLAIN, _SIZED = frozenset({int, float, bool, type(None)}), frozenset({bytes, str})
_SHARED_BYTES = 64 * KIBIBYTE
_pack: Callable[[object], bytes] = msgpack.Packer(datetime=True).pack


class Packed(bytes):
    """A payload that is sent as it is: already MessagePack, or bytes in a format that its subscribers can read."""


def packed(value: object) -> bytes:
    """Return the payload for a value; a :class:`Packed` one is returned unchanged.

    :raises TypeError: MessagePack has no type for the value.
    :raises ValueError: a text is not valid UTF-8, or a time has no zone.
    :raises OverflowError: a number has more than 64 bits.
    """
    kind = type(value)
    if kind in _PLAIN or (kind in _SIZED and len(value) <= _SHARED_BYTES):  # type: ignore[arg-type]
        return _pack(value)
    if kind is Packed:
        return value  # type: ignore[return-value]
    return msgpack.packb(value, datetime=True)  # type: ignore[no-any-return]


def unpacked(payload: bytes | memoryview) -> Any:
    """Return the value of a payload, None if it is empty.

    :raises ValueError: it is not exactly one MessagePack value, or one that Python cannot represent.
    """
    if not payload:
        return None
    try:
        return msgpack.unpackb(payload, strict_map_key=False, timestamp=3)
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"the payload has no value in Python: {error}") from error


def challengeIn(payload: bytes) -> str | None:
    """Return the challenge in the payload of an answer to a JOIN, None without one."""
    value = _readable(payload)
    challenge = value.get("challenge") if isinstance(value, Mapping) else None
    return challenge if isinstance(challenge, str) else None


def errorText(payload: bytes | memoryview) -> str:
    """Return the text in an error's payload: a string, or a map's ``error``; "" if it is neither."""
    value = _readable(payload)
    if isinstance(value, Mapping):
        value = value.get("error")
    return value if isinstance(value, str) else ""


def isQueueError(payload: bytes | memoryview) -> bool:
    """Return whether an error's payload names a queue, and not a topic."""
    value = _readable(payload)
    return isinstance(value, Mapping) and "queue" in value


def _readable(payload: bytes | memoryview) -> Any:
    with suppress(ValueError):
        return unpacked(payload)
    return None


def severalOf(values: Iterable[T]) -> Iterable[T]:
    """Return several values; raises TypeError for a single text or bytes, which would be sent letter by letter."""
    if isinstance(values, str | bytes | bytearray):
        raise TypeError(f"several messages are a list, not one {type(values).__name__}")
    return values
