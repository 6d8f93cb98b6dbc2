"""Converts one MessagePack value to compact JSON, for dialects of text ("Across dialects" in docs/dialects.rst).

Values without a JSON equivalent: bin and ext become base64 of their bytes, timestamps ISO 8601 in UTC, NaN and the
infinities null, map keys strings (an array or a map the string of its JSON). A hostile value costs no more than its
bytes: the text is written in one pass without recursion, announced sizes are not allocated, and nesting is bounded.
Duplicate keys are written as often as they occur.
"""

from base64 import b64encode
from collections.abc import Callable
from datetime import datetime, timedelta
from json.encoder import encode_basestring
from math import isfinite
from struct import Struct
from typing import NamedTuple

#: Arrays and maps inside each other, at most.
NESTING = 512

_TIMESTAMP = 0xFF
_EPOCH = datetime(1970, 1, 1)
_SECOND = 1_000_000_000


class _Container:
    """An array or map that is being written. ``left`` of its ``size`` items remain; a map has two per entry."""

    __slots__ = ("isMap", "keyFrom", "left", "size")

    def __init__(self, isMap: bool, size: int, keyFrom: int | None) -> None:
        self.isMap = isMap
        self.size = self.left = size
        self.keyFrom = keyFrom


class _Opening(NamedTuple):
    """The beginning of an array or map, with the number of its entries."""

    isMap: bool
    entries: int


