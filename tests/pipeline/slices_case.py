"""A journal that is read in slices, from its folder or through its broker."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip
from tests.pipeline.written import TIME, Written

if not skip:
    from fleximq.pipeline.files.selection import Selection

COLUMNS = ("offset", "topic", "value")


class SlicesCase(SynchronousTestCase):
    """``written`` is a journal; what readers say is missing is in ``missing``."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.written = Written(str(self.folder), segmentBytes=20_000)
        self.missing: list[Any] = []

    def opened(self) -> Any:
        """Return a new reader of the journal."""
        raise NotImplementedError

    def batches(self, part: Any, selection: Any) -> Iterable[Any]:
        """Return what a task reads of a slice."""
        raise NotImplementedError

    def read(self, slices: list[Any], selection: Any = None) -> dict[int, tuple[str, bytes]]:
        """Return what is in slices; that no record comes twice, and all in their order, is seen to."""
        found: dict[int, tuple[str, bytes]] = {}
        for part in slices:
            for batch in self.batches(part, selection or Selection()):
                for row in batch.to_pylist():
                    self.assertTrue(not found or row["offset"] > max(found))
                    found[row["offset"]] = row["topic"], row["value"]
        return found

    def all(self, start: int = 0, end: int | None = None, **more: Any) -> dict[int, tuple[str, bytes]]:
        """Return what a new reader finds in a range."""
        journal = self.opened()
        return self.read(journal.slices(start, journal.end().offset if end is None else end, **more))

    @property
    def rows(self) -> dict[int, tuple[str, bytes]]:
        """What was written."""
        return {offset: (topic, payload) for offset, (topic, _, payload) in self.written.rows.items()}

    @property
    def lost(self) -> list[tuple[int, int]]:
        """The ranges that readers say are missing."""
        return [(each.first, each.next) for each in self.missing]

    def fill(self, rounds: int = 60) -> None:
        """Write records of two topics, in several segments, a second for each round."""
        for number in range(rounds):
            self.written.time = TIME + number * 1_000_000
            self.written.kept("a", *[b"%d" % number * 50] * 10)
            self.written.kept("b", b"one")


class AnySlices:
    """What holds of slices wherever they are read; for a :class:`SlicesCase`."""

    def test_anyRangeIsReadInAnyNumberOfParts(self: Any) -> None:
        self.fill(12)
        rows = self.rows
        journal = self.opened()
        for start in range(0, 140, 7):
            for end in range(start, 140, 9):
                expected = {offset: row for offset, row in rows.items() if start <= offset < end}
                for parts in (1, 3):
                    self.assertEqual(self.read(journal.slices(start, end, parts=parts)), expected)
        self.assertEqual(self.missing, [])

    def test_sameReaderSeesAddedRecordsAndReadsNoOthers(self: Any) -> None:
        journal = self.opened()
        self.fill(2)
        self.assertEqual(self.read(journal.slices(0, journal.end().offset)), self.rows)
        for _ in range(40):
            before = journal.end().offset
            self.written.kept("a", b"more" * 300)
            self.assertEqual(list(self.read(journal.slices(before, journal.end().offset))), [before])
