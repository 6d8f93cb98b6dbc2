"""Offsets in the journal, first in first out: neighbours as ranges, others as plain numbers.

A million neighbouring offsets take as much as one, a million scattered ones 8 MB.
"""

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from fleximq.broker.queues.backlog import NEVER_USED

#: Numbers from here on are not offsets but keys of volatile messages.
FIRST_VOLATILE = 1 << 63
#: The number of a lost message; offsets count from 1.
GAP = 0
#: Minimum length of a range.
_RANGE = 4
#: Maximum length of an array: removing its first number moves all others.
_SINGLES = 1024


_GAPS = array("Q", [GAP])


class OffsetRanges:
    """Numbers below 2**64 in order of arrival."""

    __slots__ = ("_count", "_parts")

    def __init__(self) -> None:
        self._parts: deque[range | array[int]] = NEVER_USED
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for part in self._parts:
            yield from part

    @property
    def first(self) -> int:
        """The first one; there must be one."""
        return self._parts[0][0]

    def append(self, first: int, count: int = 1) -> None:
        """Append ``count`` numbers, from ``first`` on."""
        self._count += count
        parts = self._used()
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
        """Append ascending numbers, with gaps perhaps; neighbours cost as much as one."""
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
        """Return how many of them are gaps."""
        return sum(part.count(GAP) for part in self._parts)

    def parts(self) -> Iterator[Sequence[int]]:
        """Iterate over all of them in ranges and arrays; callers must not change these."""
        return iter(self._parts)

    def peek(self, number: int) -> list[int]:
        """Return up to ``number`` of the first ones, without removing them."""
        found: list[int] = []
        for part in self._parts:
            found += part[: number - len(found)]
            if len(found) >= number:
                break
        return found

    def firstRange(self, number: int) -> range:
        """Return up to ``number`` of the first ones if they are neighbours; none if they are not."""
        first = self._parts[0] if self._parts else None
        return first[:number] if isinstance(first, range) else range(0)

    def takeRange(self, numbers: range) -> bool:
        """Remove neighbours if they are the first ones; False if they are not."""
        if not numbers or self.firstRange(len(numbers)) != numbers:
            return False
        self.take(len(numbers))
        return True

    def take(self, number: int) -> list[int]:
        """Remove and return up to ``number`` of the first ones."""
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
        self._parts = NEVER_USED
        self._count = 0

    def dump(self) -> list[Any]:
        """Return them as MessagePack values."""
        return [[part.start, len(part)] if isinstance(part, range) else part.tobytes() for part in self._parts]

    @classmethod
    def load(cls, dumped: Sequence[Any]) -> "OffsetRanges":
        """Return the ranges from a :meth:`dump`."""
        offsets = cls()
        for part in dumped:
            if isinstance(part, bytes):
                singles = array("Q")
                singles.frombytes(part)
                offsets._used().append(singles)
                offsets._count += len(singles)
            else:
                offsets.append(*part)
        return offsets

    def without(self, gone: set[int]) -> "OffsetRanges":
        """Return a copy with gaps in place of some numbers."""
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

    def erase(self, number: int) -> bool:
        """Replace a number by a gap; False if it is not among them."""
        for place, part in enumerate(self._parts):
            if number in part:
                self._erase(place, part, part.index(number))
                return True
        return False

    def eraseAt(self, index: int) -> int:
        """Replace the number at an index by a gap, and return it; a gap without one, or if it is one already."""
        if index < self._count:
            for place, part in enumerate(self._parts):
                if index < len(part):
                    number = part[index]
                    if number != GAP and (number < FIRST_VOLATILE):
                        self._erase(place, part, index)
                        return number
                    return GAP
                index -= len(part)
        return GAP

    def _erase(self, place: int, part: "range | array[int]", index: int) -> None:
        if isinstance(part, array):
            part = self._parts[place] = part[:]
            part[index] = GAP
            return
        before = self._parts[place - 1] if place else None
        if index < _RANGE and isinstance(before, array) and len(before) + index < _SINGLES:
            before.extend((*part[:index], GAP))  # many gaps near each other make few parts
            pieces: list[range | array[int]] = [part[index + 1 :]]
        else:
            pieces = [part[:index], _GAPS[:], part[index + 1 :]]
        parts = list(self._parts)
        parts[place : place + 1] = [each for each in pieces if each]
        self._parts = deque(parts)

    def _used(self) -> "deque[range | array[int]]":
        if self._parts is NEVER_USED:
            self._parts = deque()
        return self._parts

    def _scatter(self, numbers: Sequence[int]) -> None:
        parts = self._used()
        last = parts[-1] if parts else None
        if isinstance(last, array) and len(last) < _SINGLES:
            last.extend(numbers)
        else:
            parts.append(array("Q", numbers))


def _areNeighbours(numbers: Sequence[int]) -> bool:
    """Tell whether ascending numbers, with gaps perhaps, contain every number from the first to the last."""
    first, last = numbers[0], numbers[-1]
    return last - first + 1 == len(numbers) == len(set(numbers)) and min(numbers) == first
