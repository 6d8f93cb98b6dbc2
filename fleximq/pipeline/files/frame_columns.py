"""Decodes checked frames of the journal (docs/reference/journal-format.rst, "Records") into Arrow columns, without work
in Python for single records. This file is hot: a record of 100 bytes costs 0.07 us in frames of 1,000 records or more,
0.15 us in frames of 20 and 1 us in a frame of its own, all columns, on one core (docs/reference/pipeline.rst, "How fast
it is").
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleximq.journal.format.frame import HEADER_BYTES, MAX_FRAME_BYTES, FrameError, FrameKind
from fleximq.pipeline.files.record_headers import headersColumn, keyColumn
from fleximq.pipeline.files.schema import SCHEMA, schemaOf
from fleximq.pipeline.files.selection import FOREVER, NEVER, Selection
from fleximq.values.records import DIALECTS, OTHER_DIALECT

#: A batch ends when its frames have so many bytes or records. Each batch costs half a millisecond to make and hand
#: over, and larger ones exceed the processor's cache.
_BYTES, _RECORDS = 4 << 20, 40_000
_SHAPE_BYTES = 32
#: Frames with on average at least so many records are copied column by column, others record by record.
_LONG = 32
#: Columns with a single text of at most so many letters are made with so many records, and then sliced.
_SHORT, _SAME = 40, _RECORDS
_MAX_COLUMN_BYTES = 0x7FFFFFFF
_DISORDER = "the ends in a frame do not ascend"
_NAMES = {code: name for name, code in DIALECTS.items()}

#: The kinds of frames with records of their own.
RECORDS = (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS)
Numbers = npt.NDArray[Any]


class PlacedFrame(NamedTuple):
    """A complete frame with records: its start in a buffer, and the offset of its first record; -1: its header has it,
    which a STAGED frame's does not.
    """

    at: int
    first: int = -1


def decodeFrames(
    buffer: Any, places: Iterable[PlacedFrame], columns: Sequence[str], journal: str, selection: Selection
) -> Iterator[pa.RecordBatch]:
    """Yield the selected records of frames, in order, as batches of at most 4 MiB and 40,000 records, or one larger
    frame, never empty. The batches reference the buffer, in which frames begin at multiples of 8. Raises FrameError if
    a frame contradicts itself, or has no records.
    """
    schema = schemaOf(columns)
    for batch in _frameBatches(buffer, list(places)):
        rows = batch.select(selection)
        if rows is None or len(rows):
            yield pa.record_batch(batch.columns(columns, journal, rows), schema=schema)


def offsetsAndTimes(buffer: Any, places: Iterable[PlacedFrame]) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield offsets and times (microseconds since 1970) of the frames' records, a batch at a time."""
    for batch in _frameBatches(buffer, list(places)):
        yield batch.offsets, batch.times


