"""A journal's folder as a source of its durable records, also while the broker writes. Lookups of segments are cached,
so a repeated call costs only the added frames.
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
from fleximq.pipeline.files.folder import End, Folder
from fleximq.pipeline.files.frame_columns import RECORDS, PlacedFrame, offsetsAndTimes
from fleximq.pipeline.files.segment_lookup import SegmentLookup, SegmentLookups
from fleximq.pipeline.files.selection import NEVER, SLICE_BYTES, SegmentRange, Selection, Slice, Topics, divided
from fleximq.pipeline.files.slice_reader import Missing, SliceReader


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
        with self._folder:
            end = self.end()
            for base, until in self._folder.extents(end.position):
                window = self._folder.window(base, until, SMALL)
                for found in framesOf(window, None, base, atHead=True) if window is not None else ():
                    if not isinstance(found, CompleteFrame):
                        break
                    # Records in a gap are lost, but were within retention.
                    if found.header.kind in (*RECORDS, FrameKind.TRANSACTION, FrameKind.GAP):
                        return OffsetBounds(found.header.baseOffset, end.offset)
            return OffsetBounds(end.offset, end.offset)

    def offsetAt(self, time: int) -> int:
        """Return the offset of the first record of this time or later (microseconds since 1970), or else the next."""
        with self._folder:
            end = self.end()
            for segment, until, _ in self._lookups.all(end.position):
                if segment.highest < time:
                    continue
                piece = SegmentRange(segment.base, segment.beforeTime(time), until, 0, end.offset)
                part = Slice(self.path, self.id, 0, end.offset, end.position, (piece,))
                # A search does not report missing records.
                for offsets, times in SliceReader(self._folder, part, lambda missing: None).offsetsAndTimes():
                    later = times >= time
                    if later.any():
                        return int(offsets[later.argmax()])
            return end.offset

    def advance(self, start: int, end: int, records: int | None, size: int | None) -> Distance:
        """Return the offset, at most ``end``, after so many records and bytes of frames from ``start`` on, at least one
        record. Counts records of all topics; of a transaction, the bytes of all its staged frames.
        """
        with self._folder:
            limit = self.end().position
            counter = DistanceCounter(start, end, records, size)
            for segment, until, _ in self._lookups.all(limit):
                if segment.next <= counter.reached.offset and until != limit:
                    continue
                window = self._folder.window(segment.base, until, LARGE)
                if window is None:
                    continue
                for found in framesOf(window, None, segment.before(counter.reached.offset)):
                    if not isinstance(found, CompleteFrame):
                        continue
                    if found.header.baseOffset >= end:
                        return counter.reached._replace(offset=end)
                    offsets = counter.offsetsOf(found.header, partial(_sparse, found))
                    if offsets and counter.take(offsets, found.header.count, self._length(found, limit)):
                        return counter.reached
            return counter.reached._replace(offset=max(start, end))

    def _length(self, found: CompleteFrame, limit: int) -> int:
        """Return the number of bytes to read for a frame's records."""
        staged = decodeTransaction(*found).staged if found.header.kind == FrameKind.TRANSACTION else ()
        headers = [found.header, *(self._folder.header(each, limit) for each in staged)]
        return sum(header.length for header in headers if header is not None)

    def topics(self) -> set[str]:
        """Return the names of all topics: those of finished segments by their indexes, of others by their records."""
        found: set[str] = set()
        with self._folder:
            last = self.end()
            for segment, until, known in self._lookups.all(last.position):
                if known is not None:
                    found.update(known)
                    continue
                piece = SegmentRange(segment.base, segment.base, until, 0, last.offset)
                part = Slice(self.path, self.id, 0, last.offset, last.position, (piece,))
                for batch in SliceReader(self._folder, part, lambda missing: None).batches(["topic"], Selection()):
                    found.update(batch.column("topic").unique().to_pylist())
        return found

    def segments(self, unfinished: bool = False) -> list[Slice]:
        """Return a slice for each finished segment, in order and with consecutive offsets: all but the last one. With
        ``unfinished`` the committed part of that is returned too, if it has records.
        """
        with self._folder:
            last = self.end()
            lookups = self._lookups.all(last.position)
            spans = _spans(lookups, last.offset)
            found = []
            for place, (segment, until, _) in enumerate(lookups if unfinished else lookups[:-1]):
                first, nextOffset = spans[place]
                isLast = place == len(lookups) - 1
                if isLast and segment.highest == NEVER:
                    break
                if not isLast and lookups[place + 1].segment.base == segment.end:
                    nextOffset = max(nextOffset, spans[place + 1][0])
                piece = SegmentRange(segment.base, segment.base, until if isLast else segment.end, first, nextOffset)
                found.append(Slice(self.path, self.id, first, nextOffset, last.position, (piece,)))
            return found

    def part(self, segment: Slice, start: int, end: int) -> Slice:
        """Return the part of a slice from :meth:`segments` with these offsets, up to before ``end``."""
        (piece,) = segment.pieces
        with self._folder:
            for lookup in self._lookups.all(segment.limit):
                if lookup.segment.base == piece.base:
                    until = min(lookup.positionAfter(end), piece.until) if end < segment.end else piece.until
                    piece = SegmentRange(piece.base, lookup.segment.before(start), until, start, end)
            return segment._replace(start=start, end=end, pieces=(piece,))

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
        with self._folder:
            last = self.end()
            pieces = []
            lookups = self._lookups.all(last.position)
            for lookup, (first, nextOffset) in zip(lookups, _spans(lookups, last.offset), strict=True):
                segment, limit, known = lookup
                isWithout = topics is not None and known is not None and not any(topic in topics for topic in known)
                if segment.highest < since or isWithout or nextOffset <= start:
                    continue
                limit = limit if limit == last.position else segment.end
                position, until = segment.before(start), min(lookup.positionAfter(end), limit)
                if position < until:
                    piece = SegmentRange(segment.base, position, until, max(first, start), min(nextOffset, end))
                    pieces.append((piece, list(zip(segment.positions, segment.offsets, strict=True))))
            total = sum(piece.until - piece.position for piece, _ in pieces)
            groups = divided(pieces, max(parts, -(-total // sliceBytes)))
            return [Slice(self.path, self.id, start, end, last.position, group) for group in groups]


def _sparse(found: CompleteFrame) -> Sequence[int]:
    """Return the offsets of a frame that lacks some between the first and the last."""
    offsets: list[int] = next(offsetsAndTimes(found.frame, [PlacedFrame(0)]))[0].tolist()
    return offsets


def _spans(lookups: list[SegmentLookup], end: int) -> list[tuple[int, int]]:
    """Return the first offset of each segment, and the offset after its last; ``end`` is the journal's next offset.
    Without an index the frames at either end may be damaged; then the neighbours delimit the segment.
    """
    behind, nexts = end, []
    for segment, _, topics in reversed(lookups):
        nexts.append(segment.next if topics is not None else max(segment.next, behind))
        behind = segment.offsets[0] if segment.offsets else behind
    spans, before = [], 0
    for (segment, _, topics), nextOffset in zip(lookups, reversed(nexts), strict=True):
        spans.append((segment.offsets[0] if topics is not None and segment.offsets else before, nextOffset))
        before = nextOffset if topics is not None else segment.next or before
    return spans


def readSlice(
    part: Slice,
    columns: Sequence[str],
    selection: Selection,
    missing: Callable[[Missing], None],
    files: Files | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected records of a slice as batches of columns, ordered by offset. Exceptions of ``missing`` end the
    read. Raises JournalError if the journal is gone, or is another one, and OSError if a file cannot be read.
    """
    folder = Folder(part.path, files)
    if folder.id != part.journal:
        raise JournalError(f"{part.path} holds the journal {folder.id} now, not {part.journal} any more")
    yield from SliceReader(folder, part, missing).batches(columns, selection)
