"""All segments of a journal, by position and by offset, and the size of a backlog; all in memory.

One thread adds commits while another searches without a lock: the searched data only grows, and the tuple of segments
is replaced, never changed.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from threading import Lock

from fleximq.journal.files.frame_scan import CompleteFrame
from fleximq.journal.files.segment_index import addWholeFrame
from fleximq.journal.files.segment_summary import Segment, StagedBlock, addFrame, countTransaction
from fleximq.journal.files.topic_counts import Count
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.format.frame import Frame, FrameHeader, FrameKind, readHeader, seal
from fleximq.values.records import BacklogSize, TopicBounds
from fleximq.values.sorted_names import SortedNames

SUFFIX = ".fxj"
#: After a removal, the bounds of so many topics are changed at a time: about 1 ms in which commits wait.
_BOUNDS_AT_ONCE = 1000
#: So many removals are remembered for feeds that read slowly.
_REMOVALS = 200_000
# Making a NamedTuple through its own constructor costs twice as much.
_new = tuple.__new__


def segmentName(position: int) -> str:
    """Return the name of the file whose first byte has this position in the journal."""
    return f"{position:020d}{SUFFIX}"


def segmentBases(names: Iterable[str]) -> list[int]:
    """Return the positions of the segment files among these names."""
    stems = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    return [int(stem) for stem in stems if len(stem) == 20 and stem.isascii() and stem.isdigit()]


class SegmentTable:
    """All segments of a journal, in order; the last one is being written. ``end`` is the position after the last
    commit, ``nextOffset`` the offset of the next record, ``bytes`` the size of all files. The bounds of each topic are
    changed by each commit and removal, never computed for all topics at once; 1 us for a topic.
    """

    def __init__(self, found: Iterable[Segment] = ()) -> None:
        self.all: tuple[Segment, ...] = ()
        # Retention removes segments on another thread than the one that adds them.
        self._changing = Lock()
        self.end = self.bytes = 0
        self.nextOffset = 1
        self._staged: dict[int, StagedBlock] = {}
        self._bounds: dict[str, TopicBounds] = {}
        #: Of each topic in the last segment, its bounds before that segment.
        self._boundsBefore: dict[str, TopicBounds | None] = {}
        self._names = SortedNames()
        #: Topics with their last removed offsets; the number of older entries, and the largest offset of them.
        self._removed: list[tuple[str, int]] = []
        self._dropped = self._droppedUntil = 0
        for segment in found:
            self.add(segment)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(segment.records for segment in self.all)

    @property
    def lost(self) -> list[LostRange]:
        """All damage."""
        return [lost for segment in self.all for lost in segment.lost]

    def staged(self) -> list[StagedBlock]:
        """Return the staged blocks that were neither committed nor aborted, in order."""
        return [self._staged[position] for position in sorted(self._staged)]

    def add(self, segment: Segment) -> None:
        """Add a complete segment at the end."""
        for staged in segment.staged:
            self._staged[staged.position] = staged
        for transaction, _, _ in segment.transactions:
            self.forget(transaction.staged)
        with self._changing:
            self.all = (*self.all, segment)
            self._boundsBefore = {}
            self._extend(segment.counts)
            self.bytes += segment.bytes
        self.end = segment.end
        self.nextOffset = max(self.nextOffset, segment.next)

    def begin(self, position: int, segmentId: int) -> None:
        """Begin a new segment at this position; the previous one is sealed."""
        segment = Segment(position, segmentId)
        segment.first = segment.next = self.nextOffset
        with self._changing:
            self.all = (*self.all, segment)
            self._boundsBefore = {}
        self.end = position

    def committed(self, position: int, frame: Frame) -> None:
        """Add a committed frame at this position, the last one."""
        segment = self.all[-1]
        with self._changing:
            addFrame(segment, position, frame, frame.topicCounts, lambda: _written(frame, position))
            self._added(segment, frame.kind, frame.topicCounts)
            self.bytes += frame.length

    def received(self, whole: CompleteFrame) -> None:
        """Add the last frame, which another broker has written; a SEGMENT frame begins a segment. Raises FrameError."""
        header = whole.header
        if header.kind == FrameKind.SEGMENT:
            self.begin(header.position, header.segment)
        segment = self.all[-1]
        with self._changing:
            before = segment.bytes
            counts = addWholeFrame(segment, whole, header.position + header.length)
            self._added(segment, FrameKind(header.kind), counts)
            self.bytes += segment.bytes - before

    def _added(self, segment: Segment, kind: FrameKind, topicCounts: Iterable[str]) -> None:
        """Bring the table up to date after a frame was added to its last segment."""
        if kind in (FrameKind.STAGED, FrameKind.TRANSACTION):
            self._follow(segment, kind)
        elif topicCounts:
            self._extend(topicCounts)
        self.end = segment.end
        self.nextOffset = max(self.nextOffset, segment.next)

    def forget(self, positions: Iterable[int]) -> None:
        """Remove these staged blocks: they will never be committed."""
        for position in positions:
            self._staged.pop(position, None)

    def replace(self, segment: Segment) -> None:
        """Replace a sealed segment by its rewritten form."""
        self._change(segment.base, (segment,))

    def remove(self, base: int) -> None:
        """Remove the segment with this base."""
        self._change(base, ())

    def _change(self, base: int, by: tuple[Segment, ...]) -> None:
        """Replace a sealed segment; first the bounds, so that readers learn of a loss before it happens."""
        before = self.all[:-1]
        after = tuple(new for each in before for new in (by if each.base == base else (each,)))
        counts = by[0].counts if by else {}
        old = next(each for each in before if each.base == base).counts
        changed = [topic for topic, count in old.items() if counts.get(topic) != count]
        bounds = _together(after, set(changed))
        removed = [
            (topic, counts[topic][0] - 1 if topic in counts else old[topic][1])
            for topic in changed
            if topic not in counts or counts[topic][0] > old[topic][0]
        ]
        for start in range(0, len(changed), _BOUNDS_AT_ONCE):
            with self._changing:
                for topic in changed[start : start + _BOUNDS_AT_ONCE]:
                    self._replaceBounds(topic, bounds.get(topic), self.all[len(before) :])
                self._removed += removed[start : start + _BOUNDS_AT_ONCE]
                if len(self._removed) > _REMOVALS:
                    self._dropped += _REMOVALS // 2
                    self._droppedUntil = max(self._droppedUntil, *(last for _, last in self._removed[: _REMOVALS // 2]))
                    del self._removed[: _REMOVALS // 2]
        with self._changing:
            self.all = (*after, *self.all[len(before) :])
            # The sum over perhaps thousands of segments is computed only after a change of one.
            self.bytes = sum(segment.bytes for segment in self.all)

    def _replaceBounds(self, topic: str, found: TopicBounds | None, later: Iterable[Segment]) -> None:
        """Set the bounds of a topic to those in earlier segments, extended by those in later ones."""
        for segment in later:
            count = segment.counts.get(topic)
            if count is not None:
                if segment is self.all[-1]:
                    self._boundsBefore[topic] = found
                found = _extended(found, count)
        if found is not None:
            self._bounds[topic] = found
        elif self._bounds.pop(topic, None) is not None:
            self._names.remove(topic)

    def _extend(self, topics: Iterable[str]) -> None:
        """Bring the bounds of these topics up to date, which were added to the last segment."""
        counts, bounds, before = self.all[-1].counts, self._bounds, self._boundsBefore
        for topic in topics:
            if topic not in before:
                before[topic] = bounds.get(topic)
                if topic not in bounds:
                    self._names.add(topic)
            known = before[topic]
            # Hot: most topics of a commit are new in the segment, or in no earlier one.
            bounds[topic] = _new(TopicBounds, counts[topic]) if known is None else _extended(known, counts[topic])

    def _follow(self, segment: Segment, kind: FrameKind) -> None:
        """Apply the staged block or the transaction that was just added to a segment."""
        if kind == FrameKind.STAGED:
            staged = segment.staged[-1]
            self._staged[staged.position] = staged
            return
        transaction, base, count = segment.transactions[-1]
        countTransaction(segment, transaction, base, self._staged, count)
        if not transaction.aborted:
            for block in (self._staged[each] for each in transaction.staged if each in self._staged):
                self._extend(block.topicCounts.keys() & segment.counts.keys())
        self.forget(transaction.staged)

    def bounds(self) -> Mapping[str, TopicBounds]:
        """Return the bounds of each topic: always the same mapping, for look-ups; :meth:`topics` lists its keys."""
        return self._bounds

    def topics(self, limit: int, start: str = "", before: str = "") -> list[str]:
        """See :meth:`fleximq.interfaces.IJournalRead.topics`."""
        with self._changing:
            return self._names.page(limit, start, before)

    @property
    def removals(self) -> int:
        """See :class:`fleximq.interfaces.IJournalRead`."""
        return self._dropped + len(self._removed)

    def removedSince(self, number: int, limit: int) -> tuple[int, list[tuple[str, int]]]:
        """See :meth:`fleximq.interfaces.IJournalRead.removedSince`."""
        with self._changing:
            at = number - self._dropped
            if at < 0:
                return self._dropped, [("", self._droppedUntil)]
            found = self._removed[at : at + limit]
            return number + len(found), found

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


def _together(segments: Iterable[Segment], topics: set[str]) -> dict[str, TopicBounds]:
    found: dict[str, TopicBounds] = {}
    for segment in segments:
        for topic in topics & segment.counts.keys():
            found[topic] = _extended(found.get(topic), segment.counts[topic])
    return found


def _extended(before: TopicBounds | None, count: Count) -> TopicBounds:
    first, last, firstTime, lastTime, number, size = count
    if before is not None:
        first, _, firstTime, _, more, byteCount = before
        number += more
        size += byteCount
    return _new(TopicBounds, (first, last, firstTime, lastTime, number, size))


class BacklogTotals:
    """Adds up segments; sealed ones once. A query costs some microseconds for a hundred segments, and more for more."""

    def __init__(self, segments: SegmentTable) -> None:
        self._segments = segments
        self._of: tuple[Segment, ...] = ()
        self._sealed: dict[Segment, BacklogSize] = {}
        #: The totals of the sealed segments from each segment on.
        self._totals: list[BacklogSize] = []

    def backlogFrom(self, offset: int) -> BacklogSize:
        """Return the approximate number of records and bytes from an offset on. Within the segment of that offset,
        records count as equally large, and removed ones may be counted.
        """
        allSegments = self._segments.all
        if allSegments is not self._of:
            self._add(allSegments)
        if not allSegments:
            return BacklogSize(0, 0)
        index = max(bisect_right(allSegments, offset, key=lambda segment: segment.first) - 1, 0)
        last = _weight(allSegments[-1])
        if index == len(allSegments) - 1:
            return _part(allSegments[index], offset, last)
        part = _part(allSegments[index], offset, self._sealed[allSegments[index]])
        return _sum(_sum(part, self._totals[index + 1]), last)

    def _add(self, allSegments: tuple[Segment, ...]) -> None:
        """Add up the sealed segments; the last segment still grows."""
        known = self._sealed
        self._sealed = {
            segment: known[segment] if segment in known else _weight(segment) for segment in allSegments[:-1]
        }
        sealed = reversed(self._sealed.values())
        self._totals = list(accumulate(sealed, _sum, initial=BacklogSize(0, 0)))[::-1]
        self._of = allSegments


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
