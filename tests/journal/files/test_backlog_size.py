"""How much stands from an offset on, without reading any file."""

from typing import Any

from fleximq.values.records import BacklogSize
from tests.journal.at_once import published
from tests.journal.retention.test_segment_removal import SECOND, RetentionCase


class WeightsTests(RetentionCase):
    """Segments of five records of ten bytes each, with an empty one before the next segment."""

    def tell(self, *offsets: int) -> list[BacklogSize]:
        """Return what stands from each of these offsets on."""
        return [self.journal.backlogFrom(offset) for offset in offsets]

    def test_nothing(self) -> None:
        """A new journal has nothing."""
        self.assertEqual(self.tell(0, 1, 9), [BacklogSize(0, 0)] * 3)

    def test_written(self) -> None:
        """The segment that is being written counts as far as it is committed."""
        journal: Any = self.journal
        journal.append(*published([b"x" * 10] * 4, "a"), lambda offset, reason: None)
        self.assertEqual(self.tell(1), [BacklogSize(0, 0)])
        journal.worker.drain()
        self.assertEqual(
            self.tell(0, 1, 3, 5, 99),
            [BacklogSize(4, 40), BacklogSize(4, 40), BacklogSize(2, 20), *[BacklogSize(0, 0)] * 2],
        )

    def test_sealed(self) -> None:
        """Segments behind that of the offset count whole, before and after they were asked for."""
        self.fill(("a", 5, 10))
        self.assertEqual(self.tell(1), [BacklogSize(6, 50)])
        self.fill(("a", 5, 10), ("b", 3, 10))
        self.assertEqual(self.journal.segments.all[1].first, 6)
        found = [waiting.records for waiting in self.tell(*range(1, 17))]
        self.assertEqual(found, [*range(15, 0, -1), 0])
        self.assertEqual(self.tell(1), [BacklogSize(15, 130)])

    def test_removed(self) -> None:
        """What was taken out does not count any more."""
        self.fill(("a", 5, 10))
        self.fill(("a", 5, 10), ("b", 2, 10))
        self.assertEqual(self.tell(1)[0].records, 14)
        self.now += 11 * SECOND
        self.clean()
        self.assertEqual(self.tell(1), [BacklogSize(3, 20)])

    def test_again(self) -> None:
        """After a new start it is the same."""
        self.fill(("a", 5, 10))
        self.fill(("b", 3, 10))
        before = self.tell(1, 3, 7)
        self.again()
        self.assertEqual(self.tell(1, 3, 7), before)

    def test_unclean(self) -> None:
        """Offsets that were never given are nothing."""
        self.fill(("b", 5, 10))
        self.again()
        self.fill(("b", 3, 10))
        self.assertGreater(self.journal.segments.nextOffset, 1_000_000_000)
        self.assertEqual([waiting.records for waiting in self.tell(1, 7, 1_000_000_001)], [10, 4, 3])
