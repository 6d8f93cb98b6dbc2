"""A journal's folder as a source of records, read from outside, also while the broker writes.

Nothing behind the durable end is ever given. What is found out about segments is kept, so that asking again costs
what was added since.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.frame_scan import CompleteFrame, framesOf
from fleximq.journal.files.record_distance import Distance, DistanceCounter
from fleximq.journal.files.window import LARGE, SMALL
from fleximq.journal.format.control_frames import decodeTransaction
from fleximq.journal.format.frame import FrameKind
from fleximq.pipeline.files.folder import End, Extent, Folder
from fleximq.pipeline.files.frame_columns import PlacedFrame, offsetsAndTimes
from fleximq.pipeline.files.segment_lookup import SegmentLookup, SegmentLookups
from fleximq.pipeline.files.selection import NEVER, SLICE_BYTES, SegmentRange, Selection, Slice, Topics, divided
from fleximq.pipeline.files.slice_reader import Missing, SliceReader

_RECORDS = (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS)


class TopicBounds(NamedTuple):
    """The offset of the first record that is kept, and that of the next record that comes."""

    first: int
    next: int


class JournalFiles:
    """One journal in a folder; ``id`` is its own. Used by one thread.

    Every method raises :class:`OSError` where a file cannot be read.

    :raises JournalError: there is no journal.
    """

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.path = path
        self._folder = Folder(path, files)
        self._sketches = SegmentLookups(self._folder)
        self.id = self._folder.id

    def end(self) -> End:
        """Return where all ends that is committed."""
        return self._folder.end()

    def bounds(self) -> TopicBounds:
        """Return which offsets are kept; both are the same where there are none."""
        end = self.end()
        try:
            return TopicBounds(self._first(end), end.offset)
        finally:
            self._folder.close()

    def _first(self, end: End) -> int:
        for extent in self._folder.extents(end.position):
            window = self._folder.window(extent.base, extent.until, SMALL)
            if window is None:
                continue
            for found in framesOf(window, None, extent.base, atHead=True):
                # What a hole had is lost, but was kept.
                if not isinstance(found, CompleteFrame):
                    break
                if found.header.kind in (*_RECORDS, FrameKind.TRANSACTION, FrameKind.GAP):
                    return found.header.baseOffset
        return end.offset

    def offsetAt(self, time: int) -> int:
        """Return the offset of the first record of this time or later (microseconds since 1970), or else the next."""
        end = self.end()
        try:
            for extent, sketch in self._sketches.all(end.position):
                if sketch.highest < time:
                    continue
                piece = SegmentRange(sketch.base, sketch.beforeTime(time), extent.until, 0, end.offset)
                slice = Slice(self.path, self.id, 0, end.offset, end.position, (piece,))
                for offsets, times in SliceReader(self._folder, slice, _ignored).offsetsAndTimes():
                    later = times >= time
                    if later.any():
                        return int(offsets[later.argmax()])
            return end.offset
        finally:
            self._folder.close()

    def advance(self, start: int, end: int, records: int | None, size: int | None) -> Distance:
        """Return how far from ``start`` on so many records and so many bytes of frames go, at least one record.

        Records are those of all topics. Of a transaction's bytes all that was staged for it counts.

        :param end: go no further than this offset.
        """
        limit = self.end().position
        counter = DistanceCounter(start, end, records, size)
        try:
            for extent, sketch in self._sketches.all(limit):
                if sketch.next <= counter.reached.offset and extent.until != limit:
                    continue
                window = self._folder.window(sketch.base, extent.until, LARGE)
                if window is None:
                    continue
                for found in framesOf(window, None, sketch.before(counter.reached.offset)):
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
        """Return how many bytes have to be read for a frame's records."""
        header = found.header
        if header.kind != FrameKind.TRANSACTION:
            return header.length
        return header.length + sum(self._stagedLength(each, limit) for each in decodeTransaction(*found).staged)

    def _stagedLength(self, position: int, limit: int) -> int:
        header = self._folder.header(position, limit)
        return 0 if header is None else header.length

    def segments(self, unfinished: bool = False) -> list[Slice]:
        """Return a slice for each segment that has its end, in their order: for all but the last one.

        Where two segments are neighbours, their offsets are, too.

        :param unfinished: the last one, as far as it is committed, is returned too, where it has records.
        """
        last = self.end()
        try:
            segments = self._sketches.all(last.position)
            spans = _spans(segments, last.offset)
            found = []
            for place, (extent, sketch) in enumerate(segments if unfinished else segments[:-1]):
                first, next = spans[place]
                isLast = place == len(segments) - 1
                if isLast and sketch.highest == NEVER:
                    break
                if not isLast and segments[place + 1][1].base == sketch.end:
                    next = max(next, spans[place + 1][0])
                piece = SegmentRange(sketch.base, sketch.base, extent.until if isLast else sketch.end, first, next)
                found.append(Slice(self.path, self.id, first, next, last.position, (piece,)))
            return found
        finally:
            self._folder.close()

    def part(self, segment: Slice, start: int, end: int) -> Slice:
        """Return what of a segment that :meth:`segments` has returned has these offsets, up to before ``end``."""
        (piece,) = segment.pieces
        try:
            for _, sketch in self._sketches.all(segment.limit):
                if sketch.base == piece.base:
                    until = min(sketch.behind(end), piece.until) if end < segment.end else piece.until
                    piece = SegmentRange(piece.base, sketch.before(start), until, start, end)
            return segment._replace(start=start, end=end, pieces=(piece,))
        finally:
            self._folder.close()

    def split(
        self,
        start: int,
        end: int,
        topics: Topics | None = None,
        parts: int = 1,
        since: int = NEVER,
        sliceBytes: int = SLICE_BYTES,
    ) -> list[Slice]:
        """Divide what has offsets from ``start`` up to before ``end`` among tasks, balanced by bytes.

        Segments that have none of these topics, or nothing as late as ``since`` (microseconds since 1970), are left
        out.

        :param parts: at least so many slices, if what there is can be cut so small (64 KiB).
        :param sliceBytes: about the most that one of them reads.
        """
        if start >= end:
            return []
        last = self.end()
        try:
            pieces = []
            segments = self._sketches.all(last.position)
            for (extent, sketch), span in zip(segments, _spans(segments, last.offset), strict=True):
                if sketch.highest < since or _without(sketch, topics):
                    continue
                isLast = extent.until == last.position
                piece = _piece(sketch, start, end, extent.until if isLast else sketch.end, span)
                if piece is not None:
                    pieces.append((piece, list(zip(sketch.positions, sketch.offsets, strict=True))))
            total = sum(piece.until - piece.position for piece, _ in pieces)
            groups = divided(pieces, max(parts, -(-total // sliceBytes)))
            return [Slice(self.path, self.id, start, end, last.position, group) for group in groups]
        finally:
            self._folder.close()


def _sparse(found: CompleteFrame) -> Sequence[int]:
    """Return the offsets of a frame that has not got every one from the first to the last."""
    offsets: list[int] = next(offsetsAndTimes(found.frame, [PlacedFrame(0)]))[0].tolist()
    return offsets


def _without(sketch: SegmentLookup, topics: Topics | None) -> bool:
    """Tell whether a segment is known to have none of these topics."""
    return topics is not None and sketch.topics is not None and not any(topic in topics for topic in sketch.topics)


def _spans(segments: list[tuple[Extent, SegmentLookup]], end: int) -> list[tuple[int, int]]:
    """Return the offset with which each segment begins, and that behind it.

    Where there is no index, the frames at either end may be damaged; then it is what the neighbours leave.

    :param end: the offset of the next record of all.
    """
    behind, nexts = end, []
    for _, sketch in reversed(segments):
        nexts.append(sketch.next if sketch.topics is not None else max(sketch.next, behind))
        behind = sketch.offsets[0] if sketch.offsets else behind
    spans, before = [], 0
    for (_, sketch), next in zip(segments, reversed(nexts), strict=True):
        isSure = sketch.topics is not None and sketch.offsets
        spans.append((sketch.offsets[0] if isSure else before, next))
        before = next if sketch.topics is not None else sketch.next or before
    return spans


def _piece(sketch: SegmentLookup, start: int, end: int, until: int, span: tuple[int, int]) -> SegmentRange | None:
    """Return what of a segment has offsets in a range; None if nothing has."""
    first, next = span
    if next <= start:
        return None
    position, behind = sketch.before(start), min(sketch.behind(end), until)
    if position >= behind:
        return None
    return SegmentRange(sketch.base, position, behind, max(first, start), min(next, end))


def _ignored(missing: Missing) -> None:
    """Whoever looks for a time is told of nothing that is missing."""


def readSlice(
    slice: Slice,
    columns: Sequence[str],
    wanted: Selection,
    missing: Callable[[Missing], None],
    files: Files | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of a slice as batches of columns, in the order of their offsets.

    :param missing: told of records that should be there and are not; what it raises ends the reading.
    :raises JournalError: there is no journal any more, or another one.
    :raises OSError: a file cannot be read.
    """
    folder = Folder(slice.path, files)
    if folder.id != slice.journal:
        raise JournalError(f"{slice.path} holds the journal {folder.id} now, not {slice.journal} any more")
    yield from SliceReader(folder, slice, missing).batches(columns, wanted)
