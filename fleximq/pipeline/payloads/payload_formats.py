"""The payload formats: MessagePack, JSON (one value in UTF-8), text, and raw bytes."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from fleximq.wire.messagepack_json import toJson


class Text:
    """The format ``text``: one column of text, in UTF-8."""

    def columns(self, values: pa.Array, errors: dict[int, str]) -> list[pa.Array]:
        """Return the texts; a payload that is not UTF-8 is null and has an error."""
        try:
            return [values.cast(pa.string())]
        except pa.ArrowInvalid:
            return [
                pa.array([_text(value, place, errors) for place, value in enumerate(values.to_pylist())], pa.string())
            ]


class Raw:
    """The format ``raw``: one column of unchanged bytes."""

    def columns(self, values: pa.Array, errors: dict[int, str]) -> list[pa.Array]:
        """Return the payloads."""
        return [values]


def _text(value: bytes | None, place: int, errors: dict[int, str]) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        errors[place] = "the payload is not UTF-8"
        return None


class Json:
    """The format ``json``."""

    name = "JSON"
    empty = b"{}"

    def decoder(self, type: Any) -> Callable[[Any], Any]:
        """Return a decoder for exactly one value of a type, with optional white space around it."""
        decode: Callable[[Any], Any] = msgspec.json.Decoder(type).decode
        return decode

    def isMap(self, packed: bytes) -> bool:
        """Return whether the first character opens an object."""
        return packed.lstrip(b" \t\r\n")[:1] == b"{"

    def isNull(self, packed: bytes) -> bool:
        """Return whether it is null."""
        return packed.strip(b" \t\r\n") == b"null"

    def text(self, packed: bytes) -> str:
        """Return a string as it is, other values as JSON without white space; numbers retain their digits."""
        if packed.lstrip(b" \t\r\n")[:1] == b'"':
            return msgspec.json.decode(packed, type=str)
        return msgspec.json.format(packed, indent=-1).decode()

    def binary(self, packed: bytes) -> bytes:
        """Decode a string of base64."""
        return msgspec.json.decode(packed, type=bytes)


_MAPS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
_BINS = frozenset((0xC4, 0xC5, 0xC6))


class MessagePack:
    """The format ``messagepack``."""

    name = "MessagePack"
    empty = b"\x80"

    def decoder(self, type: Any) -> Callable[[Any], Any]:
        """Return a decoder for exactly one value of a type."""
        decode: Callable[[Any], Any] = msgspec.msgpack.Decoder(type).decode
        return decode

    def isMap(self, packed: bytes) -> bool:
        """Return whether the first byte begins a map."""
        return packed[:1] != b"" and packed[0] in _MAPS

    def isNull(self, packed: bytes) -> bool:
        """Return whether it is nil."""
        return packed == b"\xc0"

    def text(self, packed: bytes) -> str:
        """Return a str as it is, a bin as its text or else as base64, a timestamp in ISO 8601, other values as JSON."""
        if packed[:1] and packed[0] in _BINS:
            content = msgspec.msgpack.decode(packed, type=bytes)
            try:
                return content.decode()
            except UnicodeDecodeError:
                return b64encode(content).decode()
        if _isString(packed):
            return msgspec.msgpack.decode(packed, type=str)
        text = toJson(packed)
        # Values without a JSON type become strings.
        return msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode()

    def binary(self, packed: bytes) -> bytes:
        """Return a bin as it is, and a str as its UTF-8."""
        if _isString(packed):
            return msgspec.msgpack.decode(packed, type=str).encode()
        return msgspec.msgpack.decode(packed, type=bytes)


def _isString(packed: bytes) -> bool:
    return packed[:1] != b"" and (0xA0 <= packed[0] < 0xC0 or 0xD9 <= packed[0] <= 0xDB)
