"""Finds the offset after a number of records or bytes. Gaps and removed records do not count."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from fleximq.journal.files.frame_scan import Window, nextFrame
from fleximq.journal.files.open_segments import OpenSegments
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import decodeRemoved, decodeTransaction
from fleximq.journal.format.frame import HEADER_BYTES, FrameError, FrameHeader, FrameKind, readHeader
from fleximq.journal.format.record_columns import decodeRecords

#: After this number of frames, with at least one record, the search ends; the next call continues.
_MOST_FRAMES = 50_000
#: Bytes that are read at once for a header.
_NEAR = 16 << 10


class Distance(NamedTuple):
    """The result of a search: all before ``offset``, with the number of records and bytes."""

    offset: int
    records: int
    bytes: int


class DistanceCounter:
    """Counts frames in order, at least one record; ``reached`` is the result so far.

    :param end: records from this offset on do not count.
    :param records: the maximum number of records; None: unlimited.
    :param size: the maximum number of bytes of frames; None: unlimited.
    """

    def __init__(self, start: int, end: int, records: int | None, size: int | None) -> None:
        self.reached = Distance(start, 0, 0)
        self._end = end
        self._records = records
        self._size = size

    def offsetsOf(self, header: FrameHeader, sparse: Callable[[], Sequence[int]]) -> Sequence[int]:
        """Return the offsets that may count; ``sparse`` returns all those of a SPARSE_RECORDS frame."""
        start, end = self.reached.offset, self._end
        if header.kind == FrameKind.SPARSE_RECORDS:
            return [offset for offset in sparse() if start <= offset < end]
        if header.kind in (FrameKind.RECORDS, FrameKind.TRANSACTION):
            return range(max(header.baseOffset, start), min(header.baseOffset + header.count, end))
        return ()

    def take(self, offsets: Sequence[int], count: int, length: int) -> bool:
        """Count the records at these offsets of a frame with ``count`` records; True if a limit is reached. ``length``:
        the bytes that have to be read for all of them.
        """
        offset, records, size = self.reached
        taken = len(offsets)
        # A frame in two parts is read twice, but its bytes are divided between them.
        length = length * taken // count
        if self._size is not None and records and size + length > self._size:
            return True
        if self._records is not None and records + taken > self._records:
            room = max(self._records - records, 0 if records else 1)
            self.reached = Distance(offsets[room], records + room, size + length * room // taken)
            return True
        self.reached = Distance(offsets[-1] + 1, records + taken, size + length)
        return False

    def takeAll(self, segment: Segment) -> bool:
        """Count a sealed segment as a unit; False, without counting it, if that is impossible. Bytes need every
        frame, since records staged here may be committed elsewhere.
        """
        records = segment.records
        if records and (self._size is not None or segment.first < self.reached.offset or segment.next > self._end):
            return False
        if self._records is not None and self.reached.records + records > self._records:
            return False
        offset = segment.next if records else self.reached.offset
        self.reached = Distance(offset, self.reached.records + records, self.reached.bytes + segment.bytes)
        return True


def advance(
    segments: SegmentTable, opened: OpenSegments, start: int, end: int, records: int | None, size: int | None
) -> Distance:
    """Return the end of a range of at most so many records and bytes, or an earlier one if it has many small frames.
    Headers are not verified: the reader of the range checks the frames. Raises OSError if a file cannot be read.
    """
    counter = DistanceCounter(start, end, records, size)
    looked = 0
    allSegments = segments.all
    for segment in allSegments[segments.ofOffset(start) :]:
        if segment is not allSegments[-1] and counter.takeAll(segment):
            continue
        window = opened.window(segment, _NEAR)
        for header in _headers(window, segment.id, segment.before(counter.reached.offset)):
            if header.baseOffset >= end:
                return counter.reached._replace(offset=end)
            offsets = counter.offsetsOf(header, partial(_sparse, window, header))
            if offsets and counter.take(offsets, header.count, _length(segments, opened, window, header)):
                return counter.reached
            looked += 1
            if looked >= _MOST_FRAMES and counter.reached.records:
                return counter.reached
    return counter.reached._replace(offset=max(start, end))


def _headers(window: Window, segment: int, start: int) -> Iterator[FrameHeader]:
    """Yield the headers of the frames from a position, and skip damage."""
    position = start
    while position < window.end:
        try:
            header = readHeader(window.at(position, HEADER_BYTES))
            if (header.position, header.segment) != (position, segment) or position + header.length > window.end:
                raise FrameError("it stands elsewhere")
            until = position + header.length
            if header.kind == FrameKind.REMOVED:
                until = max(until, decodeRemoved(header, window.at(position, header.length)))
        except FrameError:
            found = nextFrame(window, position, segment)
            position = window.end if found is None else found
        else:
            yield header
            position = until


def _sparse(window: Window, header: FrameHeader) -> Sequence[int]:
    try:
        return decodeRecords(header, window.at(header.position, header.length)).offsets
    except FrameError:
        return ()


def _length(segments: SegmentTable, opened: OpenSegments, window: Window, header: FrameHeader) -> int:
    """Return the bytes that have to be read for a frame's records, for a transaction including its staged frames."""
    if header.kind != FrameKind.TRANSACTION:
        return header.length
    try:
        staged = decodeTransaction(header, window.at(header.position, header.length)).staged
    except FrameError:
        return header.length
    return header.length + sum(_stagedLength(segments, opened, position) for position in staged)


def _stagedLength(segments: SegmentTable, opened: OpenSegments, position: int) -> int:
    segment = segments.all[segments.ofPosition(position)]
    try:
        header = readHeader(opened.window(segment, _NEAR).at(position, HEADER_BYTES))
    except FrameError:
        return 0
    return header.length if header.position == position else 0
