"""The offsets of single records that are needed, for questions about ranges of offsets. Pure."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

#: So many are sorted at a time, 10 ms: sorting a million at once would stop all other threads for half a second.
_PART = 1 << 15


class SingleOffsets:
    """A set of offsets.

    :param offsets: in any order.
    """

    def __init__(self, offsets: "array[int]") -> None:
        starts = range(0, len(offsets), _PART)
        self._parts = [_packed(sorted(offsets[start : start + _PART])) for start in starts]

    def within(self, first: int, last: int) -> set[int]:
        """Return those in a range, inclusive."""
        found: set[int] = set()
        for part in self._parts:
            found.update(part[bisect_left(part, first) : bisect_left(part, last + 1)])
        return found

    def count(self, first: int, last: int) -> int:
        """Return the number of those in a range, inclusive."""
        return sum(bisect_left(part, last + 1) - bisect_left(part, first) for part in self._parts)


def _packed(offsets: list[int]) -> Sequence[int]:
    """Return ascending offsets in less memory, in very little if they are neighbours."""
    first, last = offsets[0], offsets[-1]
    return range(first, last + 1) if last - first + 1 == len(offsets) else array("Q", offsets)
