"""MessagePack as payloads have it."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import msgspec

from fleximq.wire.messagepack_json import toJson

_MAPS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
_BINS = frozenset((0xC4, 0xC5, 0xC6))


class MessagePack:
    """The format ``messagepack``."""

    name = "MessagePack"
    empty = b"\x80"

    def decoder(self, type: Any) -> Callable[[Any], Any]:
        """Return what reads exactly one value of a type."""
        decode: Callable[[Any], Any] = msgspec.msgpack.Decoder(type).decode
        return decode

    def isMap(self, packed: bytes) -> bool:
        """Return whether the first byte begins a map."""
        return packed[:1] != b"" and packed[0] in _MAPS

    def isNull(self, packed: bytes) -> bool:
        """Return whether it is nil."""
        return packed == b"\xc0"

    def text(self, packed: bytes) -> str:
        """Return a str as it is, a bin as its text or else as base64, a timestamp as in ISO 8601, all else as JSON."""
        if packed[:1] and packed[0] in _BINS:
            content = msgspec.msgpack.decode(packed, type=bytes)
            try:
                return content.decode()
            except UnicodeDecodeError:
                return b64encode(content).decode()
        if _isString(packed):
            return msgspec.msgpack.decode(packed, type=str)
        text = toJson(packed)
        # What JSON has no type for, it has as a string.
        return msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode()

    def binary(self, packed: bytes) -> bytes:
        """Return a bin as it is, and a str as its UTF-8."""
        if _isString(packed):
            return msgspec.msgpack.decode(packed, type=str).encode()
        return msgspec.msgpack.decode(packed, type=bytes)


def _isString(packed: bytes) -> bool:
    return packed[:1] != b"" and (0xA0 <= packed[0] < 0xC0 or 0xD9 <= packed[0] <= 0xDB)
