"""Records as columns: the bodies of RECORDS, SPARSE_RECORDS and STAGED frames. Pure, and hot.

Runs are encoded as a unit, not record by record: 0.1 us a record for runs of 1,000, about 0.8 us for runs of one. A
record that is alone in its commit, as from a publisher of single messages, is encoded at once by :func:`encodeSingle`,
2 us instead of 8. Reading a frame makes views of its columns, 0.05 us a record; values are cut when they are used
(timeit over payloads of 100 bytes, CPython 3.11, one core; benchmarks are in docs/explanation/benchmarks.rst).
"""

import sys
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from operator import ge
from struct import Struct
from typing import Any

import msgpack

from fleximq.journal.format.body import unpackMap
from fleximq.journal.format.column_builder import SHAPE, AppendedRun, ColumnBuilder, fromLittleEndian, littleEndian
from fleximq.journal.format.frame import HEADER_BYTES, Frame, FrameError, FrameHeader, FrameKind, padding
from fleximq.values.records import CONTENTS, Blobs, StoredBatch, TopicBounds

#: Larger records are written from their own buffers, not copied.
SINGLE_BYTES = 4096
#: The shape, and all columns before the topic's name: one value each, or two ends.
_before = Struct("<IIIIQQ qI4xI4xH6xH6x ii ii ii")
#: The publisher's id, and the ends of its name.
_between = Struct("<I4xii")
_ZEROS = [bytes(-length % 8) for length in range(8)]


def encodeSingle(each: AppendedRun, offset: int) -> Frame | None:
    """Return the frame of a run of one message; None if the message is larger than :data:`SINGLE_BYTES`."""
    topic, publisher, name, dialect, timestamp, (headers, payloads, contents) = each
    header = headers if isinstance(headers, bytes) else headers[0]
    content = contents if isinstance(contents, int) else contents[0]
    payload = payloads[0]
    headerBytes, payloadBytes = len(header), len(payload)
    size = headerBytes + payloadBytes
    if size > SINGLE_BYTES:
        return None
    topicName, publisherName = topic.encode(), name.encode()
    topicBytes, nameBytes = len(topicName), len(publisherName)
    shape = 1, topicBytes, 1, nameBytes, headerBytes, payloadBytes
    ends = 0, headerBytes, 0, payloadBytes, 0, topicBytes
    pieces = (
        _before.pack(*shape, timestamp, 0, 0, dialect, content, *ends),
        topicName,
        _ZEROS[topicBytes & 7],
        _between.pack(publisher, 0, nameBytes),
        publisherName,
        _ZEROS[nameBytes & 7],
        header,
        _ZEROS[headerBytes & 7],
        payload,
        _ZEROS[payloadBytes & 7],
    )
    return Frame(
        FrameKind.RECORDS,
        [b"".join(pieces)],
        count=1,
        baseOffset=offset,
        firstTime=timestamp,
        lastTime=timestamp,
        topicCounts={topic: TopicBounds(0, 0, timestamp, timestamp, 1, size)},
    )


_metaLength = Struct("<II")
_SIZES = {"q": 8, "I": 4, "i": 4, "H": 2}
#: Shorter columns are checked number by number.
_FEW = 8
_BIG_ENDIAN = sys.byteorder == "big"


def encodeRecords(appended: Sequence[AppendedRun], offset: int) -> list[Frame]:
    """Return the frames of :func:`recordFrames`."""
    return list(recordFrames(appended, offset))


def recordFrames(appended: Sequence[AppendedRun], offset: int) -> Iterable[Frame]:
    """Return the frames of these runs, in order, each encoded when it is asked for; a run may continue in the next.
    ``offset``: the offset of the first record; the others follow without gaps.
    """
    if len(appended) == 1 and len(appended[0].run.payloads) == 1:
        single = encodeSingle(appended[0], offset)
        if single is not None:
            return [single]
    return _encode(appended, offset)


def _encode(appended: Sequence[AppendedRun], offset: int) -> Iterator[Frame]:
    columns = ColumnBuilder()
    for each in appended:
        if len(each.run.payloads) == 1 and columns.addOne(each):
            continue
        start, count = 0, len(each.run.payloads)
        while start < count:
            taken = columns.add(each, start)
            start += taken
            if start < count:
                yield columns.frame(FrameKind.RECORDS, offset)
                offset += len(columns.times)
                columns = ColumnBuilder()
    if columns.times:
        yield columns.frame(FrameKind.RECORDS, offset)


