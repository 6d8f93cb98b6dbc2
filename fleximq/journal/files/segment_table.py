"""All segments of a journal, by position and by offset, and the size of a backlog; all in memory.

One thread adds commits while another searches without a lock: the searched data only grows, and the tuple of segments
is replaced, never changed.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

from fleximq.journal.files.segment_summary import Segment, StagedBlock, addFrame, countTransaction
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.format.frame import Frame, FrameHeader, FrameKind, readHeader, seal
from fleximq.values.records import BacklogSize, TopicBounds


def segmentName(position: int) -> str:
    """Return the name of the file whose first byte has this position in the journal."""
    return f"{position:020d}.fxj"


class SegmentTable:
    """All segments of a journal, in order; the last one is being written.

    ``end`` is the position after the last commit, ``nextOffset`` the offset of the next record.
    """

    def __init__(self, found: Iterable[Segment] = (), nextOffset: int = 1) -> None:
        self.all: tuple[Segment, ...] = ()
        # Retention removes segments on another thread than the one that adds them.
        self._changing = Lock()
        self.end = 0
        self.nextOffset = nextOffset
        self._staged: dict[int, StagedBlock] = {}
        self._sealedBounds: dict[str, TopicBounds] | None = None
        self._bounds: dict[str, TopicBounds] | None = None
        self._boundsEnd = 0
        for segment in found:
            self.add(segment)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(segment.bytes for segment in self.all)

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(segment.records for segment in self.all)

    @property
    def sealed(self) -> Sequence[Segment]:
        """All segments except the last one."""
        return self.all[:-1]

    @property
    def lost(self) -> list[LostRange]:
        """All damage."""
        return [lost for segment in self.all for lost in segment.lost]

    def staged(self) -> list[StagedBlock]:
        """Return the staged blocks that were neither committed nor aborted, in order."""
        return [self._staged[position] for position in sorted(self._staged)]

    # -- changes -----------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Add a complete segment at the end."""
        self._resolve(segment)
        with self._changing:
            self.all = (*self.all, segment)
            self._sealedBounds = None
        self.end = segment.end
        self.nextOffset = max(self.nextOffset, segment.next)

    def begin(self, position: int, id: int) -> None:
        """Begin a new segment at this position; the previous one is sealed."""
        segment = Segment(position, id)
        segment.first = segment.next = self.nextOffset
        with self._changing:
            self.all = (*self.all, segment)
            self._sealedBounds = None
        self.end = position

    def committed(self, position: int, frame: Frame) -> None:
        """Add a committed frame at this position, the last one."""
        segment = self.all[-1]
        addFrame(segment, position, frame, frame.topicCounts, lambda: _written(frame, position))
        if frame.kind in (FrameKind.STAGED, FrameKind.TRANSACTION):
            self._follow(segment, frame.kind)
        self.end = segment.end
        self.nextOffset = max(self.nextOffset, segment.next)

    def forget(self, positions: Iterable[int]) -> None:
        """Remove these staged blocks: they will never be committed."""
        for position in positions:
            self._staged.pop(position, None)

    def replace(self, segment: Segment) -> None:
        """Replace a sealed segment by its rewritten form."""
        with self._changing:
            self.all = tuple(segment if each.base == segment.base else each for each in self.all)
            self._sealedBounds = None

    def remove(self, base: int) -> None:
        """Remove the segment with this base."""
        with self._changing:
            self.all = tuple(each for each in self.all if each.base != base)
            self._sealedBounds = None

    def _resolve(self, segment: Segment) -> None:
        """Apply the staged blocks and transactions of a complete segment, in order."""
        for staged in segment.staged:
            self._staged[staged.position] = staged
        for transaction, _, _ in segment.transactions:
            self.forget(transaction.staged)

    def _follow(self, segment: Segment, kind: FrameKind) -> None:
        """Apply the staged block or the transaction that was just added to a segment."""
        if kind == FrameKind.STAGED:
            staged = segment.staged[-1]
            self._staged[staged.position] = staged
            return
        transaction, base, count = segment.transactions[-1]
        countTransaction(segment, transaction, base, self._staged, count)
        self.forget(transaction.staged)

    # -- searching ---------------------------------------------------------------------------------

    def bounds(self) -> Mapping[str, TopicBounds]:
        """Return the bounds of each topic; the same object until something changes."""
        with self._changing:
            if self._sealedBounds is None:
                self._sealedBounds = _together({}, self.all[:-1])
                self._bounds = None
            if self._bounds is None or self._boundsEnd != self.end:
                self._bounds = _together(self._sealedBounds, self.all[-1:])
                self._boundsEnd = self.end
            return self._bounds

    def ofOffset(self, offset: int) -> int:
        """Return the index in ``all`` of the segment for this offset; 0 for an earlier offset."""
        return max(bisect_right(self.all, offset, key=lambda segment: segment.first) - 1, 0)

    def ofPosition(self, position: int) -> int:
        """Return the index in ``all`` of the segment for this position; 0 for an earlier position."""
        return max(bisect_right(self.all, position, key=lambda segment: segment.base) - 1, 0)