class _Reader:
    """Reads values from the front of the packed bytes."""

    __slots__ = ("at", "packed")

    def __init__(self, packed: bytes) -> None:
        self.packed = packed
        self.at = 0

    def take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if self.at > len(self.packed):
            raise ValueError("the value is cut short")
        return self.packed[start : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def value(self) -> bytes | _Opening:
        """Return the JSON of the next value, or the opening of an array or map."""
        if self.at == len(self.packed):
            raise ValueError("the value is cut short")
        marker = self.packed[self.at]
        self.at += 1
        if 0xA0 <= marker < 0xC0:
            return _string(self.take(marker & 0x1F))
        known = _ALONE.get(marker)
        return _MARKERS[marker](self) if known is None else known


def toJson(packed: bytes) -> bytes:
    """Return the JSON of ``packed``, as UTF-8 without white space.

    :raises ValueError: unless it is exactly one MessagePack value, nested no deeper than :data:`NESTING`, with strings
        in UTF-8 and without a key that is a map with an array or a map as key.
    """
    reader = _Reader(packed)
    out = bytearray()
    opened: list[_Container] = []
    while True:
        isKey = bool(opened) and _separate(out, opened[-1])
        value = reader.value()
        if isinstance(value, _Opening):
            _open(out, opened, value, isKey)
        else:
            out += b'"%b"' % value if isKey and not value.startswith(b'"') else value
        while opened and not opened[-1].left:
            _close(out, opened.pop())
        if not opened:
            break
    if reader.at != len(packed):
        raise ValueError("more bytes follow the value")
    return bytes(out)


def _separate(out: bytearray, container: _Container) -> bool:
    """Write the separator before the container's next item; return whether that item is a map's key."""
    left = container.left
    container.left = left - 1
    if container.isMap and left % 2:
        out += b":"
        return False
    if left != container.size:
        out += b","
    return container.isMap


def _open(out: bytearray, opened: list[_Container], opening: _Opening, isKey: bool) -> None:
    if len(opened) >= NESTING:
        raise ValueError(f"the value is nested deeper than {NESTING}")
    # Repeated quoting doubles the text each time, so a key inside a key's own map is not converted to a string.
    if isKey and any(container.keyFrom is not None for container in opened):
        raise ValueError("a key has an array or a map among its own keys")
    size = opening.entries * 2 if opening.isMap else opening.entries
    opened.append(_Container(opening.isMap, size, len(out) if isKey else None))
    out += b"{" if opening.isMap else b"["


def _close(out: bytearray, container: _Container) -> None:
    out += b"}" if container.isMap else b"]"
    if container.keyFrom is not None:
        out[container.keyFrom :] = encode_basestring(out[container.keyFrom :].decode()).encode()


def _string(encoded: bytes) -> bytes:
    return encode_basestring(encoded.decode()).encode()


def _base64(content: bytes) -> bytes:
    return b'"%b"' % b64encode(content)


def _float(value: float) -> bytes:
    return repr(value).encode() if isfinite(value) else b"null"


def _extension(kind: int, content: bytes) -> bytes:
    text = _timestamp(content) if kind == _TIMESTAMP else None
    return _base64(content) if text is None else b'"%b"' % text.encode()


def _timestamp(content: bytes) -> str | None:
    """Return the ISO 8601 form of a timestamp, or None if it is invalid or not between the years 1 and 9999."""
    number = int.from_bytes(content, "big")
    if len(content) == 4:
        seconds, nanoseconds = number, 0
    elif len(content) == 8:
        nanoseconds, seconds = number >> 34, number & 0x3FFFFFFFF
    elif len(content) == 12:
        nanoseconds, seconds = int.from_bytes(content[:4], "big"), int.from_bytes(content[4:], "big", signed=True)
    else:
        return None
    if nanoseconds >= _SECOND:
        return None
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    return f"{moment.isoformat()}{fraction}Z"


def _unknown(reader: _Reader) -> bytes:
    raise ValueError("0xc1 begins no value")


def _counted(width: int, render: Callable[[bytes], bytes]) -> Callable[[_Reader], bytes]:
    return lambda reader: render(reader.take(reader.number(width)))


def _integer(width: int, signed: bool) -> Callable[[_Reader], bytes]:
    return lambda reader: b"%d" % int.from_bytes(reader.take(width), "big", signed=signed)


def _real(layout: Struct) -> Callable[[_Reader], bytes]:
    return lambda reader: _float(layout.unpack(reader.take(layout.size))[0])


def _sizedExtension(width: int) -> Callable[[_Reader], bytes]:
    def render(reader: _Reader) -> bytes:
        size = reader.number(width)
        return _extension(reader.number(1), reader.take(size))

    return render


def _fixedExtension(size: int) -> Callable[[_Reader], bytes]:
    return lambda reader: _extension(reader.number(1), reader.take(size))


def _opening(isMap: bool, width: int) -> Callable[[_Reader], _Opening]:
    return lambda reader: _Opening(isMap, reader.number(width))


#: The values of markers without further bytes (MessagePack specification, "Formats").
_ALONE: dict[int, bytes | _Opening] = {
    0xC0: b"null",
    0xC2: b"false",
    0xC3: b"true",
    **{number & 0xFF: b"%d" % number for number in range(-32, 128)},
    **{0x80 | entries: _Opening(True, entries) for entries in range(16)},
    **{0x90 | entries: _Opening(False, entries) for entries in range(16)},
}
#: Readers of the bytes after all other markers.
_MARKERS: dict[int, Callable[[_Reader], bytes | _Opening]] = {
    0xC1: _unknown,
    0xC4: _counted(1, _base64),
    0xC5: _counted(2, _base64),
    0xC6: _counted(4, _base64),
    0xC7: _sizedExtension(1),
    0xC8: _sizedExtension(2),
    0xC9: _sizedExtension(4),
    0xCA: _real(Struct(">f")),
    0xCB: _real(Struct(">d")),
    0xCC: _integer(1, False),
    0xCD: _integer(2, False),
    0xCE: _integer(4, False),
    0xCF: _integer(8, False),
    0xD0: _integer(1, True),
    0xD1: _integer(2, True),
    0xD2: _integer(4, True),
    0xD3: _integer(8, True),
    0xD4: _fixedExtension(1),
    0xD5: _fixedExtension(2),
    0xD6: _fixedExtension(4),
    0xD7: _fixedExtension(8),
    0xD8: _fixedExtension(16),
    0xD9: _counted(1, _string),
    0xDA: _counted(2, _string),
    0xDB: _counted(4, _string),
    0xDC: _opening(False, 2),
    0xDD: _opening(False, 4),
    0xDE: _opening(True, 2),
    0xDF: _opening(True, 4),
}
