"""The payload formats with maps, MessagePack and JSON: decoders of a type, and the values that have several types."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import msgspec

from fleximq.wire.messagepack_json import toJson

_SPACE = b" \t\r\n"


class Json:
    """The format ``json``: one value in UTF-8, with optional white space around it."""

    name = "JSON"
    empty = b"{}"

    def decoder(self, type: Any) -> Callable[[Any], Any]:
        """Return a decoder for exactly one value of a type."""
        return msgspec.json.Decoder(type).decode

    def isMap(self, packed: bytes) -> bool:
        """Return whether the first character opens an object."""
        return packed.lstrip(_SPACE)[:1] == b"{"

    def isNull(self, packed: bytes) -> bool:
        """Return whether it is null."""
        return packed.strip(_SPACE) == b"null"

    def text(self, packed: bytes) -> str:
        """Return a string as it is, other values as JSON without white space; numbers retain their digits."""
        if packed.lstrip(_SPACE)[:1] == b'"':
            return msgspec.json.decode(packed, type=str)
        return msgspec.json.format(packed, indent=-1).decode()

    def binary(self, packed: bytes) -> bytes:
        """Decode a string of base64."""
        return msgspec.json.decode(packed, type=bytes)


#: The first bytes of values.
_MAPS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
_BINS = frozenset((0xC4, 0xC5, 0xC6))
_STRINGS = frozenset((*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB))


class MessagePack:
    """The format ``messagepack``."""

    name = "MessagePack"
    empty = b"\x80"

    def decoder(self, type: Any) -> Callable[[Any], Any]:
        """Return a decoder for exactly one value of a type."""
        return msgspec.msgpack.Decoder(type).decode

    def isMap(self, packed: bytes) -> bool:
        """Return whether the first byte begins a map."""
        return not _MAPS.isdisjoint(packed[:1])

    def isNull(self, packed: bytes) -> bool:
        """Return whether it is nil."""
        return packed == b"\xc0"

    def text(self, packed: bytes) -> str:
        """Return a str as it is, a bin as its text or else as base64, a timestamp in ISO 8601, other values as JSON."""
        if not _BINS.isdisjoint(packed[:1]):
            content = msgspec.msgpack.decode(packed, type=bytes)
            try:
                return content.decode()
            except UnicodeDecodeError:
                return b64encode(content).decode()
        if not _STRINGS.isdisjoint(packed[:1]):
            return msgspec.msgpack.decode(packed, type=str)
        text = toJson(packed)
        # Values without a JSON type become strings.
        return msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode()

    def binary(self, packed: bytes) -> bytes:
        """Return a bin as it is, and a str as its UTF-8."""
        if not _STRINGS.isdisjoint(packed[:1]):
            return msgspec.msgpack.decode(packed, type=str).encode()
        return msgspec.msgpack.decode(packed, type=bytes)
