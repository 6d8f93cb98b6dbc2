"""All segments of a journal, by position and by offset; everything of them is in memory.

One thread adds what was committed, another looks things up at the same time without a lock: what is looked up only
grows, and the list of segments is replaced, never changed.

How much a journal has from an offset on, found without reading any file.
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

    ``end`` is the position where all ends that is committed, ``nextOffset`` the offset of the next record.
    """

    def __init__(self, found: Iterable[Segment] = (), nextOffset: int = 1) -> None:
        self.all: tuple[Segment, ...] = ()
        # What has expired is taken out on another thread than that which adds.
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
        """How many bytes all files take."""
        return sum(segment.bytes for segment in self.all)

    @property
    def records(self) -> int:
        """How many records are kept."""
        return sum(segment.records for segment in self.all)

    @property
    def sealed(self) -> Sequence[Segment]:
        """All segments but the last one."""
        return self.all[:-1]

    @property
    def lost(self) -> list[LostRange]:
        """All that is damaged."""
        return [lost for segment in self.all for lost in segment.lost]

    def staged(self) -> list[StagedBlock]:
        """Return what was staged, and neither committed nor aborted, in order."""
        return [self._staged[position] for position in sorted(self._staged)]

    # -- what comes and goes -----------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Take a whole segment behind all others."""
        self._resolve(segment)
        with self._changing:
            self.all = (*self.all, segment)
            self._sealedBounds = None
        self.end = segment.end
        self.nextOffset = max(self.nextOffset, segment.next)

    def begin(self, position: int, id: int) -> None:
        """A new segment begins at this position; the one before it is sealed."""
        segment = Segment(position, id)
        segment.first = segment.next = self.nextOffset
        with self._changing:
            self.all = (*self.all, segment)
            self._sealedBounds = None
        self.end = position

    def committed(self, position: int, frame: Frame) -> None:
        """A frame that begins at this position, behind all others, is safe."""
        segment = self.all[-1]
        addFrame(segment, position, frame, frame.tally, lambda: _written(frame, position))
        if frame.kind in (FrameKind.STAGED, FrameKind.TRANSACTION):
            self._follow(segment, frame.kind)
        self.end = segment.end
        self.nextOffset = max(self.nextOffset, segment.next)

    def forget(self, positions: Iterable[int]) -> None:
        """These STAGED frames will never be committed."""
        for position in positions:
            self._staged.pop(position, None)

    def replace(self, segment: Segment) -> None:
        """A sealed segment was rewritten: this one stands in its place."""
        with self._changing:
            self.all = tuple(segment if each.base == segment.base else each for each in self.all)
            self._sealedBounds = None

    def remove(self, base: int) -> None:
        """The segment with this base is gone."""
        with self._changing:
            self.all = tuple(each for each in self.all if each.base != base)
            self._sealedBounds = None

    def _resolve(self, segment: Segment) -> None:
        """Take staged frames and transactions of a whole segment, in the order in which they stand there."""
        for staged in segment.staged:
            self._staged[staged.position] = staged
        for transaction, _, _ in segment.transactions:
            self.forget(transaction.staged)

    def _follow(self, segment: Segment, kind: FrameKind) -> None:
        """Take the staged frame or the transaction that was just added to a segment."""
        if kind == FrameKind.STAGED:
            staged = segment.staged[-1]
            self._staged[staged.position] = staged
            return
        transaction, base, count = segment.transactions[-1]
        countTransaction(segment, transaction, base, self._staged, count)
        self.forget(transaction.staged)

    # -- looking up --------------------------------------------------------------------------------

    def bounds(self) -> Mapping[str, TopicBounds]:
        """Return what there is of each topic: the same as the last time, as long as nothing changes."""
        with self._changing:
            if self._sealedBounds is None:
                self._sealedBounds = _together({}, self.all[:-1])
                self._bounds = None
            if self._bounds is None or self._boundsEnd != self.end:
                self._bounds = _together(self._sealedBounds, self.all[-1:])
                self._boundsEnd = self.end
            return self._bounds

    def ofOffset(self, offset: int) -> int:
        """Return the place in ``all`` of the segment that would have this offset; 0 if it is before all."""
        return max(bisect_right(self.all, offset, key=lambda segment: segment.first) - 1, 0)

    def ofPosition(self, position: int) -> int:
        """Return the place in ``all`` of the segment that would have this position; 0 if it is before all."""
        return max(bisect_right(self.all, position, key=lambda segment: segment.base) - 1, 0)


def _written(frame: Frame, position: int) -> tuple[FrameHeader, bytes]:
    """Return a frame that was written as if it had been read; whatever was chained to it is not looked at."""
    whole = b"".join(seal(frame, 0, position, 0)[0])
    return readHeader(whole), whole


def _together(known: Mapping[str, TopicBounds], segments: Iterable[Segment]) -> dict[str, TopicBounds]:
    """Return what is known of each topic, and what segments behind it have."""
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
    """Adds up records and bytes of segments; those of sealed ones are counted once.

    Asking costs as much as there are segments, some microseconds for a hundred of them.
    """

    def __init__(self, segments: SegmentTable) -> None:
        self._segments = segments
        self._sealed: dict[int, tuple[Segment, BacklogSize]] = {}
        self._of: tuple[Segment, ...] = ()
        self._behind: list[BacklogSize] = []

    def backlogFrom(self, offset: int) -> BacklogSize:
        """Return how much stands from an offset on.

        In the segment of that offset records are taken for equally large, and where some were taken out there may be
        fewer than it seems.
        """
        all = self._segments.all
        if all is not self._of:
            self._add(all)
        if not all:
            return BacklogSize(0, 0)
        place = max(bisect_right(all, offset, key=lambda segment: segment.first) - 1, 0)
        part = _part(all[place], offset, self._weightOf(all, place))
        if place == len(all) - 1:
            return part
        return _sum(_sum(part, self._behind[place]), self._weightOf(all, len(all) - 1))

    def _add(self, all: tuple[Segment, ...]) -> None:
        """Add up what stands behind each segment, but for the last one, which grows."""
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

    def _weightOf(self, all: tuple[Segment, ...], place: int) -> BacklogSize:
        return _weight(all[-1]) if place == len(all) - 1 else self._sealed[all[place].base][1]


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
