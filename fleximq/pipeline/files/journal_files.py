"""A journal's folder as a source of records, also while the broker writes.

Only durable records are read. Lookups of segments are cached, so a repeated call costs only the added frames.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import STREAM
from fleximq.journal.files.frame_scan import LARGE, SMALL, CompleteFrame, framesOf
from fleximq.journal.files.record_distance import Distance, DistanceCounter
from fleximq.journal.format.control_frames import decodeTransaction
from fleximq.journal.format.frame import FrameKind
from fleximq.pipeline.files.folder import End, Extent, Folder
from fleximq.pipeline.files.frame_columns import PlacedFrame, offsetsAndTimes
from fleximq.pipeline.files.segment_lookup import SegmentLookup, SegmentLookups
from fleximq.pipeline.files.selection import NEVER, SLICE_BYTES, SegmentRange, Selection, Slice, Topics, divided
from fleximq.pipeline.files.slice_reader import Missing, SliceReader

_RECORDS = (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS)


class OffsetBounds(NamedTuple):
    """The offset of the first retained record, and that of the next record."""

    first: int
    next: int


class JournalFiles:
    """The journal in one folder, which has the ``id``; for one thread. Raises JournalError if the folder is no journal;
    every method raises OSError if a file cannot be read.
    """

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.path = path
        self._folder = Folder(path, files)
        self._lookups = SegmentLookups(self._folder)
        self.id = self._folder.id

    def end(self) -> End:
        """Return the durable end of the journal."""
        return self._folder.end()

    @property
    def mayLag(self) -> bool:
        """Whether this is the copy of a cluster's node, which may have less than another one."""
        return os.path.exists(f"{self.path}/{STREAM}")

    def bounds(self) -> OffsetBounds:
        """Return the first retained offset and the next one; both are equal if the journal is empty."""
        end = self.end()
        try:
            return OffsetBounds(self._first(end), end.offset)
        finally:
            self._folder.close()

    def _first(self, end: End) -> int:
        for extent in self._folder.extents(end.position):
            window = self._folder.window(extent.base, extent.until, SMALL)
            if window is None:
                continue
            for found in framesOf(window, None, extent.base, atHead=True):
                # Records in a gap are lost, but were within retention.
                if not isinstance(found, CompleteFrame):
                    break
                if found.header.kind in (*_RECORDS, FrameKind.TRANSACTION, FrameKind.GAP):
                    return found.header.baseOffset
        return end.offset

    def offsetAt(self, time: int) -> int:
        """Return the offset of the first record of this time or later (microseconds since 1970), or else the next."""
        end = self.end()
        try:
            for extent, lookup in self._lookups.all(end.position):
                if lookup.highest < time:
                    continue
                segmentRange = SegmentRange(lookup.base, lookup.positionBeforeTime(time), extent.until, 0, end.offset)
                slice = Slice(self.path, self.id, 0, end.offset, end.position, (segmentRange,))
                for offsets, times in SliceReader(self._folder, slice, _ignored).offsetsAndTimes():
                    later = times >= time
                    if later.any():
                        return int(offsets[later.argmax()])
            return end.offset
        finally:
            self._folder.close()

    def advance(self, start: int, end: int, records: int | None, size: int | None) -> Distance:
        """Return the offset, at most ``end``, after so many records and bytes of frames from ``start`` on, at least one
        record. Counts records of all topics; of a transaction, the bytes of all its staged frames.
        """
        limit = self.end().position
        counter = DistanceCounter(start, end, records, size)
        try:
            for extent, lookup in self._lookups.all(limit):
                if lookup.next <= counter.reached.offset and extent.until != limit:
                    continue
                window = self._folder.window(lookup.base, extent.until, LARGE)
                if window is None:
                    continue
                for found in framesOf(window, None, lookup.positionBefore(counter.reached.offset)):
                    if not isinstance(found, CompleteFrame):
                        continue
                    if found.header.baseOffset >= end:
                        return counter.reached._replace(offset=end)
                    offsets = counter.offsetsOf(found.header, partial(_sparse, found))
                    if offsets and counter.take(offsets, found.header.count, self._length(found, limit)):
                        return counter.reached
            return counter.reached._replace(offset=max(start, end))
        finally:
            self._folder.close()

    def _length(self, found: CompleteFrame, limit: int) -> int:
        """Return the number of bytes to read for a frame's records."""
        staged = decodeTransaction(*found).staged if found.header.kind == FrameKind.TRANSACTION else ()
        headers = [found.header, *(self._folder.header(each, limit) for each in staged)]
        return sum(header.length for header in headers if header is not None)

    def segments(self, unfinished: bool = False) -> list[Slice]:
        """Return a slice for each finished segment, in order and with consecutive offsets: all but the last one. With
        ``unfinished`` the committed part of that is returned too, if it has records.
        """
        last = self.end()
        try:
            segments = self._lookups.all(last.position)
            spans = _spans(segments, last.offset)
            found = []
            for place, (extent, lookup) in enumerate(segments if unfinished else segments[:-1]):
                first, next = spans[place]
                isLast = place == len(segments) - 1
                if isLast and lookup.highest == NEVER:
                    break
                if not isLast and segments[place + 1][1].base == lookup.end:
                    next = max(next, spans[place + 1][0])
                segmentRange = SegmentRange(
                    lookup.base, lookup.base, extent.until if isLast else lookup.end, first, next
                )
                found.append(Slice(self.path, self.id, first, next, last.position, (segmentRange,)))
            return found
        finally:
            self._folder.close()

    def part(self, segment: Slice, start: int, end: int) -> Slice:
        """Return the part of a slice from :meth:`segments` with these offsets, up to before ``end``."""
        (segmentRange,) = segment.pieces
        try:
            for _, lookup in self._lookups.all(segment.limit):
                if lookup.base == segmentRange.base:
                    until = (
                        min(lookup.positionAfter(end), segmentRange.until) if end < segment.end else segmentRange.until
                    )
                    segmentRange = SegmentRange(segmentRange.base, lookup.positionBefore(start), until, start, end)
            return segment._replace(start=start, end=end, pieces=(segmentRange,))
        finally:
            self._folder.close()

    def slices(
        self,
        start: int,
        end: int,
        topics: Topics | None = None,
        parts: int = 1,
        since: int = NEVER,
        sliceBytes: int = SLICE_BYTES,
    ) -> list[Slice]:
        """Divide the records with offsets from ``start`` up to before ``end`` among tasks, balanced by bytes: into at
        least so many ``parts`` of 64 KiB or more, and about ``sliceBytes`` at most. Skips segments that have none of
        these topics or are older than ``since`` (microseconds since 1970).
        """
        if start >= end:
            return []
        last = self.end()
        try:
            pieces = []
            segments = self._lookups.all(last.position)
            for (extent, lookup), span in zip(segments, _spans(segments, last.offset), strict=True):
                if lookup.highest < since or _without(lookup, topics):
                    continue
                isLast = extent.until == last.position
                segmentRange = _rangeOf(lookup, start, end, extent.until if isLast else lookup.end, span)
                if segmentRange is not None:
                    pieces.append((segmentRange, list(zip(lookup.positions, lookup.offsets, strict=True))))
            total = sum(segmentRange.until - segmentRange.position for segmentRange, _ in pieces)
            groups = divided(pieces, max(parts, -(-total // sliceBytes)))
            return [Slice(self.path, self.id, start, end, last.position, group) for group in groups]
        finally:
            self._folder.close()


def _sparse(found: CompleteFrame) -> Sequence[int]:
    """Return the offsets of a frame that lacks some between the first and the last."""
    offsets: list[int] = next(offsetsAndTimes(found.frame, [PlacedFrame(0)]))[0].tolist()
    return offsets


def _without(lookup: SegmentLookup, topics: Topics | None) -> bool:
    """Tell whether the lookup proves that a segment has none of these topics."""
    return topics is not None and lookup.topics is not None and not any(topic in topics for topic in lookup.topics)


def _spans(segments: list[tuple[Extent, SegmentLookup]], end: int) -> list[tuple[int, int]]:
    """Return the first offset of each segment, and the offset after its last; ``end`` is the journal's next offset.
    Without an index the frames at either end may be damaged; then the neighbours delimit the segment.
    """
    behind, nexts = end, []
    for _, lookup in reversed(segments):
        nexts.append(lookup.next if lookup.topics is not None else max(lookup.next, behind))
        behind = lookup.offsets[0] if lookup.offsets else behind
    spans, before = [], 0
    for (_, lookup), next in zip(segments, reversed(nexts), strict=True):
        isSure = lookup.topics is not None and lookup.offsets
        spans.append((lookup.offsets[0] if isSure else before, next))
        before = next if lookup.topics is not None else lookup.next or before
    return spans


def _rangeOf(lookup: SegmentLookup, start: int, end: int, until: int, span: tuple[int, int]) -> SegmentRange | None:
    """Return the part of a segment with offsets in a range, None if it is empty."""
    first, next = span
    if next <= start:
        return None
    position, behind = lookup.positionBefore(start), min(lookup.positionAfter(end), until)
    if position >= behind:
        return None
    return SegmentRange(lookup.base, position, behind, max(first, start), min(next, end))


def _ignored(missing: Missing) -> None:
    """Ignore missing records: a search by time does not report them."""


def readSlice(
    slice: Slice,
    columns: Sequence[str],
    selection: Selection,
    missing: Callable[[Missing], None],
    files: Files | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected records of a slice as batches of columns, ordered by offset. Exceptions of ``missing`` end the
    read. Raises JournalError if the journal is gone, or is another one, and OSError if a file cannot be read.
    """
    folder = Folder(slice.path, files)
    if folder.id != slice.journal:
        raise JournalError(f"{slice.path} holds the journal {folder.id} now, not {slice.journal} any more")
    yield from SliceReader(folder, slice, missing).batches(columns, selection)
