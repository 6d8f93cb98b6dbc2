"""Maps offsets and times to positions within a segment, by the index that the broker writes, or else by a scan."""

from bisect import bisect_left
from collections.abc import Collection
from typing import NamedTuple

from fleximq.journal.files.frame_scan import LARGE, CompleteFrame, framesOf
from fleximq.journal.files.segment_index import readIndex
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.format.frame import FrameKind
from fleximq.pipeline.files.folder import Folder

_RECORDS = frozenset({FrameKind.RECORDS, FrameKind.SPARSE_RECORDS, FrameKind.TRANSACTION})


class SegmentLookup(NamedTuple):
    """A segment that ends before the position ``until``, by its index, or else by its frames: then ``topics``, those of
    its records, is None, and only the sparse index, ``end``, ``next`` and ``highest`` are known.
    """

    segment: Segment
    until: int
    topics: Collection[str] | None

    def positionAfter(self, offset: int) -> int:
        """Return a position after all frames with offsets smaller than this one."""
        place = bisect_left(self.segment.offsets, offset)
        return self.segment.positions[place] if place < len(self.segment.positions) else self.segment.end


class SegmentLookups:
    """The lookups of all segments of a folder, cached."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._known: dict[int, SegmentLookup] = {}

    def all(self, end: int) -> list[SegmentLookup]:
        """Return all segments up to a position."""
        extents = self._folder.extents(end)
        self._known = {base: self._of(base, until, until == end) for base, until in extents}
        return list(self._known.values())

    def _of(self, base: int, until: int, last: bool) -> SegmentLookup:
        known = self._known.get(base)
        if known is not None and known.topics is not None:
            return known._replace(until=until)
        indexed = None if last else readIndex(self._folder.files, self._folder.path, base)
        if indexed is not None:
            return SegmentLookup(indexed, until, frozenset(indexed.counts))
        segment = Segment(base, 0) if known is None else known.segment
        self._scan(segment, until)
        return SegmentLookup(segment, until, None)

    def _scan(self, segment: Segment, until: int) -> None:
        """Scan the frames after the last scanned one, up to a position or the end of the file."""
        window = self._folder.window(segment.base, until, LARGE) if segment.end < until else None
        if window is None:
            return
        for found in framesOf(window, None, segment.end, atHead=segment.end == segment.base):
            if isinstance(found, CompleteFrame):
                header = found.header
                nextOffset = header.baseOffset
                segment.entry(header.position, nextOffset)
                if header.kind in _RECORDS:
                    # This is too small for a sparse frame; the next frame corrects it.
                    nextOffset += header.count
                    segment.highest = max(segment.highest, header.firstTime, header.lastTime)
                segment.next = max(segment.next, nextOffset)
        segment.end = window.end