def encodeStaged(meta: Mapping[str, Any], appended: Sequence[AppendedRun]) -> list[Frame]:
    """Return the frames of these runs without offsets, each with the same MessagePack map ``meta``."""
    packed = msgpack.packb(meta)
    before = _metaLength.pack(len(packed), 0) + packed + padding(len(packed))
    frames = encodeRecords(appended, 0)
    for frame in frames:
        frame.kind = FrameKind.STAGED
        frame.pieces = [before, *frame.pieces]
        frame.length += len(before)
    return frames


def encodeSparse(batch: StoredBatch) -> Frame:
    """Return one frame with these records, at least one, and their own offsets, of any size."""
    return ColumnBuilder.of(batch).frame(
        FrameKind.SPARSE_RECORDS, batch.offsets[0], littleEndian(array("q", batch.offsets))
    )


def decodeRecords(header: FrameHeader, frame: bytes | memoryview) -> StoredBatch:
    """Return the records of a checked frame; the batch references its bytes. Raises FrameError if the frame is of
    another kind, or contradicts itself.
    """
    if header.kind == FrameKind.RECORDS:
        return _Body(header, frame, HEADER_BYTES).batch(range(header.baseOffset, header.baseOffset + header.count))
    if header.kind != FrameKind.SPARSE_RECORDS:
        raise FrameError(f"a frame of kind {header.kind} has no records")
    body = _Body(header, frame, HEADER_BYTES)
    offsets = body.column("q", header.count, "offsets")
    if not header.count or offsets[0] != header.baseOffset or any(map(ge, offsets, offsets[1:])):
        raise FrameError("the offsets do not ascend from the base offset")
    return body.batch(offsets)


def decodeStaged(header: FrameHeader, frame: bytes | memoryview) -> tuple[dict[str, Any], StoredBatch]:
    """Return the map and the records of a STAGED frame as :func:`decodeRecords` does; offsets are indexes from 0."""
    if header.kind != FrameKind.STAGED:
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
    """The columns of a frame, read one after the other."""

    def __init__(self, header: FrameHeader, frame: bytes | memoryview, start: int) -> None:
        self._header = header
        self._frame = frame
        self._view = memoryview(frame)
        self._at = start + SHAPE.size
        if self._at > header.length:
            raise FrameError("the frame is too short for what it should hold")
        self._shape = SHAPE.unpack_from(frame, start)

    def _take(self, size: int, what: str) -> int:
        """Return the index of the next ``size`` bytes, and skip them and their padding."""
        start = self._at
        self._at = start + size + -size % 8
        if self._at > self._header.length:
            raise FrameError(f"the frame ends within its {what}")
        return start

    def column(self, typeCode: str, count: int, what: str) -> Sequence[int]:
        """Return the next column of numbers."""
        size = count * _SIZES[typeCode]
        start = self._take(size, what)
        view = self._view[start : start + size]
        if _BIG_ENDIAN:
            return fromLittleEndian(typeCode, view.tobytes())
        return view.cast(typeCode)  # type: ignore[call-overload, no-any-return]  # one of four known formats

    def _places(self, typeCode: str, known: Container[int], what: str) -> Sequence[int]:
        """Return the next column, after a check that all its values are known."""
        column = self.column(typeCode, self._header.count, what)
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

    def batch(self, offsets: Sequence[int]) -> StoredBatch:
        """Return the records in the remaining columns."""
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
        return StoredBatch(
            offsets, times, topics, topicOf, publishers, publisherOf, dialects, contents, headers, payloads
        )

    def _finish(self) -> None:
        rest = self._header.length - self._at
        if rest and (self._header.kind != FrameKind.SPARSE_RECORDS or any(self._view[self._at :])):
            raise FrameError(f"{rest} bytes stand behind the payloads")


def _isConstant(column: Sequence[int]) -> bool:
    """Test whether all numbers of a column are equal; fast, except for columns that are nearly constant."""
    if len(column) < _FEW or column[0] != column[-1]:
        return False
    numbers = column if isinstance(column, array) else memoryview(column)  # type: ignore[arg-type]
    raw = numbers.tobytes()
    return raw == raw[: numbers.itemsize] * len(column)
