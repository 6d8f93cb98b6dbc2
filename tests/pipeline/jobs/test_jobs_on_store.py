"""Each job on a lake in an object store, in each format, with Spark in those that use it."""

import json
from importlib.util import find_spec
from io import StringIO
from typing import Any

from fleximq.config.argument_parser import CommandParser
from tests.pipeline.installed import missing
from tests.pipeline.jobs.test_replay import ReplayCase
from tests.pipeline.local_query.needed import missing as noQuery
from tests.pipeline.object_store import profile, sharedStore, useStore
from tests.pipeline.written import Written

skip = missing or noQuery or (None if find_spec("s3fs") and find_spec("boto3") else "s3fs or boto3 is not installed")

if not skip:
    import msgpack

    from fleximq.pipeline.command.job import Job
    from fleximq.pipeline.jobs import replay_source
    from fleximq.pipeline.jobs.catalog import CATALOG
    from fleximq.pipeline.jobs.describe import DESCRIBE
    from fleximq.pipeline.jobs.ingest import INGEST
    from fleximq.pipeline.jobs.sql import SQL
    from fleximq.pipeline.jobs.upkeep import AUDIT, BACKFILL, COMPACT, EXPIRE, REDECODE, REPAIR
    from fleximq.pipeline.local_query.command import QueryRequest, runQuery
    from tests.pipeline.jobs.fake_run import FakeRun, runJob
    from tests.pipeline.session import setProfile

#: The topics and payloads of each batch; one ``a`` is no INT.
_FIRST = [("t.old", 1), ("t.old", 2**40), ("t.new", 3), ("t.new", 4)]
_LATER = [("t.new", 5), ("t.new", 6)]


