"""Lake tables as queries and replays see them: with every row, in any folder, in each format."""

from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

_NEEDED = ("deltalake", "pyiceberg", "sqlalchemy")
if not skip and (absent := [name for name in _NEEDED if find_spec(name) is None]):
    skip = f"{absent[0]} is not installed"

if not skip:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import functions as F

    from fleximq.pipeline import lake
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.jobs.replay_source import ofLake
    from fleximq.pipeline.jobs.upkeep import Keep
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.expiration import expireDays
    from fleximq.pipeline.lake.iceberg import catalogOf
    from fleximq.pipeline.lake.live_files import liveFiles
    from fleximq.pipeline.lake.table import parquet_writer
    from fleximq.pipeline.lake.table.columns import TableColumns
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from fleximq.pipeline.query.tables import lakeTable
    from fleximq.pipeline.reader.offsets import EARLIEST, LATEST
    from tests.pipeline.lake.tables import DAY, TIME, commit, makeTable, rows
    from tests.pipeline.session import sharedSession

    _AT_ONCE = CompactionGoal(1 << 20, -1e9, 2)
FORMATS = ("parquet", "delta", "iceberg")
#: Folders with characters that mean something in a pattern, a URL or a name of Hive's.
FOLDERS = ("a b", "ä", "lake[1]", "%", "p%20q", "h#i", "q?r", "b\\c", "{s}*", "x=1", "a:b,c")


class LakeTableCase(SynchronousTestCase):
    """Makes tables."""

    def make(self, tableFormat: str, lake: str | None = None, fields: Any = None, layout: str | None = None) -> str:
        """Return a new table of a format."""
        table = f"{Path(lake or self.mktemp()).absolute()}/messages"
        self.columns = TableColumns("json", fields or pa.schema([]))
        makeTable(table, tableFormat, layout, self.columns)
        return table

    def publish(self, table: str, number: int, time: int = 1_700_000_000_000_000, **more: Any) -> None:
        """Publish a batch of three rows."""
        start = number * 3 + 1
        found = rows(range(start, start + 3), time=time, schema=self.columns.schema, **more)
        commit(table, number, found, schema=self.columns.schema)

    def offsets(self, found: Any) -> list[int]:
        """Return the offsets of some rows."""
        return sorted(row.offset for row in found.select("offset").collect())


class DaysTests(LakeTableCase):
    """Days that no calendar of Java's had before its version 8."""

    def test_daysLeftOutInOctober1582AreFound(self) -> None:
        table = self.make("parquet", fields=pa.schema([("day", pa.date32())]))
        self.publish(table, 0, day=[date(1582, 10, 5), date(1582, 10, 10), date(1582, 10, 12)])
        found = lakeTable(sharedSession().newSession(), table)
        self.assertEqual(self.offsets(found.where("day = DATE '1582-10-10'")), [2])


class PlacesTests(LakeTableCase):
    """Lakes in odd folders."""

    def test_allJobsAndReadersFindTheTableInEachFormat(self) -> None:
        for tableFormat in FORMATS:
            for number, name in enumerate(FOLDERS):
                folder = f"{self.mktemp()}-{tableFormat}{number}/{name}"
                if tableFormat == "delta" and name in ("p%20q", "b\\c"):
                    error = self.assertRaises(LakeRefused, self.make, tableFormat, folder)
                    self.assertIn("cannot be of format delta: deltalake cannot use a path with", str(error))
                    continue
                table = self.make(tableFormat, folder)
                for batch in range(3):
                    self.publish(table, batch)
                list(compact(table, _AT_ONCE))
                self.publish(table, 3)
                self.assertEqual(lake.audit(table), [], (tableFormat, name))
                self.assertEqual(len(liveFiles(table)), 2, (tableFormat, name))
                found = lakeTable(sharedSession(), table)
                self.assertEqual(self.offsets(found), list(range(1, 13)), (tableFormat, name))
                self.assertEqual(found.select("date").distinct().count(), 1, (tableFormat, name))
                if tableFormat == "iceberg":
                    opened = catalogOf(str(Path(table).parent), None).load_table(("lake", "messages"))
                    self.assertEqual(opened.scan().to_arrow().num_rows, 12, name)


class LiveRowsTests(LakeTableCase):
    """A replay reads the rows that are live, each once."""

    def test_mergedAndExpiredFilesAreNotRead(self) -> None:
        for tableFormat in FORMATS:
            table = self.make(tableFormat)
            for batch in range(3):
                self.publish(table, batch)
            self.publish(table, 3, TIME - 40 * DAY)
            list(compact(table, _AT_ONCE))
            expireDays(table, [Keep(None, 10 * 86_400.0)], TIME / 1e6 + 60)
            span = ofLake(sharedSession(), table, {}, EARLIEST, LATEST)
            self.assertEqual(self.offsets(span(None)), list(range(1, 10)), tableFormat)
            self.assertEqual(span(None).select("topic").distinct().collect()[0].topic, "t")


class NumbersTests(LakeTableCase):
    """NaN, which Spark takes for larger than all numbers, in columns of DOUBLE and FLOAT."""

    def asked(self, table: str) -> list[int]:
        """Return how many rows a few conditions select."""
        found = lakeTable(sharedSession(), table)
        conditions = ("x > 100", "x = double('NaN')", "f > 100", "x <= 100", "x < 2 and topic = 't'")
        return [found.where(condition).count() for condition in conditions]

    def test_nanIsFoundInFilesOfEachVersion(self) -> None:
        fields = pa.schema([("x", pa.float64()), ("f", pa.float32()), ("n", pa.int64())])
        numbers = [1.0, 2.0, float("nan")]
        real = parquet_writer.parquetOptions

        def bounded(schema: pa.Schema, isSorted: bool, rowBytes: int) -> dict[str, Any]:
            found = real(schema, isSorted, rowBytes)
            return {**found, "write_statistics": [*found["write_statistics"], "x", "f"]}

        for tableFormat in FORMATS:
            table = self.make(tableFormat, fields=fields)
            self.publish(table, 0, x=numbers, f=numbers, n=[1, 2, 3])
            ((path, _),) = liveFiles(table)
            group = pq.read_metadata(f"{table}/{path}").row_group(0)
            columns = {group.column(each).path_in_schema: group.column(each) for each in range(group.num_columns)}
            self.assertEqual([columns[each].is_stats_set for each in ("x", "f", "n")], [False, False, True])
            self.assertEqual(self.asked(table), [1, 1, 1, 2, 1], tableFormat)
            self.patch(parquet_writer, "parquetOptions", bounded)
            self.publish(table, 1, x=numbers, f=numbers, n=[1, 2, 3])
            self.patch(parquet_writer, "parquetOptions", real)
            self.assertEqual(self.asked(table), [2, 2, 2, 4, 2], tableFormat)
            list(compact(table, _AT_ONCE))
            self.assertEqual(self.asked(table), [2, 2, 2, 4, 2], tableFormat)
            plain = sharedSession().read.parquet(*(f"{table}/{path}" for path, _ in liveFiles(table)))
            self.assertEqual(plain.where(F.col("x") > 100).count(), 2, tableFormat)
