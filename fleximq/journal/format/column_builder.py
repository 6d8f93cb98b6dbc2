"""Builds the columns of one frame from runs. Pure, and hot, see :mod:`fleximq.journal.format.record_columns`."""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from struct import Struct, pack
from typing import NamedTuple

from fleximq.journal.format.frame import FULL_FRAME_BYTES, HEADER_BYTES, Frame, FrameKind, padding
from fleximq.values.records import Blobs, Run, StoredBatch, TopicBounds

#: Number of topics, bytes of their names, number of publishers, bytes of their names, bytes of all headers, bytes of
#: all payloads.
SHAPE = Struct("<IIIIQQ")
#: Bytes of a record without its header and payload.
_FIXED = 28
#: Upper limit in bytes of a frame's header, shape and column padding.
_OVERHEAD = HEADER_BYTES + SHAPE.size + 14 * 8
#: Bytes of a topic or publisher in its dictionary, without the name.
_ENTRY = 8
#: Above this average size, payloads are written from their own buffers; smaller ones are joined.
_JOINED_BYTES = 4096
_BIG_ENDIAN = sys.byteorder == "big"


class AppendedRun(NamedTuple):
    """One run to append, with its topic, its publisher and the time of arrival (microseconds since 1970)."""

    topic: str
    publisher: int
    name: str
    dialect: int
    timestamp: int
    run: Run


class ColumnBuilder:
    """The growing columns of one frame."""

    __slots__ = (
        "_size",
        "_topicCounts",
        "contents",
        "dialects",
        "headerEnds",
        "headers",
        "payloadEnds",
        "payloads",
        "publisherOf",
        "publishers",
        "times",
        "topicOf",
        "topics",
    )

    def __init__(self) -> None:
        self._size = _OVERHEAD
        self._topicCounts: dict[str, list[int]] = {}
        self.topics: dict[str, int] = {}
        self.publishers: dict[tuple[int, str], int] = {}
        self.times = array("q")
        self.topicOf = array("I")
        self.publisherOf = array("I")
        self.dialects = array("H")
        self.contents = array("H")
        self.headerEnds = array("i", (0,))
        self.payloadEnds = array("i", (0,))
        self.headers: list[bytes] = []
        self.payloads: list[bytes | memoryview] = []

    @classmethod
    def of(cls, batch: StoredBatch) -> "ColumnBuilder":
        """Return the columns of a batch, with its complete lists of topics and publishers."""
        columns = cls()
        columns.topics = {name: index for index, name in enumerate(batch.topics)}
        columns.publishers = {publisher: index for index, publisher in enumerate(batch.publishers)}
        columns.times.extend(batch.timestamps)
        columns.topicOf.extend(batch.topicOf)
        columns.publisherOf.extend(batch.publisherOf)
        columns.dialects.extend(batch.dialects)
        columns.contents.extend(batch.contents)
        columns.headers, columns.payloads = list(batch.headers), list(batch.payloads)
        columns.headerEnds = array("i", accumulate(map(len, batch.headers), initial=0))
        columns.payloadEnds = array("i", accumulate(map(len, batch.payloads), initial=0))
        return columns

    def addOne(self, each: AppendedRun) -> bool:
        """Add a run of one message; return False, and add none, if the frame is full."""
        topic, publisher, name, dialect, timestamp, (headers, payloads, contents) = each
        sender = publisher, name
        known = 0 if topic in self.topics and sender in self.publishers else self._known(topic, publisher, name)
        header = headers if isinstance(headers, bytes) else headers[0]
        payload = payloads[0]
        size = len(header) + len(payload)
        if self._size + known + size + _FIXED > FULL_FRAME_BYTES:
            return False
        self._size += known + size + _FIXED
        self._count(topic, len(self.times), 1, timestamp, size)
        self.times.append(timestamp)
        self.topicOf.append(self.topics.setdefault(topic, len(self.topics)))
        self.publisherOf.append(self.publishers.setdefault(sender, len(self.publishers)))
        self.dialects.append(dialect)
        self.contents.append(contents if isinstance(contents, int) else contents[0])
        self.headerEnds.append(self.headerEnds[-1] + len(header))
        self.payloadEnds.append(self.payloadEnds[-1] + len(payload))
        if header:
            self.headers.append(header)
        self.payloads.append(payload)
        return True

    def add(self, each: AppendedRun, start: int) -> int:
        """Add messages of a run from index ``start``, as many as fit, in an empty frame at least one; return their
        number.
        """
        topic, publisher, name, dialect, timestamp, (headers, payloads, contents) = each
        if start:
            headers = headers if isinstance(headers, bytes) else headers[start:]
            contents = contents if isinstance(contents, int) else contents[start:]
        known = self._known(topic, publisher, name)
        count = len(payloads) - start
        first = len(self.times)
        _extendEnds(self.payloadEnds, payloads, start)
        _extendHeaderEnds(self.headerEnds, headers, count)
        size = self._sizeFrom(first, count)
        if self._size + known + size > FULL_FRAME_BYTES:
            count = self._fitting(first, count, FULL_FRAME_BYTES - self._size - known)
            del self.payloadEnds[first + count + 1 :], self.headerEnds[first + count + 1 :]
            if not count:
                return 0
            headers = headers if isinstance(headers, bytes) else headers[:count]
            contents = contents if isinstance(contents, int) else contents[:count]
            size = self._sizeFrom(first, count)
        self._size += known + size
        end = start + count
        self.payloads += [payloads.joined(start, end)] if isinstance(payloads, Blobs) else payloads[start:end]
        if headers:
            self.headers += [headers * count] if isinstance(headers, bytes) else headers
        _fill(self.times, timestamp, count)
        _fill(self.topicOf, self.topics.setdefault(topic, len(self.topics)), count)
        _fill(self.publisherOf, self.publishers.setdefault((publisher, name), len(self.publishers)), count)
        _fill(self.dialects, dialect, count)
        if isinstance(contents, int):
            _fill(self.contents, contents, count)
        else:
            self.contents.extend(array("H", contents))
        self._count(topic, first, count, timestamp, size - _FIXED * count)
        return count

    def _known(self, topic: str, publisher: int, name: str) -> int:
        """Return an upper limit for the bytes that topic and publisher, not encoded here, add to the dictionaries."""
        new = 0
        if topic not in self.topics:
            new = _ENTRY + 4 * len(topic)
        if (publisher, name) not in self.publishers:
            new += _ENTRY + 4 * len(name)
        return new

    def _sizeFrom(self, first: int, count: int) -> int:
        payloads, headers = self.payloadEnds, self.headerEnds
        return payloads[first + count] - payloads[first] + headers[first + count] - headers[first] + _FIXED * count

    def _fitting(self, first: int, count: int, room: int) -> int:
        fits = bisect_right(range(count + 1), room, key=lambda number: self._sizeFrom(first, number)) - 1
        return max(fits, 0 if first else 1)

    def _count(self, topic: str, first: int, count: int, timestamp: int, size: int) -> None:
        topicCounts = self._topicCounts.get(topic)
        if topicCounts is None:
            self._topicCounts[topic] = [first, first + count - 1, timestamp, timestamp, count, size]
        else:
            topicCounts[1] = first + count - 1
            topicCounts[3] = timestamp
            topicCounts[4] += count
            topicCounts[5] += size

    def frame(self, kind: FrameKind, offset: int, before: bytes = b"") -> Frame:
        """Return the collected records as a frame; ``before``: bytes between the shape and the first column."""
        topicEnds, topicNames = _names(self.topics)
        publisherEnds, publisherNames = _names([name for _, name in self.publishers])
        shape = SHAPE.pack(
            len(self.topics),
            len(topicNames),
            len(self.publishers),
            len(publisherNames),
            self.headerEnds[-1],
            self.payloadEnds[-1],
        )
        columns = [
            littleEndian(self.times),
            littleEndian(self.topicOf),
            littleEndian(self.publisherOf),
            littleEndian(self.dialects),
            littleEndian(self.contents),
            littleEndian(self.headerEnds),
            littleEndian(self.payloadEnds),
            topicEnds,
            topicNames,
            littleEndian(array("I", [publisherId for publisherId, _ in self.publishers])),
            publisherEnds,
            publisherNames,
            b"".join(self.headers),
        ]
        parts = [shape, before]
        for column in columns:
            parts.append(column)
            if len(column) % 8:
                parts.append(padding(len(column)))
        return Frame(
            kind,
            [b"".join(parts), *self._payloadPieces()],
            count=len(self.times),
            baseOffset=offset,
            firstTime=self.times[0],
            lastTime=self.times[-1],
            topicCounts={topic: TopicBounds(*topicCounts) for topic, topicCounts in self._topicCounts.items()},
        )

    def _payloadPieces(self) -> list[bytes | memoryview]:
        """Return the payloads as buffers: one joined buffer, or the original buffers if they are large and few."""
        size = self.payloadEnds[-1]
        pad = padding(size)
        if size > _JOINED_BYTES * len(self.payloads):
            return [piece for piece in (*self.payloads, pad) if piece]
        joined = b"".join([*self.payloads, pad])
        return [joined] if joined else []


