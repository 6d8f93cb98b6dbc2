"""What planning keeps of journals from one query to the next, and the filters that it takes from Spark."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files import frame_scan
from fleximq.journal.files.frame_scan import CompleteFrame, DamagedRange, Window
from tests.pipeline.installed import missing as skip
from tests.pipeline.written import Written

if not skip:
    from pyspark.sql.datasource import (
        DataSourceReader,
        EqualNullSafe,
        EqualTo,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        IsNull,
        LessThan,
        LessThanOrEqual,
        Not,
        StringContains,
        StringStartsWith,
    )

    from fleximq.pipeline.files import segment_lookup
    from fleximq.pipeline.files.selection import FOREVER, NEVER, Selection, Topics
    from fleximq.pipeline.reader import batch_reader
    from fleximq.pipeline.reader.batch_reader import BatchReader, pushed
    from fleximq.pipeline.reader.source_options import SourceOptions

MOMENT = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=70)


class PlanningTests(SynchronousTestCase):
    """One query after the other over the same folder."""

    if skip:
        skip = skip

    def setUp(self) -> None:
        """A journal with one frame."""
        self.folder = str(Path(self.mktemp()).absolute())
        self.written = Written(self.folder)
        self.written.kept("a", b"1")

    def read(self, folder: str = "") -> list[int]:
        """Plan a query anew, and return the offsets that it reads."""
        options = SourceOptions.of({"path": folder or self.folder})
        reader = BatchReader(options, ["offset"])
        return [
            offset
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for offset in batch.column(0).to_pylist()
        ]

    def test_framesAreInspectedOnceForSeveralQueries(self) -> None:
        looked: list[int] = []

        def framesOf(
            window: Window, segment: int | None, start: int, atHead: bool
        ) -> Iterator[CompleteFrame | DamagedRange]:
            looked.append(start)
            return frame_scan.framesOf(window, segment, start, atHead)

        self.patch(segment_lookup, "framesOf", framesOf)
        self.assertEqual([self.read(), self.read()], [[1], [1]])
        self.assertEqual(looked, [0])
        self.written.kept("a", b"2")
        self.read()
        self.assertEqual(len(looked), 2)
        self.assertGreater(looked[1], 0)

    def test_newRecordsAreRead(self) -> None:
        self.assertEqual(self.read(), [1])
        self.written.kept("a", b"2", b"3")
        self.assertEqual(self.read(), [1, 2, 3])

    def test_otherJournalInTheFolderIsRead(self) -> None:
        self.read()
        self.written.journal.close()
        Path(self.folder).rename(f"{self.folder}-before")
        other = Written(self.folder)
        other.kept("b", b"x", b"y")
        self.assertEqual(self.read(), [1, 2])
        self.assertEqual(self.read(f"{self.folder}-before"), [1])

    def test_oldestPathsAreForgotten(self) -> None:
        self.patch(batch_reader, "_known", lru_cache(2)(batch_reader._known.__wrapped__))
        for number in range(3):
            folder = f"{self.folder}{number}"
            Written(folder).kept("a", b"1")
            self.read(folder)
        for number, misses in ((1, 3), (2, 3), (0, 4)):
            self.read(f"{self.folder}{number}")
            self.assertEqual(batch_reader._known.cache_info().misses, misses)


class PushdownTests(SynchronousTestCase):
    """What becomes of each filter."""

    def taken(self, *filters: Any) -> Any:
        """Return the selection behind filters that are all taken."""
        selection, rest = pushed(filters, Selection())
        self.assertEqual(rest, [])
        return selection

    def test_comparisonsOfOffsetAndTimeAreExactRanges(self) -> None:
        for kind, start, end in [
            (EqualTo, 70, 71), (EqualNullSafe, 70, 71), (GreaterThan, 71, None), (GreaterThanOrEqual, 70, None),
            (LessThan, None, 70), (LessThanOrEqual, None, 71),
        ]:  # fmt: skip
            until = FOREVER if end is None else end
            self.assertEqual(self.taken(kind(("offset",), 70)), Selection(start=start or 0, end=until))
            since = NEVER if start is None else start
            self.assertEqual(self.taken(kind(("timestamp",), MOMENT)), Selection(since=since, until=until))

    def test_filtersNarrowEachOther(self) -> None:
        selection = self.taken(
            GreaterThan(("offset",), 3), LessThan(("offset",), 9), GreaterThan(("offset",), 1), IsNotNull(("offset",))
        )
        self.assertEqual(selection, Selection(start=4, end=9))

    def test_namesAndPrefixesOfTopicsArePushed(self) -> None:
        self.assertEqual(self.taken(EqualTo(("topic",), "a")).topics, Topics(frozenset("a")))
        self.assertEqual(self.taken(In(("topic",), ("a", "b"))).topics, Topics(frozenset("ab")))
        self.assertEqual(self.taken(StringStartsWith(("topic",), "a")).topics, Topics(prefixes=("a",)))

    def test_otherFiltersAreLeftToSpark(self) -> None:
        filters = [
            EqualTo(("publisher",), 5), Not(EqualTo(("topic",), "a")), StringContains(("topic",), "a"),
            IsNull(("offset",)), IsNotNull(("key",)), EqualTo(("headers", "key"), "a"), EqualTo(("topic",), 5),
            EqualTo(("offset",), "5"), In(("offset",), (1, 2)), LessThan(("timestamp",), datetime(2020, 1, 1)),
        ]  # fmt: skip
        self.assertEqual(pushed(filters, Selection()), (Selection(), filters))

    def test_readerTakesFiltersThoughSparkSeesNone(self) -> None:
        reader = BatchReader(SourceOptions(("/j",), pushFilters=True), ("offset",))
        self.assertIs(reader.pushFilters.__func__, DataSourceReader.pushFilters)
        other = EqualTo(("publisher",), 5)
        self.assertEqual(list(reader.pushFilters([EqualTo(("offset",), 5), other])), [other])
        self.assertEqual(reader._selection, Selection(start=5, end=6))

    def test_withoutTheOptionAllFiltersAreLeftToSpark(self) -> None:
        reader = BatchReader(SourceOptions(("/j",)), ("offset",))
        filters = [EqualTo(("offset",), 5)]
        self.assertEqual((list(reader.pushFilters(filters)), reader._selection), (filters, Selection()))