def _written(frame: Frame, position: int) -> tuple[FrameHeader, bytes]:
    """Return a written frame as if it had been read; its link to the previous frame is not set."""
    whole = b"".join(seal(frame, 0, position, 0)[0])
    return readHeader(whole), whole


def _together(known: Mapping[str, TopicBounds], segments: Iterable[Segment]) -> dict[str, TopicBounds]:
    """Return the bounds of each topic, extended by those of later segments."""
    found = dict(known)
    for segment in segments:
        for topic, (first, last, firstTime, lastTime, count, size) in tuple(segment.counts.items()):
            before = found.get(topic)
            if before is None:
                found[topic] = TopicBounds(first, last, firstTime, lastTime, count, size)
            else:
                found[topic] = TopicBounds(
                    before.first, last, before.firstTime, lastTime, before.count + count, before.bytes + size
                )
    return found


class BacklogTotals:
    """Adds up records and bytes of segments; sealed segments are counted once.

    A query costs some microseconds for a hundred segments, and grows with their number.
    """

    def __init__(self, segments: SegmentTable) -> None:
        self._segments = segments
        self._sealed: dict[int, tuple[Segment, BacklogSize]] = {}
        self._of: tuple[Segment, ...] = ()
        self._behind: list[BacklogSize] = []

    def backlogFrom(self, offset: int) -> BacklogSize:
        """Return the approximate number of records and bytes from an offset on.

        Within the segment of that offset, records count as equally large, and removed ones may be counted.
        """
        all = self._segments.all
        if all is not self._of:
            self._add(all)
        if not all:
            return BacklogSize(0, 0)
        index = max(bisect_right(all, offset, key=lambda segment: segment.first) - 1, 0)
        part = _part(all[index], offset, self._weightOf(all, index))
        if index == len(all) - 1:
            return part
        return _sum(_sum(part, self._behind[index]), self._weightOf(all, len(all) - 1))

    def _add(self, all: tuple[Segment, ...]) -> None:
        """Add up the sealed segments after each segment; the last segment still grows."""
        known, self._sealed = self._sealed, {}
        for segment in all[:-1]:
            before = known.get(segment.base)
            weight = before[1] if before is not None and before[0] is segment else _weight(segment)
            self._sealed[segment.base] = segment, weight
        total = BacklogSize(0, 0)
        self._behind = []
        for segment in reversed(all[:-1]):
            self._behind.append(total)
            total = _sum(total, self._sealed[segment.base][1])
        self._behind.reverse()
        self._of = all

    def _weightOf(self, all: tuple[Segment, ...], index: int) -> BacklogSize:
        return _weight(all[-1]) if index == len(all) - 1 else self._sealed[all[index].base][1]


def _weight(segment: Segment) -> BacklogSize:
    counts = tuple(segment.counts.values())
    return BacklogSize(sum(count[4] for count in counts), sum(count[5] for count in counts))


def _part(segment: Segment, offset: int, weight: BacklogSize) -> BacklogSize:
    if offset <= segment.first or not weight.records:
        return weight
    records = min(weight.records, max(0, segment.next - offset))
    return BacklogSize(records, weight.bytes * records // weight.records)


def _sum(one: BacklogSize, other: BacklogSize) -> BacklogSize:
    return BacklogSize(one.records + other.records, one.bytes + other.bytes)
