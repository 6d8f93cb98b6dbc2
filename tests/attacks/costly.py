"""What is said to a broker to see what it costs: inputs that a reader may find hard, in every dialect."""

import struct
import zlib
from functools import cache
from typing import Any

import msgpack
import numpy as np

from tests.wire.flexi_frames import frame

#: The slots of a table of Python with a few thousand keys, and those that small numbers fill at its beginning.
_SLOTS, _FILLED = 1 << 13, 1 << 11
_FIFTH = pow(5, -1, _SLOTS)
_LOW = np.arange(32, dtype=np.int64)


@cache
def colliding(count: int = 5300) -> list[int]:
    """Return numbers that are slow as keys of a dict: each is looked for where all the others were.

    Python searches the slots i(k) = 5 i(k-1) + (h >> 5 k) + 1, of which each step adds 5 bits of the hash h. So steps
    can be chosen that find only slots which the small numbers fill, and then all go the same way. They are searched
    from both sides, to slot 4.
    """
    random = np.random.default_rng(1)

    def few(first: Any, second: Any, chosen: Any) -> tuple[Any, Any]:
        first, second = first[chosen], second[chosen]
        picked = random.permutation(len(first))[:40_000]
        return first[picked], second[picked]

    low = slot = np.arange(_FILLED, dtype=np.int64)
    for step in range(1, 5):
        low, slot = few(low, slot, slot < _FILLED)
        low = (low[:, None] | _LOW << (8 + 5 * step)).ravel()
        slot = (5 * np.repeat(slot, 32) + (low >> 5 * step) + 1) % _SLOTS
    high, back = (each.ravel() for each in np.meshgrid(np.arange(1, 512), np.arange(_FILLED)))
    after = (5 * back + (high >> 5) + 1) % _SLOTS
    common = (5 * after + (high >> 10) + 1) % _SLOTS
    ends = (after < _FILLED) & (common < _FILLED)
    high, back = high[ends], back[ends]
    ends = common[ends] == np.bincount(common[ends]).argmax()
    high, back = high[ends], back[ends]
    for _ in range(6):
        back = (back - high % _SLOTS - 1) * _FIFTH % _SLOTS
        high, back = few(high, back, back < _FILLED)
        high, back = (high[:, None] << 5 | _LOW).ravel(), np.repeat(back, 32)
    met = slot < _FILLED
    low, slot = low[met], slot[met]
    left, right = (low >> 20) * _SLOTS + slot, high % _SLOTS * _SLOTS + back
    order = np.argsort(left)
    found = order[np.searchsorted(left, right, sorter=order).clip(max=len(left) - 1)]
    met = left[found] == right
    keys = np.unique(high[met] << 20 | low[found][met] & (1 << 20) - 1)
    return [*range(1, _FILLED), *keys[: count - _FILLED].tolist()]


def collidingMap(**fields: object) -> bytes:
    """Return a map of MessagePack with these fields, and with keys that collide; about 40 KB."""
    found: dict[Any, Any] = {**fields}
    found.update(dict.fromkeys(colliding()))
    return msgpack.packb(found)  # type: ignore[no-any-return]


def webSocket(message: bytes, first: int = 0x82) -> bytes:
    """Return a frame of a WebSocket client, masked with zeros."""
    size = len(message)
    if size < 126:
        return bytes((first, 0x80 | size)) + bytes(4) + message
    form, marker = (">BBH", 126) if size < 1 << 16 else (">BBQ", 127)
    return struct.pack(form, first, 0x80 | marker, size) + bytes(4) + message


def deflated(message: bytes, first: int = 0xC2) -> bytes:
    """Return the same, compressed."""
    deflater = zlib.compressobj(9, wbits=-15)
    body = deflater.compress(message) + deflater.flush(zlib.Z_SYNC_FLUSH)
    return webSocket(body.removesuffix(b"\0\0\xff\xff"), first)


def announcing(kind: str, id: int, size: int, payload: bytes = b"", **fields: object) -> bytes:
    """Return the beginning of a FlexiMQ frame that announces a payload of this size."""
    whole = frame(kind, id, fields or None)
    return whole[:-8] + struct.pack(">Q", size) + payload


def blip(kind: int, payload: bytes = b"", correlation: int = 7) -> bytes:
    """Return a frame of BlipMQ."""
    return struct.pack(">IBQ", 9 + len(payload), kind, correlation) + payload


def emptyArrays(size: int) -> bytes:
    """Return an array of empty arrays in MessagePack, of so many bytes."""
    return struct.pack(">BI", 0xDD, size - 5) + b"\x90" * (size - 5)
