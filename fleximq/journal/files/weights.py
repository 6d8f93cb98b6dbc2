"""How much a journal has from an offset on, found without reading any file."""

from bisect import bisect_right

from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.files.segment_table import Segments
from fleximq.values.records import Waiting


class Weights:
    """Adds up records and bytes of segments; those of sealed ones are counted once.

    Asking costs as much as there are segments, some microseconds for a hundred of them.
    """

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._sealed: dict[int, tuple[Segment, Waiting]] = {}
        self._of: tuple[Segment, ...] = ()
        self._behind: list[Waiting] = []

    def behind(self, offset: int) -> Waiting:
        """Return how much stands from an offset on.

        In the segment of that offset records are taken for equally large, and where some were taken out there may be
        fewer than it seems.
        """
        all = self._segments.all
        if all is not self._of:
            self._add(all)
        if not all:
            return Waiting(0, 0)
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
        total = Waiting(0, 0)
        self._behind = []
        for segment in reversed(all[:-1]):
            self._behind.append(total)
            total = _sum(total, self._sealed[segment.base][1])
        self._behind.reverse()
        self._of = all

    def _weightOf(self, all: tuple[Segment, ...], place: int) -> Waiting:
        return _weight(all[-1]) if place == len(all) - 1 else self._sealed[all[place].base][1]


def _weight(segment: Segment) -> Waiting:
    counts = tuple(segment.counts.values())
    return Waiting(sum(count[4] for count in counts), sum(count[5] for count in counts))


def _part(segment: Segment, offset: int, weight: Waiting) -> Waiting:
    if offset <= segment.first or not weight.records:
        return weight
    records = min(weight.records, max(0, segment.next - offset))
    return Waiting(records, weight.bytes * records // weight.records)


def _sum(one: Waiting, other: Waiting) -> Waiting:
    return Waiting(one.records + other.records, one.bytes + other.bytes)