class _Views:
    """A buffer as numbers of each size."""

    def __init__(self, buffer: Any) -> None:
        size = len(buffer)
        self.arrow = pa.py_buffer(buffer)
        self.u8 = np.frombuffer(buffer, np.uint8)
        self.u16 = np.frombuffer(buffer, "<u2", size // 2)
        self.u32 = np.frombuffer(buffer, "<u4", size // 4)
        self.i32 = np.frombuffer(buffer, "<i4", size // 4)
        self.i64 = np.frombuffer(buffer, "<i8", size // 8)


def _frameBatches(buffer: Any, places: Sequence[PlacedFrame]) -> Iterator["_FrameBatch"]:
    if not places:
        return
    views = _Views(buffer)
    at, first = np.array(places, np.int64).T
    sizes, counts = (np.cumsum(views.u32[at // 4 + place].astype(np.int64)) for place in (2, 5))
    start = size = count = 0
    while start < len(at):
        full = np.searchsorted(sizes, size + _BYTES, "right"), np.searchsorted(counts, count + _RECORDS, "right")
        stop = max(start + 1, int(min(full)))
        size, count = int(sizes[stop - 1]), int(counts[stop - 1])
        yield _FrameBatch(views, at[start:stop], first[start:stop])
        start = stop


class _FrameBatch:
    """The columns of some frames; all indexes are those of bytes in the buffer."""

    def __init__(self, views: _Views, at: Numbers, first: Numbers) -> None:
        self._views = views
        self._counts = counts = views.u32[at // 4 + 5].astype(np.int64)
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        self._number = int(self._ends[-1])
        kind = views.u8[at + 6]
        staged = kind == FrameKind.STAGED
        sparse = kind == FrameKind.SPARSE_RECORDS
        if not (staged | sparse | (kind == FrameKind.RECORDS)).all():
            raise FrameError("a frame without records is none to be read")
        shape = at + HEADER_BYTES
        shape = np.where(staged, shape + 8 + _padded(views.u32[shape // 4].astype(np.int64)), shape)
        self._layOut(shape, np.where(sparse, 8 * counts, 0), at + views.u32[at // 4 + 2])
        first = np.where(first < 0, views.i64[at // 8 + 5], first)
        numbers = np.arange(self._number)
        if (first[1:] == first[:-1] + counts[:-1]).all():
            self.offsets = numbers + first[0]
        else:
            self.offsets = np.repeat(first - self._starts, counts) + numbers
        if sparse.any():
            rows = np.repeat(sparse, counts)
            place = np.repeat((shape + _SHAPE_BYTES) // 8 - self._starts, counts) + numbers
            self.offsets[rows] = views.i64[place[rows]]
        self.times = self._column(views.i64, 8, self._timesAt)

    def _layOut(self, shape: Numbers, offsetsSize: Numbers, end: Numbers) -> None:
        views, counts = self._views, self._counts
        if (shape + _SHAPE_BYTES > end).any():
            raise FrameError("the frame is too short for its content")
        numbers = [views.u32[shape // 4 + place].astype(np.int64) for place in range(4)]
        topics, topicBytes, publishers, publisherBytes = numbers
        headerBytes, payloadBytes = views.i64[shape // 8 + 2], views.i64[shape // 8 + 3]
        numbers = [offsetsSize, *(width * counts for width in (8, 4, 4, 2, 2))]
        numbers += [4 * (counts + 1), 4 * (counts + 1), 4 * (topics + 1), topicBytes]
        numbers += [4 * publishers, 4 * (publishers + 1), publisherBytes, headerBytes, payloadBytes]
        sizes = np.array(numbers)
        # None exceeds the size of a frame, so their sums cannot overflow.
        if sizes.min() < 0 or sizes.max() > MAX_FRAME_BYTES:
            raise FrameError("a column is larger than a frame")
        ends = shape + _SHAPE_BYTES + np.cumsum(_padded(sizes), axis=0)
        if (ends[-1] > end).any():
            raise FrameError("the frame ends within its columns")
        self._timesAt, self._topicOfAt, self._publisherOfAt, self._dialectsAt, self._contentsAt = ends[:5]
        self._topics, self._publishers, self._publisherIdsAt = topics, publishers, ends[9]
        # Of strings: where their ends and they themselves begin, and their bytes.
        self._headers, self._payloads = (ends[5], ends[12], headerBytes), (ends[6], ends[13], payloadBytes)
        self._topicStrings = ends[7], ends[8], topicBytes
        self._publisherStrings = ends[10], ends[11], publisherBytes

    def _column(self, view: Numbers, size: int, at: Numbers) -> Numbers:
        return _concatenated(view, at // size, self._counts, self._starts)

    def select(self, selection: Selection) -> Numbers | None:
        """Return the indexes of the selected records, None for all."""
        conditions = []
        offsets, times = self.offsets, self.times
        if len(offsets) and (offsets.min() < selection.start or offsets.max() >= selection.end):
            conditions += [offsets >= selection.start, offsets < selection.end]
        if selection.since > NEVER:
            conditions.append(times >= selection.since)
        if selection.until < FOREVER:
            conditions.append(times < selection.until)
        topics = self._names(*self._topicStrings, self._topics)
        those = np.array([name in selection.topics for name in topics.dictionary.to_pylist()], bool)
        if not those.all():
            entries = self._entries(self._topicOfAt, self._topics)
            conditions.append(those[topics.indices.to_numpy()][entries])
        if not conditions:
            return None
        rows = np.flatnonzero(np.logical_and.reduce(conditions))
        return None if len(rows) == self._number else rows

    def columns(self, names: Sequence[str], journal: str, rows: Numbers | None) -> list[pa.Array]:
        number = self._number if rows is None else len(rows)
        headers: pa.Array | None = None
        found = []
        for name in names:
            if name in ("headers", "key") and not self._headers[2].any():
                found.append(pa.nulls(number, SCHEMA.field(name).type))
            elif name in ("headers", "key"):
                headers = self._blobs(*self._headers, rows) if headers is None else headers
                found.append(headersColumn(headers) if name == "headers" else keyColumn(headers))
            elif name == "value":
                found.append(self._blobs(*self._payloads, rows))
            elif name == "journal":
                found.append(_same(journal, number))
            elif name == "topic":
                topics = self._names(*self._topicStrings, self._topics)
                entries = self._entries(self._topicOfAt, self._topics)
                if len(topics.dictionary) == 1:
                    found.append(_same(topics.dictionary[0].as_py(), number))
                else:
                    found.append(topics.dictionary_decode().take(pa.array(_at(entries, rows))))
            elif name == "dialect":
                found.append(self._dialects(rows))
            elif name == "publisher":
                known = self._publishers
                ids = _concatenated(self._views.u32, self._publisherIdsAt // 4, known, np.cumsum(known) - known)
                each = ids.astype(np.int64)[self._entries(self._publisherOfAt, known)]
                found.append(pa.array(_at(each, rows)))
            elif name == "content":
                codes = self._column(self._views.u16, 2, self._contentsAt)
                found.append(pa.array(_at(codes, rows).astype(np.int32)))
            elif name == "offset":
                found.append(pa.array(_at(self.offsets, rows)))
            else:
                found.append(pa.array(_at(self.times, rows)).cast(pa.timestamp("us", tz="UTC")))
        return found

    def _dialects(self, rows: Numbers | None) -> pa.Array:
        """Return the dialects of the records with these indexes; a plug-in's is in its publisher's name."""
        codes = self._column(self._views.u16, 2, self._dialectsAt)
        if len(codes) and codes[0] != OTHER_DIALECT and (codes == codes[0]).all():
            name = _NAMES.get(int(codes[0]), str(codes[0]))
            return _same(name, self._number if rows is None else len(rows))
        known, which = np.unique(codes, return_inverse=True)
        names = [_NAMES.get(int(code), str(code)) for code in known]
        if OTHER_DIALECT in known:
            publishers = self._names(*self._publisherStrings, self._publishers)
            of = publishers.indices.to_numpy()[self._entries(self._publisherOfAt, self._publishers)]
            which = np.where(codes == OTHER_DIALECT, len(names) + of, which)
            names += [name.partition("-")[0] for name in publishers.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(pa.array(_at(which, rows)))

    def _entries(self, at: Numbers, number: Numbers) -> Numbers:
        """Return the list entry of each record, as an index into the concatenated lists, which have these lengths."""
        of = self._column(self._views.u32, 4, at)
        ends = np.cumsum(number)
        entries: Numbers = np.repeat(ends - number, self._counts) + of
        if (entries >= np.repeat(ends, self._counts)).any():
            raise FrameError("a record names a topic or a publisher that its frame has not")
        return entries

    def _names(self, endsAt: Numbers, namesAt: Numbers, size: Numbers, number: Numbers) -> pa.DictionaryArray:
        starts, ends = _spans(self._views.i32, endsAt, namesAt, size, number)
        encoded = _cut(self._views.arrow, starts, ends).dictionary_encode()
        names = [name.decode("utf-8", "replace") for name in encoded.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(names, pa.string()))

    def _blobs(self, endsAt: Numbers, blobsAt: Numbers, size: Numbers, rows: Numbers | None) -> pa.Array:
        """Return headers or payloads of the records with these indexes."""
        if rows is None and self._number >= _LONG * len(blobsAt) and size.sum() <= _MAX_COLUMN_BYTES:
            return self._allBlobs(endsAt, blobsAt, size)
        starts, ends = _spans(self._views.i32, endsAt, blobsAt, size, self._counts)
        return _cut(self._views.arrow, _at(starts, rows), _at(ends, rows))

    def _allBlobs(self, endsAt: Numbers, blobsAt: Numbers, size: Numbers) -> pa.Array:
        """Return the blobs of all records; each frame has them in Arrow's own layout."""
        views, counts, places = self._views, self._counts, endsAt // 4
        behind = np.cumsum(size)
        offsets = np.empty(self._number + 1, np.int32)
        offsets[0] = 0
        np.add(
            _concatenated(views.i32, places + 1, counts, self._starts),
            np.repeat((behind - size).astype(np.int32), counts),
            out=offsets[1:],
        )
        # If these are right, ends that ascend over all frames also ascend within each.
        right = not views.i32[places].any() and (views.i32[places + counts] == size).all()
        if not right or (offsets[1:] < offsets[:-1]).any():
            raise FrameError(_DISORDER)
        blobs = _concatenated(views.u8, blobsAt, size, behind - size)
        return pa.Array.from_buffers(pa.binary(), self._number, [None, pa.py_buffer(offsets), pa.py_buffer(blobs)])


def _concatenated(view: Numbers, at: Numbers, counts: Numbers, starts: Numbers) -> Numbers:
    """Return slices of a view, so many numbers from each index, concatenated; each begins there in the result."""
    total = int(starts[-1] + counts[-1])
    if total >= _LONG * len(at):
        pieces = [view[start : start + count] for start, count in zip(at.tolist(), counts.tolist(), strict=True)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    joined: Numbers = view[np.repeat(at - starts, counts) + np.arange(total)]
    return joined


def _padded(size: Numbers) -> Numbers:
    padded: Numbers = (size + 7) & ~7
    return padded


def _at(column: Numbers, rows: Numbers | None) -> Numbers:
    picked: Numbers = column if rows is None else column[rows]
    return picked


def _same(text: str, number: int) -> pa.Array:
    if number <= _SAME and len(text) <= _SHORT:
        return _repeated(text).slice(0, number)
    return pa.repeat(pa.scalar(text, pa.string()), number)


@lru_cache(8)
def _repeated(text: str) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), _SAME)


def _spans(view: Numbers, endsAt: Numbers, blobsAt: Numbers, size: Numbers, number: Numbers) -> tuple[Numbers, Numbers]:
    """Return the starts and ends of the concatenated strings of each frame, from its column of ends."""
    first = np.cumsum(number) - number
    base = np.repeat(blobsAt, number)
    starts = base + _concatenated(view, endsAt // 4, number, first)
    ends = base + _concatenated(view, endsAt // 4 + 1, number, first)
    if (starts < base).any() or (starts > ends).any() or (ends > np.repeat(blobsAt + size, number)).any():
        raise FrameError(_DISORDER)
    return starts, ends


def _cut(buffer: pa.Buffer, starts: Numbers, ends: Numbers) -> pa.Array:
    """Return strings at any places of a buffer as one array: Arrow delimits a string by two neighbouring offsets."""
    if not len(starts):
        return pa.array([], pa.binary())
    low = int(starts.min())
    if int(ends.max()) - low > _MAX_COLUMN_BYTES:
        raise FrameError("frames that are read together are too far apart")
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts - low
    offsets[1::2] = ends - low
    both = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), buffer.slice(low)])
    return both.take(pa.array(np.arange(0, len(offsets), 2)))
