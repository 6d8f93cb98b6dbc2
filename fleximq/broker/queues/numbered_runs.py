"""Messages of a queue by number, in which the messages of one run stay together.

A run takes one entry for all of its messages, and leaves in parts that take one step each. A message that is looked at
alone makes all of its run single: each message once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

from fleximq.broker.queues.run_deque import FEW
from fleximq.values import message_loops
from fleximq.values.message_run import MessageRun

Item = TypeVar("Item")


class NumberedRuns(Generic[Item]):
    """Items by number. The numbers of a run have a distance of ``step``, and no run has any between those of another.

    :param itemsOf: returns the items of the messages of a run that becomes single.
    """

    __slots__ = ("_count", "_itemsOf", "_runs", "_starts", "_step", "single")

    def __init__(self, step: int, itemsOf: Callable[[MessageRun], Sequence[Item]]) -> None:
        #: The items that are not in runs, in the order in which they were added.
        self.single: dict[int, Item] = {}
        self._step = step
        self._itemsOf = itemsOf
        self._starts: list[int] = []
        self._runs: list[MessageRun] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self.single)

    def __contains__(self, number: int) -> bool:
        return number in self.single or self._placeOf(number) is not None

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers: those of runs in order, then the single ones in the order of their arrival."""
        runs = (range(start, self._end(place), self._step) for place, start in enumerate(self._starts))
        return chain(chain.from_iterable(runs), self.single)

    def values(self) -> Iterator[Item]:
        """Iterate over the items, in the same order."""
        return chain(chain.from_iterable(map(self._itemsOf, self._runs)), self.single.values())

    def between(self, first: int, end: int) -> Iterable[int]:
        """Return the numbers from ``first`` to before ``end``, in order; for a ``step`` of 1."""
        if not self._runs:
            return filter(self.single.__contains__, range(first, end))
        found: list[Iterable[int]] = []
        for place in range(max(0, bisect_right(self._starts, first) - 1), bisect_left(self._starts, end)):
            start, stop = max(first, self._starts[place]), min(end, self._end(place))
            if start < stop:
                found += (filter(self.single.__contains__, range(first, start)), range(start, stop))
                first = stop
        return chain.from_iterable([*found, filter(self.single.__contains__, range(first, end))])

    def put(self, numbers: Sequence[int], items: Sequence[Item]) -> None:
        """Add single items."""
        message_loops.putEach(self.single, numbers, items)

    def putRun(self, numbers: range, run: MessageRun) -> None:
        """Add the messages of a run."""
        if len(numbers) < FEW:
            self.put(numbers, self._itemsOf(run))
            return
        start = numbers.start
        self._count += len(numbers)
        if not self._starts or self._starts[-1] < start:
            self._starts.append(start)
            self._runs.append(run)
            return
        place = bisect_left(self._starts, start)
        self._starts.insert(place, start)
        self._runs.insert(place, run)

    def get(self, number: int) -> Item | None:
        """Return an item; None if there is none with this number."""
        item = self.single.get(number)
        return self.single.get(number) if item is None and self._scatter(number) else item

    def popEach(self, numbers: Iterable[int]) -> list[Item | None]:
        """Remove the items with these numbers, and return them; None for each that is not here."""
        if self._runs:
            numbers = [*numbers]
            for number in numbers:
                if number not in self.single:
                    self._scatter(number)
        return message_loops.popEach(self.single, numbers)

    def popRuns(self, numbers: range) -> list[MessageRun] | None:
        """Remove messages that are all in runs, and return these parts; None if others are among them."""
        number, end, step = numbers.start, numbers.stop, self._step
        place = bisect_right(self._starts, number) - 1
        if place < 0 or numbers.step != step:
            return None
        if self._starts[place] == number and len(self._runs[place].payloads) == len(numbers):  # mostly
            del self._starts[place]
            self._count -= len(numbers)
            return [self._runs.pop(place)]
        if (number - self._starts[place]) % step or number >= self._end(place):
            return None
        last = place
        while self._end(last) < end:
            last += 1
            if last == len(self._starts) or self._starts[last] != self._end(last - 1):
                return None
        found = []
        while number < end:
            start, run = self._starts.pop(place), self._runs.pop(place)
            self._count -= len(run)
            stop = start + len(run) * step
            part = run
            if start < number or end < stop:
                part = run.part((number - start) // step, (min(stop, end) - start) // step)
                if end < stop:
                    self._putPart(range(end, stop, step), run)
                if start < number:
                    self._putPart(range(start, number, step), run, isFirst=True)
                    place = bisect_left(self._starts, number)
            found.append(part)
            number = min(stop, end)
        return found

    def _putPart(self, numbers: range, run: MessageRun, isFirst: bool = False) -> None:
        count, length = len(numbers), len(run)
        self.putRun(numbers, run.part(0, count) if isFirst else run.part(length - count, length))

    def _scatter(self, number: int) -> bool:
        """Make the run with this number single; False if there is none."""
        place = self._placeOf(number)
        if place is None:
            return False
        start, run = self._starts.pop(place), self._runs.pop(place)
        self._count -= len(run)
        self.put(range(start, start + len(run) * self._step, self._step), self._itemsOf(run))
        return True

    def _placeOf(self, number: int) -> int | None:
        """Return which run has a number, None if none has it."""
        if not self._runs:
            return None
        place = bisect_right(self._starts, number) - 1
        isHere = place >= 0 and number < self._end(place) and not (number - self._starts[place]) % self._step
        return place if isHere else None

    def _end(self, place: int) -> int:
        return self._starts[place] + len(self._runs[place].payloads) * self._step

    def clear(self) -> None:
        """Remove all."""
        self.single.clear()
        self._starts.clear()
        self._runs.clear()
        self._count = 0
