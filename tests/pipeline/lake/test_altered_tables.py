"""Another engine changes a table, and its ingest and the jobs go on."""

from importlib.util import find_spec
from typing import Any

from tests.pipeline.installed import missing as skip
from tests.pipeline.lake.iceberg_case import skip as noIceberg
from tests.pipeline.lake.test_ingest_driver import FeedCase

if not skip:
    from fleximq.pipeline.errors import CommitRefused
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.completeness import audit, ranges
    from fleximq.pipeline.lake.expiration import expireDays
    from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
    from fleximq.pipeline.lake.redecoding import redecode
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from tests.pipeline.lake.tables import JOURNAL

if not noIceberg:
    from pyiceberg.types import StringType

    from fleximq.pipeline.lake.iceberg import catalogOf

AT_ONCE = CompactionGoal(1 << 20, -1e9, 2)


class DeltaTests(FeedCase):
    """deltalake changes a table of four batches of two rows."""

    format = "delta"

    if find_spec("deltalake") is None:
        skip = "deltalake is not installed: pip install fleximq[delta]"

    def setUp(self) -> None:
        super().setUp()
        self.table = f"{self.lake}/m"
        self.batches = 0
        for _ in range(4):
            self.publish()

    def publish(self, **more: Any) -> None:
        """Publish two rows."""
        first = self.batches * 2 + 1
        spec = TableSpec("m", decode="messagepack")
        values = [{"a": first + place, **more} for place in range(2)]
        self.ingest([spec], *values, number=self.batches, first=first, tableFormat=self.format)
        self.batches += 1

    def opened(self) -> Any:
        """Return the table as the other engine opens it."""
        from deltalake import DeltaTable

        return DeltaTable(self.table)

    def rows(self) -> Any:
        """Return the rows that the other engine finds."""
        return self.opened().to_pyarrow_table().sort_by("offset")

    def whole(self, **last: Any) -> None:
        """See that all rows are there, for the other engine, for our jobs and by the ledger."""
        wanted = list(range(1, self.batches * 2 + 1))
        found = self.rows()
        self.assertEqual(found["offset"].to_pylist(), wanted)
        self.assertEqual(found["a"].to_pylist(), wanted)
        for name, value in last.items():
            self.assertEqual(found[name].to_pylist()[-1], value)
        self.assertEqual(audit(self.table), [])
        self.assertEqual(ranges(self.table)[JOURNAL].rows, len(wanted))
        ours = [
            row
            for path, topic in liveFiles(self.table)
            for rows in rowGroups(self.table, path, topic)
            for row in rows["offset"].to_pylist()
        ]
        self.assertEqual(sorted(ours), wanted)

    def addColumn(self, name: str) -> None:
        """Add a column of texts, as another engine does."""
        from deltalake import Field
        from deltalake.schema import PrimitiveType

        self.opened().alter.add_columns([Field(name, PrimitiveType("string"))])

    def setProperty(self) -> None:
        """Set a property of the table, as another engine does."""
        self.opened().alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})

    def rewrite(self) -> None:
        """Write all rows into one file, as another engine does."""
        self.assertEqual(self.opened().optimize.compact()["numFilesAdded"], 1)

    def test_rowsOfTheNextBatchHaveNoneOfAColumnThatWasAdded(self) -> None:
        self.addColumn("note")
        self.whole(note=None)
        self.publish()
        self.publish(b="x")
        self.whole(note=None, b="x")

    def test_aColumnThatIngestFindsLaterMayBeThereAlready(self) -> None:
        self.addColumn("note")
        self.publish(note="x")
        self.whole(note="x")

    def test_aColumnOfAnotherTypeLeavesTheBatchRecorded(self) -> None:
        """It says which column it is; no row is lost or there twice."""
        self.addColumn("note")
        error = self.assertRaises(CommitRefused, self.publish, note=1.5)
        self.assertRegex(str(error), "string.*double")
        self.assertEqual(self.rows()["offset"].to_pylist(), list(range(1, 9)))

    def test_aPropertyStays(self) -> None:
        self.setProperty()
        self.publish()
        self.whole()
        self.assertEqual(self.properties()["delta.logRetentionDuration"], "interval 3 days")

    def properties(self) -> Any:
        """Return the properties that the other engine finds."""
        return self.opened().metadata().configuration

    #: Why another engine cannot write files here.
    cannotWrite: str | None = None

    def test_filesThatAnotherEngineHasWrittenAreKeptByAllJobs(self) -> None:
        if self.cannotWrite:
            self.skipTest(self.cannotWrite)
        self.rewrite()
        self.whole()
        self.publish()
        self.publish()
        list(compact(self.table, AT_ONCE))
        self.whole()
        *_, done = redecode(self.table, TableSpec("m", decode="messagepack"))
        self.assertEqual((done.back, done.dead), (0, 0))
        self.whole()
        gone = expireDays(self.table, [("t", 86_400.0)], 1_900_000_000.0)
        self.assertEqual(sum(each.rows[JOURNAL] for each in gone), 12)
        self.assertEqual((audit(self.table), self.rows().num_rows), ([], 0))
        self.publish()
        self.assertEqual((audit(self.table), self.rows()["offset"].to_pylist()), ([], [13, 14]))


class IcebergTests(DeltaTests):
    """PyIceberg changes the table."""

    format = "iceberg"
    skip = noIceberg  # type: ignore[assignment]

    if find_spec("pyiceberg_core") is None:
        cannotWrite = "pyiceberg-core is not installed: pip install 'fleximq[store-tests]'"

    def opened(self) -> Any:
        return catalogOf(self.lake, None).load_table("lake.m")

    def rows(self) -> Any:
        return self.opened().scan().to_arrow().sort_by("offset")

    def addColumn(self, name: str) -> None:
        with self.opened().update_schema() as change:
            change.add_column(name, StringType())

    def setProperty(self) -> None:
        with self.opened().transaction() as transaction:
            transaction.set_properties({"delta.logRetentionDuration": "interval 3 days"})

    def properties(self) -> Any:
        return self.opened().properties

    def rewrite(self) -> None:
        found = self.opened()
        found.overwrite(found.scan().to_arrow())
        self.assertEqual(len(liveFiles(self.table)), 1)
