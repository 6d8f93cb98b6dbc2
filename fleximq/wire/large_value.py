"""A map whose last value is many bytes, packed and unpacked without copying these. Pure.

What is sent is MessagePack like any other: who knows nothing of this file reads it as well.
"""

from struct import Struct
from typing import Any

import msgpack

from fleximq.limits import KIBIBYTE

#: Fewer bytes are copied like everything else.
LARGE = 64 * KIBIBYTE
#: All before the last value has to be within so many bytes of what is unpacked.
_FIRST = 4096
_U32 = 0xFFFFFFFF
_BIN32 = 0xC6
_bin32 = Struct(">BI")
_NOTHING = memoryview(b"")


def packLarge(value: Any) -> tuple[bytes, memoryview]:
    """Return a value as MessagePack in two pieces; the second is empty but where a map's last value is a large view."""
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
    """Return the value that these bytes are; the last value of a map is a view of them where it is large.

    :raises ValueError: they are no MessagePack.
    """
    found = _apart(memoryview(packed)) if len(packed) >= LARGE else None
    return msgpack.unpackb(packed) if found is None else found


def _apart(packed: memoryview) -> dict[Any, Any] | None:
    """Return the map; None if this is no map whose last value is large."""
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
