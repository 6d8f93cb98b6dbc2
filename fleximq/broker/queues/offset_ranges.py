"""Places in the journal, first in first out, in little memory: neighbours as ranges, all else as plain numbers.

A million places that follow each other take as much as one, a million scattered ones 8 MB.
"""

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

#: From here on numbers are no offsets: they stand for messages that are not in the journal.
FIRST_VOLATILE = 1 << 63
#: Stands for a place whose message is gone; offsets count from 1.
GAP = 0
#: So many numbers are kept as a range at least.
_RANGE = 4
#: So many single numbers are one part at most: taking one out moves all behind it.
_SINGLES = 1024


class OffsetRanges:
    """Numbers below 2**64 in order of arrival."""

    __slots__ = ("_count", "_parts")

    def __init__(self) -> None:
        self._parts: deque[range | array[int]] = deque()
        self._count = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Iterate over all, first one first."""
        for part in self._parts:
            yield from part

    @property
    def first(self) -> int:
        """The first one; there must be one."""
        return self._parts[0][0]

    def append(self, first: int, count: int = 1) -> None:
        """Put ``count`` numbers at the end, from ``first`` on."""
        self._count += count
        parts = self._parts
        if parts:
            last = parts[-1]
            if type(last) is range:
                if last.stop == first:
                    parts[-1] = range(last.start, first + count)
                    return
                if len(last) < _RANGE:
                    self._scatter(parts.pop())
        parts.append(range(first, first + count))

    def extend(self, numbers: Sequence[int]) -> None:
        """Put these at the end, which ascend but for holes; those that follow each other cost as much as one."""
        if not numbers:
            return
        if type(numbers) is range or _areNeighbours(numbers):
            self.append(numbers[0], len(numbers))
            return
        start = previous = numbers[0]
        for number in numbers[1:]:
            if number != previous + 1:
                self.append(start, previous - start + 1)
                start = number
            previous = number
        self.append(start, previous - start + 1)

    def gaps(self) -> int:
        """Return how many of them are holes."""
        return sum(part.count(GAP) for part in self._parts)

    def parts(self) -> Iterator[Sequence[int]]:
        """Iterate over all of them in pieces, which are not to be changed."""
        return iter(self._parts)

    def peek(self, number: int) -> list[int]:
        """Return the first ones, so many or as many as there are, and leave them here."""
        found: list[int] = []
        for part in self._parts:
            found += part[: number - len(found)]
            if len(found) >= number:
                break
        return found

    def take(self, number: int) -> list[int]:
        """Take the first ones out, so many or as many as there are."""
        found: list[int] = []
        parts = self._parts
        while parts and len(found) < number:
            part = parts[0]
            wanted = number - len(found)
            found += part[:wanted]
            if wanted >= len(part):
                parts.popleft()
            else:
                parts[0] = part[wanted:]
        self._count -= len(found)
        return found

    def clear(self) -> None:
        """Forget all."""
        self._parts.clear()
        self._count = 0

    def dump(self) -> list[Any]:
        """Return them as values that MessagePack has."""
        return [[part.start, len(part)] if isinstance(part, range) else part.tobytes() for part in self._parts]

    @classmethod
    def load(cls, dumped: Sequence[Any]) -> "OffsetRanges":
        """Return what :meth:`dump` was called on."""
        offsets = cls()
        for part in dumped:
            if isinstance(part, bytes):
                singles = array("Q")
                singles.frombytes(part)
                offsets._parts.append(singles)
                offsets._count += len(singles)
            else:
                offsets.append(*part)
        return offsets

    def without(self, gone: set[int]) -> "OffsetRanges":
        """Return the same with holes in the places of some numbers."""
        if not gone:
            return self
        offsets = OffsetRanges()
        for number in self:
            if number in gone:
                offsets._scatter((GAP,))
                offsets._count += 1
            else:
                offsets.append(number)
        return offsets

    def _scatter(self, numbers: Sequence[int]) -> None:
        parts = self._parts
        last = parts[-1] if parts else None
        if isinstance(last, array) and len(last) < _SINGLES:
            last.extend(numbers)
        else:
            parts.append(array("Q", numbers))


def _areNeighbours(numbers: Sequence[int]) -> bool:
    """Tell whether ascending numbers, with holes perhaps, are all that there are from the first to the last."""
    first, last = numbers[0], numbers[-1]
    return last - first + 1 == len(numbers) == len(set(numbers)) and min(numbers) == first
