"""The key ``schedule`` in the headers of records: of one that waits for its time, and of the publication at that time.

A waiting record has it as its first key: due time, topic and principal. The publication has it as its last key: the id
or name of the schedule and the due time. In the journal only the broker sets the flag :data:`SCHEDULED` of a record's
content, so a publication with the flag proves that its schedule has fired: one record is complete on disk or missing,
while two records of one commit may be separated by a crash. Hot: 0.4 us for each message.
"""

from array import array
from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

import msgpack

from fleximq.values.header_pairs import SHORT, headerPairs, mapHead
from fleximq.values.nesting import unpack

#: The topic of waiting records. No client can publish to it, and no replay has it.
SCHEDULES = "$sys/schedules"
#: Keys that a publication does not have any more: the broker has carried them out, or sets them itself.
_DONE = frozenset({"deliver_in", "deliver_at", "schedule"})
_KEY = msgpack.packb("schedule")
_WAITING = _KEY + b"\x93\xcf"
_ID = _KEY + b"\x82\xa2id\xcf"
_DUE = b"\xa3due\xcf"
_NAME = _KEY + b"\x82\xa4name"
_u64 = Struct(">Q")
#: The bytes of the key of a schedule that has an id, and of its end in every publication.
_ID_BYTES, _DUE_BYTES = len(_ID) + 8 + len(_DUE) + 8, len(_DUE) + 8


class Publication(NamedTuple):
    """What a waiting record publishes, other than its payload: the topic, the number and bytes of the pairs of its
    header, and whether it opens a queue. ``principal`` is that of its publisher, None if anonymous.
    """

    topic: str
    principal: str | None
    number: int
    pairs: bytes
    opensQueue: bool


def publishedHeader(header: bytes) -> bytes:
    """Return a publisher's header without the keys that the broker carries out."""
    number, pairs = headerPairs(header, _DONE)
    return mapHead(number) + pairs if number else b""


def waitingHeader(header: bytes, topic: str, principal: str | None, due: int) -> bytes:
    """Return the header of a waiting record.

    :param header: as :func:`publishedHeader` returns it.
    """
    number, pairs = headerPairs(header, frozenset())
    return b"".join(
        (mapHead(number + 1), _WAITING, _u64.pack(due), msgpack.packb(topic), msgpack.packb(principal), pairs)
    )


def dueOf(header: bytes) -> int:
    """Return the due time of a waiting record, in milliseconds since 1970."""
    due: int = _u64.unpack_from(header, _headBytes(header) + len(_WAITING))[0]
    return due


def waitingColumns(headers: Iterable[bytes]) -> "tuple[array[int], list[str | None]]":
    """Return the due times and the principals of waiting records."""
    dues: array[int] = array("Q")
    principals: list[str | None] = []
    known: dict[bytes, str | None] = {}
    for header in headers:
        start = _headBytes(header) + len(_WAITING)
        dues.append(_u64.unpack_from(header, start)[0])
        rest = header[start + 8 :]
        if rest not in known:
            known[rest] = _unpackFirst(rest)[1]
        principals.append(known[rest])
    return dues, principals


def publicationOf(header: bytes) -> Publication:
    """Return what a waiting record with this header publishes."""
    start = _headBytes(header) + len(_WAITING)
    read = _publicationOf if len(header) <= SHORT else _publicationOf.__wrapped__
    return read(header[: start - len(_WAITING)], header[start + 8 :])


def publishedTo(topic: str, header: bytes) -> str:
    """Return the topic for which a record was published; a waiting one names it in its header."""
    return publicationOf(header).topic if topic == SCHEDULES else topic


@lru_cache(maxsize=4096)
def _publicationOf(head: bytes, rest: bytes) -> Publication:
    topic, principal, end = _unpackFirst(rest)
    pairs = rest[end:]
    number = (head[0] & 0x0F if len(head) == 1 else int.from_bytes(head[1:], "big")) - 1
    return Publication(topic, principal, number, pairs, opensQueue(mapHead(number) + pairs))


def _unpackFirst(rest: bytes) -> tuple[str, str | None, int]:
    """Return topic and principal, which follow the due time of a waiting record, and where the pairs begin."""
    unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=len(rest), timestamp=1)
    unpacker.feed(rest)
    return unpacker.unpack(), unpacker.unpack(), unpacker.tell()


def opensQueue(header: bytes) -> bool:
    """Tell whether a header asks for a queue of its topic."""
    if b"queue" not in header:
        return False
    found = unpack(header, timestamp=1, object_pairs_hook=list)
    return any(key == "queue" and value is True for key, value in found)


def firedHeader(publication: Publication, number: int, due: int) -> bytes:
    """Return the header of the publication of the schedule with this id."""
    head = mapHead(publication.number + 1)
    return b"".join((head, publication.pairs, _ID, _u64.pack(number), _DUE, _u64.pack(due)))


def repeatedHeader(header: bytes, name: str, due: int) -> bytes:
    """Return the header of a publication of the recurring schedule with this name."""
    number, pairs = headerPairs(header, _DONE)
    return b"".join((mapHead(number + 1), pairs, _NAME, msgpack.packb(name), _DUE, _u64.pack(due)))


def firedOf(header: bytes) -> tuple[int | str, int]:
    """Return id or name, and due time, of the schedule of a publication; its content has the flag."""
    due: int = _u64.unpack_from(header, len(header) - 8)[0]
    if header[-_ID_BYTES:].startswith(_ID):
        return _u64.unpack_from(header, len(header) - _DUE_BYTES - 8)[0], due
    found: Any = unpack(header, timestamp=1, object_pairs_hook=list)
    return dict(found[-1][1])["name"], due


def dividedHeader(header: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of a header before the key of the schedule that has an id, and from there on; none of the latter
    if it is no publication of one. Those of one topic mostly differ only in the latter.
    """
    end = header[-_ID_BYTES:]
    return (header[:-_ID_BYTES], end) if end.startswith(_ID) else (header, b"")


def _headBytes(header: bytes) -> int:
    """Return the size of the head of a map."""
    return 1 if header[0] < 0xDE else 3 if header[0] == 0xDE else 5
