"""FlexiMQ headers taken apart and put together pair by pair, without a look into the values.

The journal keeps a header without its topic, and replay gives the topic back, with the offset behind it. All other
pairs stay the bytes that the publisher sent, whatever they mean.
"""

from collections.abc import Container
from struct import Struct
from typing import Any

import msgpack

_u64 = Struct(">Q").pack
_map16 = Struct(">BH").pack
_map32 = Struct(">BI").pack
_TOPIC = frozenset({"topic"})
_OWN = frozenset({"topic", "offset"})
_PACKED_TOPIC = msgpack.packb("topic")
#: The key, and the first byte of a number of eight bytes.
_OFFSET_HEAD = msgpack.packb("offset") + b"\xcf"


def withoutTopic(header: bytes) -> bytes:
    """Return a header without its topic; no bytes if nothing else is in it.

    :param header: one that :func:`fleximq.wire.fleximq_header.readHeader` took, as it was sent.
    """
    count, pairs = _pairs(header, _TOPIC)
    return _mapHead(count) + pairs if count else b""


def withTopicAndOffset(header: bytes, topic: str, offset: int) -> bytes:
    """Return a header with these two; a publisher's own key of one of these names is left out.

    :param header: what :func:`withoutTopic` returned.
    """
    return offsetHead(header, topic) + _u64(offset)


def offsetHead(header: bytes, topic: str) -> bytes:
    """Return all of :func:`withTopicAndOffset` but its last eight bytes, which are the offset, big-endian."""
    count, pairs = _pairs(header, _OWN)
    return b"".join((_mapHead(count + 2), _PACKED_TOPIC, msgpack.packb(topic), pairs, _OFFSET_HEAD))


def withTopic(header: bytes, topic: str) -> bytes:
    """Return a header with its topic again, as the journal's records travel to those who do not follow it.

    :param header: what :func:`withoutTopic` returned.
    """
    count, pairs = _pairs(header, _TOPIC)
    return b"".join((_mapHead(count + 1), _PACKED_TOPIC, msgpack.packb(topic), pairs))


def _pairs(header: bytes, unwanted: Container[Any]) -> tuple[int, bytes]:
    """Return the pairs of a map, but those with unwanted keys, one behind the other, and their number."""
    if not header:
        return 0, b""
    # Keys and values that are arrays or maps are only passed over, so they need no hash.
    unpacker = msgpack.Unpacker(object_pairs_hook=list, strict_map_key=False, max_buffer_size=len(header), timestamp=1)
    unpacker.feed(header)
    number = unpacker.read_map_header()
    kept = []
    start = unpacker.tell()
    for _ in range(number):
        key = unpacker.unpack()
        unpacker.skip()
        end = unpacker.tell()
        if not isinstance(key, str) or key not in unwanted:
            kept.append(header[start:end])
        start = end
    return len(kept), b"".join(kept)


def _mapHead(count: int) -> bytes:
    if count < 16:
        return bytes((0x80 | count,))
    return _map16(0xDE, count) if count < 0x10000 else _map32(0xDF, count)
