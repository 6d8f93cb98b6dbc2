"""Headers of FlexiMQ as they may be published, and keys that are added to them or left out without decoding the others,
among them that of the sender.

A header is here a MessagePack map of a record: valid, and without its topic; no bytes for an empty one.
"""

from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Any

import msgpack

from fleximq.values.nesting import unpack
from fleximq.values.records import Run

#: The key of a PUB that names the principal of its publisher. Only the broker sets it (:class:`Sender`).
SENDER = "sender_principal"
#: Longer headers are not cached.
SHORT = 1024
_SENDER = frozenset({SENDER})
#: The same key as bytes, which some libraries do not tell from a text.
SENDER_BYTES = SENDER.encode()
_PACKED_SENDER = msgpack.packb(SENDER)
mapHead = msgpack.Packer().pack_map_header


def readHeader(packed: bytes) -> Any:
    """Return the value of a received header.

    Keys of maps are strings or bytes at every depth, and distinct: Python hashes these with a secret, so that a client
    cannot choose keys that collide, and reading takes linear time.

    :raises ValueError: subscribers may be unable to read it; a NestedTooDeeply, or instead TypeError, OverflowError or
        RecursionError.
    """
    return unpack(packed, timestamp=1, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a map without duplicate keys: another reader might use the other value."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key stands there twice")
    return fields


def headerPairs(header: bytes, unwanted: frozenset[str]) -> tuple[int, bytes]:
    """Return the number of a map's pairs and their bytes, without unwanted keys; they are read only if some of these
    bytes are an unwanted key.
    """
    if not header:
        return 0, b""
    if not any(key in header for key in _packedKeys(unwanted)):
        return _plainPairs(header)
    # Keys and values that are arrays or maps are skipped, so they need not be hashable.
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


@lru_cache(maxsize=64)
def _packedKeys(keys: frozenset[str]) -> tuple[bytes, ...]:
    """Return the ends of all MessagePack forms of these keys: their bytes."""
    return tuple(key.encode() for key in keys)


def _plainPairs(header: bytes) -> tuple[int, bytes]:
    """Return the number of all pairs of a map and their bytes."""
    head = header[0]
    if head < 0xDE:
        return head & 0x0F, header[1:]
    size = 3 if head == 0xDE else 5
    return int.from_bytes(header[1:size], "big"), header[size:]


def withSender(header: bytes, sender: str) -> bytes:
    """Return a header with this principal as its only sender; without any for ""."""
    return (_withSender if len(header) <= SHORT else _withSender.__wrapped__)(header, sender)


@lru_cache(maxsize=2048)
def _withSender(header: bytes, sender: str) -> bytes:
    count, pairs = headerPairs(header, _SENDER)
    if sender:
        count, pairs = count + 1, b"".join((pairs, _PACKED_SENDER, msgpack.packb(sender)))
    return mapHead(count) + pairs if count else b""


def namesSender(fields: Container[Any]) -> bool:
    """Return whether a header has the sender's key, as text or as bytes."""
    return SENDER in fields or SENDER_BYTES in fields


def isForged(fields: Mapping[Any, Any], sender: str) -> bool:
    """Return whether a received header names any other sender than this principal; "" is none."""
    return namesSender(fields) and (not sender or SENDER_BYTES in fields or fields[SENDER] != sender)


def senderOf(header: bytes) -> str:
    """Return the principal that a header names as its sender, "" without one."""
    if _PACKED_SENDER not in header:
        return ""
    return (_senderOf if len(header) <= SHORT else _senderOf.__wrapped__)(header)


@lru_cache(maxsize=2048)
def _senderOf(header: bytes) -> str:
    found = msgpack.unpackb(header, strict_map_key=False, timestamp=1, object_pairs_hook=list)
    return next((value for key, value in found if key == SENDER and isinstance(value, str)), "")


def runWithSender(run: Run, sender: str) -> Run:
    """Return a run whose headers name this principal as sender."""
    headers = run.headers
    if isinstance(headers, bytes):
        return run._replace(headers=withSender(headers, sender))
    return run._replace(headers=[withSender(header, sender) for header in headers])
