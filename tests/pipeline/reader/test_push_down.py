"""Filters that the source takes from Spark."""

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

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

    from fleximq.pipeline.files.selection import FOREVER, NEVER, Selection, Topics
    from fleximq.pipeline.reader.batch_reader import BatchReader
    from fleximq.pipeline.reader.push_down import pushed
    from fleximq.pipeline.reader.source_options import SourceOptions

MOMENT = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=70)


class PushdownTests(SynchronousTestCase):
    """What becomes of each filter."""

    def taken(self, *filters: Any) -> Any:
        """Return the selection behind filters that are all taken."""
        selection, rest = pushed(filters, Selection())
        self.assertEqual(rest, [])
        return selection

    def test_ranges(self) -> None:
        """Comparisons of offset and time are ranges, exact to the unit."""
        for kind, start, end in [
            (EqualTo, 70, 71),
            (EqualNullSafe, 70, 71),
            (GreaterThan, 71, None),
            (GreaterThanOrEqual, 70, None),
            (LessThan, None, 70),
            (LessThanOrEqual, None, 71),
        ]:
            until = FOREVER if end is None else end
            self.assertEqual(self.taken(kind(("offset",), 70)), Selection(start=start or 0, end=until))
            since = NEVER if start is None else start
            self.assertEqual(self.taken(kind(("timestamp",), MOMENT)), Selection(since=since, until=until))

    def test_together(self) -> None:
        """Filters narrow one after the other."""
        selection = self.taken(
            GreaterThan(("offset",), 3), LessThan(("offset",), 9), GreaterThan(("offset",), 1), IsNotNull(("offset",))
        )
        self.assertEqual(selection, Selection(start=4, end=9))

    def test_topics(self) -> None:
        """Names and beginnings of names."""
        self.assertEqual(self.taken(EqualTo(("topic",), "a")).topics, Topics(frozenset("a")))
        self.assertEqual(self.taken(In(("topic",), ("a", "b"))).topics, Topics(frozenset("ab")))
        self.assertEqual(self.taken(StringStartsWith(("topic",), "a")).topics, Topics(prefixes=("a",)))

    def test_rest(self) -> None:
        """Anything else is left to Spark."""
        filters = [
            EqualTo(("publisher",), 5),
            Not(EqualTo(("topic",), "a")),
            StringContains(("topic",), "a"),
            IsNull(("offset",)),
            IsNotNull(("key",)),
            EqualTo(("headers", "key"), "a"),
            EqualTo(("topic",), 5),
            EqualTo(("offset",), "5"),
            In(("offset",), (1, 2)),
            LessThan(("timestamp",), datetime(2020, 1, 1)),
        ]
        self.assertEqual(pushed(filters, Selection()), (Selection(), filters))

    def test_disguise(self) -> None:
        """The reader takes filters, and looks to Spark as if it did not."""
        reader = BatchReader(SourceOptions(("/j",), pushFilters=True), ("offset",))
        self.assertIs(reader.pushFilters.__func__, DataSourceReader.pushFilters)
        other = EqualTo(("publisher",), 5)
        self.assertEqual(list(reader.pushFilters([EqualTo(("offset",), 5), other])), [other])
        self.assertEqual(reader._selection, Selection(start=5, end=6))

    def test_unasked(self) -> None:
        """Without the option all filters are left to Spark."""
        reader = BatchReader(SourceOptions(("/j",)), ("offset",))
        filters = [EqualTo(("offset",), 5)]
        self.assertEqual((list(reader.pushFilters(filters)), reader._selection), (filters, Selection()))
