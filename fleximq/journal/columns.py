"""Records as columns: the bodies of RECORDS, SPARSE_RECORDS and STAGED frames. Pure, and hot.

What is kept is encoded run by run, never record by record: 0.1 us a record for runs of 1,000, about 2 us for runs
of one. Reading a frame makes views of its columns and costs 0.05 us a record; the rest is done by who looks into
the batch (timeit over payloads of 100 bytes, CPython 3.11, one core; benchmarks are in docs/benchmarks.rst).
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import ge
from struct import Struct
from typing import Any, NamedTuple

import msgpack

from fleximq.journal.body import unpackMap
from fleximq.journal.frame import FRAME_BYTES, HEADER_BYTES, Frame, FrameError, FrameHeader, Kind, padding
from fleximq.records import CONTENTS, Batch, Blobs, Bounds, Run

_shape = Struct("<IIIIQQ")
_metaLength = Struct("<II")
#: What a record takes beside its header and payload.
_FIXED = 28
#: What a frame may take for its header, its counts and the padding of its columns.
_OVERHEAD = HEADER_BYTES + _shape.size + 14 * 8
#: What a topic or a publisher takes in the dictionaries beside its name.
_ENTRY = 8
#: Payloads of this size on the average are written from where they are, smaller ones are joined.
_LARGE = 4096
_SIZES = {"q": 8, "I": 4, "i": 4, "H": 2}
#: Columns with fewer numbers are not looked at as a whole.
_FEW = 8
_BIG_ENDIAN = sys.byteorder == "big"


class Appended(NamedTuple):
    """One run to be kept: where it goes, who it is from, when it came (microseconds since 1970)."""

    topic: str
    publisher: int
    name: str
    dialect: int
    timestamp: int
    run: Run


def encodeRecords(appended: Iterable[Appended], offset: int) -> list[Frame]:
    """Return the frames that hold these runs, in order; what has no room in one goes on in the next.

    :param offset: of the first record; the others follow one by one.
    """
    frames = []
    columns = _Columns()
    for each in appended:
        start, count = 0, len(each.run.payloads)
        while start < count:
            taken = columns.add(each, start)
            start += taken
            if start < count:
                frames.append(columns.frame(Kind.RECORDS, offset))
                offset += len(columns.times)
                columns = _Columns()
    if columns.times:
        frames.append(columns.frame(Kind.RECORDS, offset))
    return frames


def encodeStaged(meta: Mapping[str, Any], appended: Iterable[Appended]) -> list[Frame]:
    """Return the frames that hold these runs without offsets, each with the same MessagePack map ``meta``."""
    packed = msgpack.packb(meta)
    before = _metaLength.pack(len(packed), 0) + packed + padding(len(packed))
    frames = encodeRecords(appended, 0)
    return [
        Frame(
            Kind.STAGED,
            [before, *frame.pieces],
            count=frame.count,
            firstTime=frame.firstTime,
            lastTime=frame.lastTime,
            tally=frame.tally,
        )
        for frame in frames
    ]


def encodeSparse(batch: Batch) -> Frame:
    """Return one frame that holds these records, at least one, with the offsets they have, whatever their size."""
    columns = _Columns()
    columns.topics = {name: place for place, name in enumerate(batch.topics)}
    columns.publishers = {publisher: place for place, publisher in enumerate(batch.publishers)}
    columns.times.extend(batch.timestamps)
    columns.topicOf.extend(batch.topicOf)
    columns.publisherOf.extend(batch.publisherOf)
    columns.dialects.extend(batch.dialects)
    columns.contents.extend(batch.contents)
    columns.headers, columns.payloads = list(batch.headers), list(batch.payloads)
    columns.headerEnds = array("i", accumulate(map(len, batch.headers), initial=0))
    columns.payloadEnds = array("i", accumulate(map(len, batch.payloads), initial=0))
    return columns.frame(Kind.SPARSE_RECORDS, batch.offsets[0], _littleEndian(array("q", batch.offsets)))


class _Columns:
    """The columns of one frame while it is filled."""

    __slots__ = (
        "_size",
        "_tally",
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
        self._tally: dict[str, list[int]] = {}
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
        self.payloads: list[bytes] = []

    def add(self, each: Appended, start: int) -> int:
        """Take as many messages of a run, from this place on, as have room; in an empty frame at least one.

        Returns how many.
        """
        topic, publisher, name, dialect, timestamp, (headers, payloads, contents) = each
        if start:
            payloads = payloads[start:]
            headers = headers if isinstance(headers, bytes) else headers[start:]
            contents = contents if isinstance(contents, int) else contents[start:]
        known = self._known(topic, publisher, name)
        count = len(payloads)
        first = len(self.times)
        _extendEnds(self.payloadEnds, payloads)
        _extendHeaderEnds(self.headerEnds, headers, count)
        size = self._sizeFrom(first, count)
        if self._size + known + size > FRAME_BYTES:
            count = self._fitting(first, count, FRAME_BYTES - self._size - known)
            del self.payloadEnds[first + count + 1 :], self.headerEnds[first + count + 1 :]
            if not count:
                return 0
            payloads = payloads[:count]
            headers = headers if isinstance(headers, bytes) else headers[:count]
            contents = contents if isinstance(contents, int) else contents[:count]
            size = self._sizeFrom(first, count)
        self._size += known + size
        self.payloads += payloads
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
        """Return how many bytes topic and publisher add to the dictionaries; at most, for names are not encoded."""
        new = 0
        if topic not in self.topics:
            new = _ENTRY + 4 * len(topic)
        if (publisher, name) not in self.publishers:
            new += _ENTRY + 4 * len(name)
        return new

    def _sizeFrom(self, first: int, count: int) -> int:
        """Return the bytes of so many records from a place on."""
        payloads, headers = self.payloadEnds, self.headerEnds
        return payloads[first + count] - payloads[first] + headers[first + count] - headers[first] + _FIXED * count

    def _fitting(self, first: int, count: int, room: int) -> int:
        fits = bisect_right(range(count + 1), room, key=lambda number: self._sizeFrom(first, number)) - 1
        return max(fits, 0 if first else 1)

    def _count(self, topic: str, first: int, count: int, timestamp: int, size: int) -> None:
        tally = self._tally.get(topic)
        if tally is None:
            self._tally[topic] = [first, first + count - 1, timestamp, timestamp, count, size]
        else:
            tally[1] = first + count - 1
            tally[3] = timestamp
            tally[4] += count
            tally[5] += size

    def frame(self, kind: Kind, offset: int, before: bytes = b"") -> Frame:
        """Return what was taken as a frame.

        :param before: stands between the shape and the first column.
        """
        topicEnds, topicNames = _names(self.topics)
        publisherEnds, publisherNames = _names([name for _, name in self.publishers])
        shape = _shape.pack(
            len(self.topics),
            len(topicNames),
            len(self.publishers),
            len(publisherNames),
            self.headerEnds[-1],
            self.payloadEnds[-1],
        )
        columns = [
            _littleEndian(self.times),
            _littleEndian(self.topicOf),
            _littleEndian(self.publisherOf),
            _littleEndian(self.dialects),
            _littleEndian(self.contents),
            _littleEndian(self.headerEnds),
            _littleEndian(self.payloadEnds),
            topicEnds,
            topicNames,
            _littleEndian(array("I", [id for id, _ in self.publishers])),
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
            tally={topic: Bounds(*tally) for topic, tally in self._tally.items()},
        )

    def _payloadPieces(self) -> list[bytes]:
        """Return the payloads as buffers: joined, or as they are where they are large and few."""
        size = self.payloadEnds[-1]
        pad = padding(size)
        if size > _LARGE * len(self.payloads):
            return [*filter(None, self.payloads), pad] if pad else [*filter(None, self.payloads)]
        joined = b"".join([*self.payloads, pad])
        return [joined] if joined else []


def _fill(column: "array[int]", value: int, count: int) -> None:
    if count == 1:
        column.append(value)
    else:
        column.extend(array(column.typecode, (value,)) * count)


def _extendEnds(ends: "array[int]", blobs: Sequence[bytes]) -> None:
    if len(blobs) == 1:
        ends.append(ends[-1] + len(blobs[0]))
    else:
        ends.extend(accumulate(map(len, blobs), initial=ends.pop()))


def _extendHeaderEnds(ends: "array[int]", headers: bytes | Sequence[bytes], count: int) -> None:
    if not isinstance(headers, bytes):
        _extendEnds(ends, headers)
    elif headers:
        last, size = ends[-1], len(headers)
        ends.extend(array("i", range(last + size, last + size * count + 1, size)))
    else:
        _fill(ends, ends[-1], count)


def _names(names: Iterable[str]) -> tuple[bytes, bytes]:
    encoded = [name.encode() for name in names]
    return _littleEndian(array("i", accumulate(map(len, encoded), initial=0))), b"".join(encoded)


def _littleEndian(column: "array[int]") -> bytes:
    if _BIG_ENDIAN:
        column = column[:]
        column.byteswap()
    return column.tobytes()


def decodeRecords(header: FrameHeader, frame: bytes | memoryview) -> Batch:
    """Return the records of a frame that was checked.

    :param frame: all its bytes, of which the batch keeps hold.
    :raises FrameError: it is of another kind, or contradicts itself.
    """
    if header.kind == Kind.RECORDS:
        return _Body(header, frame, HEADER_BYTES).batch(range(header.baseOffset, header.baseOffset + header.count))
    if header.kind != Kind.SPARSE_RECORDS:
        raise FrameError(f"a frame of kind {header.kind} has no records")
    body = _Body(header, frame, HEADER_BYTES)
    offsets = body.column("q", header.count, "offsets")
    if not header.count or offsets[0] != header.baseOffset or any(map(ge, offsets, offsets[1:])):
        raise FrameError("the offsets do not ascend from the base offset")
    return body.batch(offsets)


def decodeStaged(header: FrameHeader, frame: bytes | memoryview) -> tuple[dict[str, Any], Batch]:
    """Return the map and the records of a STAGED frame that was checked; as offsets they have their places, from 0.

    :param frame: all its bytes, of which the batch keeps hold.
    :raises FrameError: it is of another kind, or contradicts itself.
    """
    if header.kind != Kind.STAGED:
        raise FrameError(f"a frame of kind {header.kind} has nothing staged")
    if header.length < HEADER_BYTES + _metaLength.size:
        raise FrameError("the frame is too short for what it should hold")
    length, zero = _metaLength.unpack_from(frame, HEADER_BYTES)
    start = HEADER_BYTES + _metaLength.size
    if zero or length > header.length - start:
        raise FrameError("the length of what stands before the records is wrong")
    meta = unpackMap(frame[start : start + length])
    body = _Body(header, frame, start + length + -length % 8)
    return meta, body.batch(range(header.count))


class _Body:
    """The columns of a frame, taken one behind the other."""

    def __init__(self, header: FrameHeader, frame: bytes | memoryview, start: int) -> None:
        self._header = header
        self._frame = frame
        self._view = memoryview(frame)
        self._at = start + _shape.size
        if self._at > header.length:
            raise FrameError("the frame is too short for what it should hold")
        self._shape = _shape.unpack_from(frame, start)

    def _take(self, size: int, what: str) -> int:
        """Return where the next so many bytes begin, and go behind them and their padding."""
        start = self._at
        self._at = start + size + -size % 8
        if self._at > self._header.length:
            raise FrameError(f"the frame ends within its {what}")
        return start

    def column(self, type: str, count: int, what: str) -> Sequence[int]:
        """Return the next column of numbers."""
        size = count * _SIZES[type]
        start = self._take(size, what)
        view = self._view[start : start + size]
        if not _BIG_ENDIAN:
            return view.cast(type)  # type: ignore[call-overload, no-any-return]  # one of four known formats
        numbers = array(type, view.tobytes())
        numbers.byteswap()
        return numbers

    def _places(self, type: str, known: Container[int], what: str) -> Sequence[int]:
        """Return the next column, whose values all are known ones."""
        column = self.column(type, self._header.count, what)
        for value in {column[0]} if _isConstant(column) else set(column):
            if value not in known:
                raise FrameError(f"{value} is none of the {what}")
        return column

    def _ends(self, count: int, size: int, what: str) -> Sequence[int]:
        column = self.column("i", count + 1, what)
        ends = [0] * (count + 1) if not size and _isConstant(column) and not column[0] else list(column)
        if ends[0] or ends[-1] != size or ends != sorted(ends):
            raise FrameError(f"the {what} do not ascend from 0 to {size}")
        return ends

    def _blob(self, size: int, what: str) -> bytes:
        start = self._take(size, what)
        return bytes(self._view[start : start + size])

    def _names(self, count: int, size: int, what: str) -> list[str]:
        ends = self._ends(count, size, f"ends of {what}")
        try:
            return [name.decode() for name in Blobs(self._blob(size, what), ends).cut()]
        except UnicodeDecodeError:
            raise FrameError(f"the {what} are not UTF-8") from None

    def batch(self, offsets: Sequence[int]) -> Batch:
        """Return what stands in the columns behind those that were taken."""
        count = self._header.count
        topicCount, topicBytes, publisherCount, publisherBytes, headerBytes, payloadBytes = self._shape
        times = self.column("q", count, "timestamps")
        topicOf = self._places("I", range(topicCount), "topics")
        publisherOf = self._places("I", range(publisherCount), "publishers")
        dialects = self.column("H", count, "dialects")
        contents = self._places("H", CONTENTS, "kinds of content")
        headerEnds = self._ends(count, headerBytes, "ends of headers")
        payloadEnds = self._ends(count, payloadBytes, "ends of payloads")
        topics = self._names(topicCount, topicBytes, "topic names")
        ids = self.column("I", publisherCount, "publisher ids")
        names = self._names(publisherCount, publisherBytes, "publisher names")
        headers = Blobs(self._blob(headerBytes, "headers"), headerEnds)
        payloads = Blobs(self._blob(payloadBytes, "payloads"), payloadEnds)
        self._finish()
        publishers = list(zip(ids, names, strict=True))
        if len(set(topics)) < topicCount or len(set(publishers)) < publisherCount:
            raise FrameError("a topic or a publisher stands in its list twice")
        return Batch(offsets, times, topics, topicOf, publishers, publisherOf, dialects, contents, headers, payloads)

    def _finish(self) -> None:
        rest = self._header.length - self._at
        if rest and (self._header.kind != Kind.SPARSE_RECORDS or any(self._view[self._at :])):
            raise FrameError(f"{rest} bytes stand behind the payloads")


def _isConstant(column: Sequence[int]) -> bool:
    """Tell whether all numbers of a column are the same, quickly; for numbers that are nearly so, slowly."""
    if len(column) < _FEW or column[0] != column[-1]:
        return False
    numbers = column if isinstance(column, array) else memoryview(column)  # type: ignore[arg-type]
    raw = numbers.tobytes()
    return raw == raw[: numbers.itemsize] * len(column)