class ParquetTests(ReplayCase):
    """``lake`` is in the store; ``schema`` is that of an ingest, and ``wider`` that to which it is mended."""

    format, package = "parquet", "pyarrow"
    schema, wider = "a INT", "a BIGINT, b DOUBLE"

    def setUp(self) -> None:
        if find_spec(self.package) is None:
            self.skipTest(f"{self.package} is not installed")
        super().setUp()
        store = sharedStore()
        useStore(self, store.endpoint)
        setProfile(profile(store.endpoint))
        self.lake = store.newPrefix()
        self.written = Written(str(self.folder / "journal"))
        self.addCleanup(self.written.close)

    def keep(self, messages: list[tuple[str, int]]) -> None:
        """Publish messages."""
        for topic, number in messages:
            self.written.kept(topic, msgpack.packb({"a": number, "b": number / 2}))

    def ingest(self, *tables: str, mended: bool = False) -> str:
        """Ingest until all is in, and return the last line."""
        parser, run = CommandParser(prog="ingest"), FakeRun()
        INGEST.prepare(parser)
        named = [word for name in tables for word in ("--table", f"{name}=#:messagepack")]
        common = ("--journal", self.written.folder, "--lake", self.lake, "--format", self.format)
        schema = self.wider if mended else self.schema
        INGEST.run(parser.parse_args([*common, "--once", "--schema", schema, *named]), run)
        return run.said[-1]

    def job(self, job: "Job", *words: str) -> str:
        """Run a job on the lake, and return its output and its last line."""
        run = runJob(job, *words, "--lake", self.lake)
        return run.printed + "".join(run.said[-1:])

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the answer of Spark, which is that of DuckDB."""
        found = [json.loads(line) for line in self.job(SQL, query, "--format", "json").splitlines()]
        out = StringIO()
        runQuery(QueryRequest(query, lake=self.lake, format="json"), out, self.fail)
        self.assertEqual([json.loads(line) for line in out.getvalue().splitlines()], found)
        return found

    def offsets(self, table: str, where: str = "true") -> list[int]:
        """Return the offsets of the rows of a table."""
        return [row["offset"] for row in self.rows(f'select "offset" from {table} where {where} order by 1')]

    def test_ingestContinuesAndEveryReaderFindsItsRows(self) -> None:
        self.keep(_FIRST)
        self.assertIn("4 rows are in", self.ingest("early"))
        self.keep(_LATER)
        self.assertIn("2 rows are in", self.ingest("early"))
        self.assertEqual(self.offsets("early"), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.offsets("early", "topic = 't.new' and date = date '2023-11-14'"), [3, 4, 5, 6])
        (counted,) = self.rows("select count(*) as n, sum(a) as a, max(octet_length(value)) as most from early")
        self.assertEqual(counted, {"n": 6, "a": 1 + 3 + 4 + 5 + 6 + self.late(), "most": 23})
        (described,) = json.loads(self.job(DESCRIBE, "--format", "json"))["tables"]
        (covered,) = described["journals"]
        self.assertEqual((described["format"], described["schema"].split(", ")[-1]), (self.format, self.schema))
        self.assertEqual((covered["first"], covered["next"], covered["rows"]), (1, 7, 6))
        (shown,) = json.loads(self.job(CATALOG, "--format", "json"))["tables"]
        self.assertEqual((shown["format"], shown["rows"], shown["files"]), (self.format, 6, 2))
        self.assertEqual(self.job(AUDIT), "table early: complete, 6 rows\n")

    def late(self) -> int:
        """Return the sum of the values that fit the first schema and no INT."""
        return 0 if self.schema == "a INT" else 2**40

    def test_jobsThatMaintainALakeLoseAndRepeatNothing(self) -> None:
        self.keep(_FIRST)
        self.ingest("early")
        self.keep(_LATER)
        self.ingest("early", "late", "other")
        self.assertEqual(self.offsets("late"), [5, 6])
        self.assertIn("4 rows added", self.job(BACKFILL, "late", "--journal", self.written.folder))
        self.assertIn("4 rows added", self.job(BACKFILL, "other", "--from", "early"))
        self.assertIn("nothing is earlier", self.job(BACKFILL, "late", "--from", "early"))
        self.job(REDECODE, "--table", "early", "--schema", self.wider)
        self.job(COMPACT, "--many", "2")
        self.assertIn("nothing is to be completed", self.job(REPAIR))
        for table in ("early", "late", "other"):
            self.assertEqual(self.offsets(table), [1, 2, 3, 4, 5, 6])
        (total,) = self.rows("select sum(a) as a, sum(b) as b, count(reason) as dead from early")
        self.assertEqual(total, {"a": 19 + 2**40, "b": (19 + 2**40) / 2, "dead": 0})
        self.assertIn("2 rows in 1 partitions", self.job(EXPIRE, "--table", "early", "--keep", "t.old=1d"))
        self.assertEqual(self.offsets("early"), [3, 4, 5, 6])
        self.keep(_LATER)
        self.ingest("early", "late", "other", mended=True)
        self.assertEqual(self.offsets("early"), [3, 4, 5, 6, 7, 8])
        self.assertEqual(
            self.job(AUDIT).splitlines(),
            ["table early: complete, 6 rows", "table late: complete, 8 rows", "table other: complete, 8 rows"],
        )

    def test_replayPublishesEachRowOnce(self) -> None:
        self.keep(_FIRST + _LATER)
        self.ingest("early")
        for _ in range(2):
            self.replay("--lake", f"{self.lake}/early", "--where", "offset > 1")
            found = [(topic, value["a"]) for topic, value in self.published()]
            self.assertEqual(found, (_FIRST + _LATER)[1:])

    def test_replayThatEndsEarlyGoesOnThoughTheTableHasChanged(self) -> None:
        """It ends in a transaction, before and after the broker has published it."""
        self.keep(_FIRST)
        self.ingest("early")
        self.keep(_LATER)
        self.ingest("early")
        self.patch(replay_source, "ROWS", 2)
        self.patch(replay_source, "_GRAIN", 2)
        table = ("--lake", f"{self.lake}/early")
        self.crashes("commit", 0, *table, before=True)
        self.assertEqual(self.published(), [])
        self.job(COMPACT, "--many", "2")
        self.crashes("commit", 1, *table, before=False)
        self.keep(_LATER)
        self.ingest("early")
        self.assertEqual(self.replay(*table)[-1], "6 messages were published")
        self.assertEqual([(topic, value["a"]) for topic, value in self.published()], _FIRST + _LATER)


class DeltaTests(ParquetTests):
    """Delta Lake, which widens no column."""

    format, package = "delta", "deltalake"
    schema = "a BIGINT"


class IcebergTests(ParquetTests):
    """Iceberg, in the lake's own catalog."""

    format, package = "iceberg", "pyiceberg"
