"""Maps offsets and times to positions within a segment, from its index or else from its frames.

The broker writes the index. If it cannot be read, the frames are scanned instead.
"""

from array import array
from bisect import bisect_left, bisect_right

from fleximq.journal.files.frame_scan import LARGE, CompleteFrame, framesOf
from fleximq.journal.files.segment_index import readIndex
from fleximq.journal.files.segment_summary import INDEX_INTERVAL, NEVER, Segment
from fleximq.journal.format.frame import FrameKind
from fleximq.pipeline.files.folder import Extent, Folder

_RECORDS = frozenset({FrameKind.RECORDS, FrameKind.SPARSE_RECORDS, FrameKind.TRANSACTION})


class SegmentLookup:
    """The known frames of a segment up to the position ``end``.

    ``positions``, ``offsets`` and ``times`` are parallel: the frame at the position has this offset, and all frames
    before it in the segment are of this time or earlier. ``next`` is the offset after the last record, ``highest`` the
    latest time; ``topics`` are those of its records, None if unknown.
    """

    def __init__(self, base: int) -> None:
        self.base = self.end = base
        self.next = 0
        self.highest = NEVER
        self.positions = array("Q")
        self.offsets = array("Q")
        self.times = array("q")
        self.topics: frozenset[str] | None = None

    @classmethod
    def of(cls, segment: Segment) -> "SegmentLookup":
        """Return the lookup that an index contains."""
        sketch = cls(segment.base)
        sketch.end, sketch.next, sketch.highest = segment.end, segment.next, segment.highest
        sketch.positions, sketch.offsets, sketch.times = segment.positions, segment.offsets, segment.times
        sketch.topics = frozenset(segment.counts)
        return sketch

    def grow(self, folder: Folder, until: int) -> None:
        """Scan the frames after the last scanned one, up to a position or the end of the file."""
        window = folder.window(self.base, until, LARGE) if self.end < until else None
        if window is None:
            return
        for found in framesOf(window, None, self.end, atHead=self.end == self.base):
            if not isinstance(found, CompleteFrame):
                continue
            header = found.header
            if not self.positions or header.position - self.positions[-1] >= INDEX_INTERVAL:
                self.positions.append(header.position)
                self.offsets.append(header.baseOffset)
                self.times.append(self.highest)
            self.next = max(self.next, header.baseOffset)
            if header.kind in _RECORDS:
                # This is too small for a sparse frame; the next frame corrects it.
                self.next = max(self.next, header.baseOffset + header.count)
                self.highest = max(self.highest, header.firstTime, header.lastTime)
        self.end = window.end

    def positionBefore(self, offset: int) -> int:
        """Return the position of a frame at or before the one that has this offset."""
        place = bisect_right(self.offsets, offset) - 1
        return self.positions[place] if place >= 0 else self.base

    def positionBeforeTime(self, time: int) -> int:
        """Return the position of a frame at or before the first one that has a record of this time or later."""
        place = bisect_left(self.times, time) - 1
        return self.positions[place] if place >= 0 else self.base

    def positionAfter(self, offset: int) -> int:
        """Return a position after all frames with offsets smaller than this one."""
        place = bisect_left(self.offsets, offset)
        return self.positions[place] if place < len(self.positions) else self.end


class SegmentLookups:
    """The lookups of all segments of a folder, cached."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._known: dict[int, SegmentLookup] = {}

    def all(self, end: int) -> list[tuple[Extent, SegmentLookup]]:
        """Return all segments up to a position."""
        extents = self._folder.extents(end)
        there = {extent.base for extent in extents}
        self._known = {base: sketch for base, sketch in self._known.items() if base in there}
        return [(extent, self._of(extent, extent is extents[-1])) for extent in extents]

    def _of(self, extent: Extent, last: bool) -> SegmentLookup:
        sketch = self._known.get(extent.base)
        if sketch is None or (sketch.topics is None and not last):
            indexed = None if last else readIndex(self._folder.files, self._folder.path, extent.base)
            if indexed is not None:
                sketch = SegmentLookup.of(indexed)
            elif sketch is None:
                sketch = SegmentLookup(extent.base)
            self._known[extent.base] = sketch
        if sketch.topics is None:
            sketch.grow(self._folder, extent.until)
        return sketch