def _fill(column: "array[int]", value: int, count: int) -> None:
    if count == 1:
        column.append(value)
    else:
        column.extend(array(column.typecode, (value,)) * count)


def _extendEnds(ends: "array[int]", blobs: Sequence[bytes] | Blobs, start: int = 0) -> None:
    if isinstance(blobs, Blobs):
        _extend(ends, blobs.endsAfter(ends[-1], start))
    elif len(blobs) == 1:
        ends.append(ends[-1] + len(blobs[0]))
    else:
        _extend(ends, accumulate(map(len, blobs[start:]), initial=ends.pop()))


def _extendHeaderEnds(ends: "array[int]", headers: bytes | Sequence[bytes], count: int) -> None:
    if not isinstance(headers, bytes):
        _extendEnds(ends, headers)
    elif headers:
        last, size = ends[-1], len(headers)
        _extend(ends, range(last + size, last + size * count + 1, size))
    else:
        _fill(ends, ends[-1], count)


def _extend(ends: "array[int]", more: Iterable[int]) -> None:
    """Append numbers to a column: a fifth of the time of ``extend``, which parses each number as an argument."""
    numbers = tuple(more)
    ends.frombytes(pack(f"{len(numbers)}i", *numbers))


def _names(names: Iterable[str]) -> tuple[bytes, bytes]:
    encoded = [name.encode() for name in names]
    return littleEndian(array("i", accumulate(map(len, encoded), initial=0))), b"".join(encoded)


def littleEndian(column: "array[int]") -> bytes:
    """Return the bytes of a column in the order of the format."""
    if _BIG_ENDIAN:
        column = column[:]
        column.byteswap()
    return column.tobytes()


def fromLittleEndian(typeCode: str, column: bytes) -> "array[int]":
    """Return the numbers of a column in the order of the format."""
    numbers = array(typeCode, column)
    if _BIG_ENDIAN:
        numbers.byteswap()
    return numbers
