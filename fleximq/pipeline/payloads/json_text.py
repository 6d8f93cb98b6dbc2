"""JSON as payloads have it: one value in UTF-8."""

from collections.abc import Callable
from typing import Any

import msgspec


class Json:
    """The format ``json``."""

    name = "JSON"
    empty = b"{}"

    def decoder(self, type: Any) -> Callable[[Any], Any]:
        """Return what reads exactly one value of a type, with white space around it."""
        decode: Callable[[Any], Any] = msgspec.json.Decoder(type).decode
        return decode

    def isMap(self, packed: bytes) -> bool:
        """Return whether the first sign opens an object."""
        return packed.lstrip(b" \t\r\n")[:1] == b"{"

    def isNull(self, packed: bytes) -> bool:
        """Return whether it is null."""
        return packed.strip(b" \t\r\n") == b"null"

    def text(self, packed: bytes) -> str:
        """Return a string as it is, and anything else as its JSON without white space; numbers keep their digits."""
        if packed.lstrip(b" \t\r\n")[:1] == b'"':
            return msgspec.json.decode(packed, type=str)
        return msgspec.json.format(packed, indent=-1).decode()

    def binary(self, packed: bytes) -> bytes:
        """Return what a string of base64 stands for."""
        return msgspec.json.decode(packed, type=bytes)
