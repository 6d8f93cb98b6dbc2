"""Packs and unpacks a map with one large last value without copying it. Pure.

The result is ordinary MessagePack, readable by every decoder.
"""

from struct import Struct
from typing import Any

import msgpack

from fleximq.limits import KIBIBYTE

#: Smaller values are copied.
LARGE = 64 * KIBIBYTE
#: The entries before the last value must fit in this many bytes of the input.
_FIRST = 4096
_U32 = 0xFFFFFFFF
_BIN32 = 0xC6
_bin32 = Struct(">BI")
_NOTHING = memoryview(b"")


def packLarge(value: Any) -> tuple[bytes, memoryview]:
    """Return a value as MessagePack in two pieces; the second is a map's last value if a large view, else empty."""
    last = next(reversed(value.values()), None) if isinstance(value, dict) else None
    if not isinstance(last, memoryview) or not LARGE <= last.nbytes <= _U32:
        return msgpack.packb(value), _NOTHING
    *others, (name, _) = value.items()
    packer = msgpack.Packer(autoreset=False)
    packer.pack_map_header(len(value))
    for key, each in others:
        packer.pack(key)
        packer.pack(each)
    packer.pack(name)
    return packer.bytes() + _bin32.pack(_BIN32, last.nbytes), last


def unpackLarge(packed: bytes | memoryview) -> Any:
    """Return the unpacked value; a large last value of a map is a view of the input. Raises ValueError."""
    found = _apart(memoryview(packed)) if len(packed) >= LARGE else None
    return msgpack.unpackb(packed) if found is None else found


def _apart(packed: memoryview) -> dict[Any, Any] | None:
    """Return the map; None if this is not a map with a large last value."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(packed[:_FIRST])
    found: dict[Any, Any] = {}
    try:
        count = unpacker.read_map_header()
        for _ in range(count - 1):
            key = unpacker.unpack()
            found[key] = unpacker.unpack()
        name = unpacker.unpack()
        kind, length = _bin32.unpack_from(packed, place := unpacker.tell())
    except (msgpack.OutOfData, ValueError):
        return None
    place += _bin32.size
    if not count or kind != _BIN32 or len(packed) != place + length:
        return None
    found[name] = packed[place:]
    return found
