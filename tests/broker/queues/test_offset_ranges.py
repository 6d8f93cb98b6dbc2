"""Places in the journal, in little memory."""

import sys
from itertools import pairwise

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.queues.offset_ranges import FIRST_VOLATILE, GAP, OffsetRanges

#: Runs of numbers that ascend, as a queue's do: how far behind the one before, and how many.
RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=30)


def filled(runs: list[tuple[int, int]]) -> tuple[OffsetRanges, list[int]]:
    """Return offsets and a list of the same numbers."""
    offsets, next = OffsetRanges(), 1
    numbers: list[int] = []
    for gap, count in runs:
        offsets.append(next + gap, count)
        numbers += range(next + gap, next + gap + count)
        next += gap + count
    return offsets, numbers


class OffsetsTests(SynchronousTestCase):
    """They are a list, whatever is done."""

    @given(RUNS, st.lists(st.integers(0, 12), max_size=20))
    def test_firstInFirstOut(self, runs: list[tuple[int, int]], takes: list[int]) -> None:
        offsets, numbers = filled(runs)
        for number in takes:
            self.assertEqual(offsets.peek(number), numbers[:number])
            self.assertEqual(offsets.take(number), numbers[:number])
            del numbers[:number]
            self.assertEqual((len(offsets), list(offsets)), (len(numbers), numbers))
            self.assertEqual([offsets.first] if numbers else [], numbers[:1])

    @given(RUNS)
    def test_extend(self, runs: list[tuple[int, int]]) -> None:
        _, numbers = filled(runs)
        offsets = OffsetRanges()
        offsets.extend(numbers)
        self.assertEqual((list(offsets), len(offsets)), (numbers, len(numbers)))

    def test_extendWithHoles(self) -> None:
        for numbers in ([2, GAP, 4], [GAP, 1, 2], [GAP, GAP, 2], [5, 6, GAP], [GAP]):
            offsets = OffsetRanges()
            offsets.extend(numbers)
            self.assertEqual((list(offsets), offsets.gaps()), (numbers, numbers.count(GAP)))

    @given(RUNS)
    def test_thereAndBack(self, runs: list[tuple[int, int]]) -> None:
        offsets, numbers = filled(runs)
        offsets.take(3)
        back = OffsetRanges.load(msgpack.unpackb(msgpack.packb(offsets.dump())))
        self.assertEqual((list(back), len(back)), (numbers[3:], len(numbers[3:])))
        back.append(1000)
        self.assertEqual(back.take(1 << 20), [*numbers[3:], 1000])

    @given(RUNS, st.sets(st.integers(1, 40)))
    def test_without(self, runs: list[tuple[int, int]], gone: set[int]) -> None:
        offsets, numbers = filled(runs)
        left = offsets.without(gone)
        self.assertEqual(list(left), [GAP if number in gone else number for number in numbers])
        self.assertEqual((len(left), left.gaps()), (len(numbers), len(gone.intersection(numbers))))

    def test_whatIsNotKept(self) -> None:
        offsets = OffsetRanges()
        for number in (5, FIRST_VOLATILE, FIRST_VOLATILE + 1, 6):
            offsets.append(number)
        self.assertEqual(offsets.take(9), [5, FIRST_VOLATILE, FIRST_VOLATILE + 1, 6])

    def test_clear(self) -> None:
        offsets, _ = filled([(0, 5)])
        offsets.clear()
        self.assertEqual((len(offsets), list(offsets)), (0, []))


class EraseTests(SynchronousTestCase):
    """A number becomes a gap in its place."""

    @given(st.lists(st.integers(1, 5), max_size=30), st.lists(st.integers(1, 120), max_size=10))
    def test_likeAList(self, steps: list[int], erased: list[int]) -> None:
        """Of neighbours and of single numbers, and numbers can be appended and taken afterwards."""
        offsets, plain, last = OffsetRanges(), [], 0
        for step in steps:
            last += step
            offsets.append(last)
            plain.append(last)
        for number in erased:
            self.assertEqual(offsets.erase(number), number in plain)
            plain = [GAP if each == number else each for each in plain]
        offsets.append(last + 1, 2)
        plain += [last + 1, last + 2]
        self.assertEqual((list(offsets), len(offsets), offsets.gaps()), (plain, len(plain), plain.count(GAP)))
        self.assertEqual(offsets.take(len(plain) - 1), plain[:-1])


class MemoryTests(SynchronousTestCase):
    """A million places."""

    def size(self, offsets: OffsetRanges) -> int:
        return sum(sys.getsizeof(part) for part in offsets.parts())

    def test_neighbours(self) -> None:
        offsets = OffsetRanges()
        for number in range(100_000):
            offsets.append(number + 1)
        self.assertLess(self.size(offsets), 100)

    def test_scattered(self) -> None:
        offsets = OffsetRanges()
        for number in range(100_000):
            offsets.append(2 * number + 1)
        self.assertLess(self.size(offsets), 900_000)

    def test_scatteredTogether(self) -> None:
        offsets = OffsetRanges()
        offsets.extend([3 * number + extra for number in range(1, 50_000) for extra in (0, 1)])
        self.assertLess(self.size(offsets), 900_000)
        self.assertTrue(all(first < second for first, second in pairwise(offsets)))


class ErasedTests(SynchronousTestCase):
    """Numbers replaced by gaps, by their indexes."""

    def test_erasedNumbersAreGapsAndTheOthersStay(self) -> None:
        """Whatever the distance between them, and each only once."""
        for step in (1, 2, 3, 5, 50):
            offsets = OffsetRanges()
            offsets.append(1, 300)
            wanted = list(range(1, 301))
            for index in range(0, 300, step):
                self.assertEqual((offsets.eraseAt(index), offsets.eraseAt(index)), (index + 1, 0))
                wanted[index] = 0
            self.assertEqual(([*offsets], len(offsets), offsets.gaps()), (wanted, 300, wanted.count(0)))
            self.assertEqual((offsets.eraseAt(300), offsets.take(300)), (0, wanted))
