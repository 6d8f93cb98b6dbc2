"""Journals as tables: ``spark.read.format("fleximq")``."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip
from tests.pipeline.written import TIME, Written

if not skip:
    from pyspark.errors import PySparkException

    from fleximq.pipeline.files.schema import COLUMNS, SCHEMA
    from tests.pipeline.session import sharedSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class BatchCase(SynchronousTestCase):
    """``written`` is a journal with 30 records of three topics in ``folder``, still open."""

    def setUp(self) -> None:
        self.spark = sharedSession()
        self.parent = Path(self.mktemp()).absolute()
        self.parent.mkdir()
        self.folder = str(self.parent / "one")
        self.written = self.fill(self.folder)

    def fill(self, folder: str) -> Written:
        """Return a journal that has some records."""
        written = Written(folder, segmentBytes=2000)
        for number in range(10):
            written.time = TIME + number * 1_000_000
            written.publish("news", b"n%d" % number)
            written.publish("news.late", b"l%d" % number, header=msgpack.packb({"key": "k", "n": number}), publisher=8)
            written.publish("sport", b"s%d" % number, dialect="minimq")
            written.commit()
        return written

    def load(self, path: Any = None, **options: str) -> Any:
        """Return the table."""
        return self.spark.read.format("fleximq").options(**options).load(path or self.folder)

    def offsets(self, table: Any) -> list[int]:
        """Return the offsets of a table's rows, in order."""
        return sorted(row.offset for row in table.select("offset").collect())

    def fails(self, table: Any) -> str:
        """Return what is said when a table is read, which fails."""
        return str(self.assertRaises(PySparkException, lambda: table().collect()))


class TableTests(BatchCase):
    """What there is to read."""

    def test_everyRecordIsARowWithAllColumns(self) -> None:
        rows = sorted(self.load().collect(), key=lambda row: row.offset)
        self.assertEqual([row.offset for row in rows], list(range(1, 31)))
        self.assertEqual(
            rows[4].asDict(),
            {
                "journal": self.written.id,
                "topic": "news.late",
                "offset": 5,
                "timestamp": rows[4].timestamp,
                "publisher": 8,
                "dialect": "fleximq",
                "headers": {"key": "k", "n": "1"},
                "key": b"k",
                "value": b"l1",
            },
        )
        self.assertEqual((rows[5].dialect, rows[5].headers, rows[5].key), ("minimq", None, None))
        seconds = self.load().selectExpr("unix_micros(timestamp) AS at", "offset").collect()
        self.assertEqual({row.offset: row.at for row in seconds}[5], TIME + 1_000_000)

    def test_columnsAreThoseOfTheDocumentation(self) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = self.load().schema
        self.assertEqual(tuple(schema.fieldNames()), COLUMNS)
        self.assertTrue(to_arrow_schema(schema, timezone="UTC").equals(SCHEMA))

    def test_emptyJournalIsAnEmptyTable(self) -> None:
        empty = Written(str(self.parent / "empty"))
        self.assertEqual(self.load(empty.folder).collect(), [])

    def test_laterRecordsAreInTheNextQuery(self) -> None:
        table = self.load()
        self.assertEqual(table.count(), 30)
        self.written.kept("news", b"more")
        self.assertEqual(self.load().count(), 31)

    def test_journalIsATableOfSql(self) -> None:
        self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW kept USING fleximq OPTIONS (path '{self.folder}')")
        rows = self.spark.sql("SELECT topic, count(*) AS n FROM kept GROUP BY topic ORDER BY topic").collect()
        self.assertEqual([tuple(row) for row in rows], [("news", 10), ("news.late", 10), ("sport", 10)])

    def test_columnsAreChosenByAnOptionOrASchema(self) -> None:
        table = self.load(columns="value,offset")
        self.assertEqual(table.columns, ["value", "offset"])
        self.assertEqual(sorted(row.value for row in table.collect())[0], b"l0")
        chosen = self.spark.read.format("fleximq").schema("offset BIGINT, topic STRING").load(self.folder)
        self.assertEqual(sorted(chosen.collect())[2], (3, "sport"))
        wrong = self.spark.read.format("fleximq").schema("offset STRING")
        self.assertIn("no column offset of type string", self.fails(lambda: wrong.load(self.folder)))

    def test_eachRowIsThereOnceInAnyNumberOfPartitions(self) -> None:
        table = self.load(minPartitions="4")
        self.assertGreater(table.rdd.getNumPartitions(), 1)
        self.assertEqual(self.offsets(table), list(range(1, 31)))


class ChoiceTests(BatchCase):
    """What of it is read."""

    def test_topicsAreNamesOrARegularExpressionOrAPattern(self) -> None:
        for options, topics in [
            ({"subscribe": "news,sport"}, {"news", "sport"}),
            ({"subscribePattern": "news.*"}, {"news", "news.late"}),
            ({"topics": "news.*"}, {"news.late"}),
            ({"subscribe": "nothing"}, set()),
        ]:
            found = {row.topic for row in self.load(**options).select("topic").collect()}
            self.assertEqual(found, topics)

    def test_rangesOfOffsetsAndTimesExcludeTheirEnd(self) -> None:
        at = (TIME + 3_000_000) // 1000
        for options, start, end in [
            ({"startingOffsets": "7", "endingOffsets": "12"}, 7, 12),
            ({"startingOffsets": f'{{"{self.written.id}": 20}}'}, 20, 31),
            ({"startingOffsets": "latest"}, 31, 31),
            ({"startingTimestamp": str(at)}, 10, 31),
            ({"endingTimestamp": (_EPOCH + timedelta(milliseconds=at)).isoformat()}, 1, 10),
            ({"startingOffsetsByTimestamp": f'{{"{self.written.id}": {at + 1}}}'}, 13, 31),
        ]:
            self.assertEqual(self.offsets(self.load(**options)), list(range(start, end)), options)

    def test_filtersGiveTheSameRowsPushedOrNot(self) -> None:
        conditions = [
            "offset >= 7 AND offset < 12",
            "topic = 'news' AND offset > 10",
            "topic IN ('news', 'sport') AND publisher = 7",
            "topic LIKE 'news.%'",
            f"timestamp >= timestamp_micros({TIME + 10**6}) AND timestamp < timestamp_micros({TIME + 3 * 10**6})",
            "topic IS NOT NULL AND key = X'6B'",
        ]
        expected = [[7, 8, 9, 10, 11], list(range(13, 31, 3)), [o for o in range(1, 31) if o % 3 != 2],
                    list(range(2, 31, 3)), [4, 5, 6, 7, 8, 9], list(range(2, 31, 3))]  # fmt: skip
        self.addCleanup(self.spark.conf.unset, PUSHDOWN)
        for setting in ("false", "true"):
            self.spark.conf.set(PUSHDOWN, setting)
            for condition, offsets in zip(conditions, expected, strict=True):
                for push in ("false", "true"):
                    found = self.offsets(self.load(pushFilters=push).where(condition))
                    self.assertEqual(found, offsets, (setting, push, condition))

    def test_pushedFilterIsNotRepeatedBySpark(self) -> None:
        self.addCleanup(self.spark.conf.unset, PUSHDOWN)
        self.spark.conf.set(PUSHDOWN, "true")
        for push in ("true", "false"):
            table = self.load(pushFilters=push).where("offset >= 7")
            plan = table._jdf.queryExecution().executedPlan().toString()
            self.assertEqual("Filter (" in plan, push == "false")

    def test_eachUseOfATableHasItsOwnConditions(self) -> None:
        self.addCleanup(self.spark.conf.unset, PUSHDOWN)
        self.spark.conf.set(PUSHDOWN, "true")
        table = self.load()
        self.assertEqual(table.where("topic = 'news'").count(), 10)
        self.assertEqual(table.count(), 30)
        low, high = table.where("offset < 5"), table.where("offset >= 5")
        self.assertEqual(low.union(high).count(), 30)

    def test_credentialsAreInNoPlan(self) -> None:
        table = self.load(
            consumerGroup="g", lagUrl="tcp://127.0.0.1:1", token="opensesame", credentials='{"k": "opensesame"}'
        )
        self.assertNotIn("opensesame", table._jdf.queryExecution().toString())


class SeveralTests(BatchCase):
    """Several brokers' journals at once."""

    def test_globOrListOfFoldersIsOneTable(self) -> None:
        other = self.fill(str(self.parent / "two"))
        for path in (f"{self.parent}/*", [self.folder, other.folder]):
            rows = self.load(path).groupBy("journal").count().collect()
            self.assertEqual({row.journal: row["count"] for row in rows}, {self.written.id: 30, other.id: 30})
        some = self.load(f"{self.parent}/*", startingOffsets=f'{{"{other.id}": 21}}')
        self.assertEqual(some.count(), 40)

    def test_pathWithoutAJournalIsRefused(self) -> None:
        self.assertIn("is no journal: it has no file identity", self.fails(lambda: self.load(str(self.parent))))
        self.assertIn("there is no journal in", self.fails(lambda: self.load(f"{self.parent}/x*")))


class LossTests(BatchCase):
    """What is not there any more."""

    def test_removedOffsetIsAnErrorOrBeginsLater(self) -> None:
        for path in sorted(Path(self.folder).glob("*.fxj"))[:1]:
            path.unlink()
        first = self.offsets(self.load())[0]
        self.assertGreater(first, 1)
        words = self.fails(lambda: self.load(startingOffsets="1"))
        self.assertIn(f"has no offsets 1 to {first - 1} any more: retention has removed them", words)
        self.assertEqual(self.offsets(self.load(startingOffsets="1", failOnDataLoss="false"))[0], first)

    def test_damageNamesTheOffsetsOrIsPassedOver(self) -> None:
        self.written.kept("news", b"A1", b"A2", b"A3")
        self.written.kept("news", b"whole")
        path = next(path for path in Path(self.folder).glob("*.fxj") if b"A2" in path.read_bytes())
        path.write_bytes(path.read_bytes().replace(b"A2", b"XX"))
        self.assertIn("offsets 31 to 33: bytes are damaged: the check sum is wrong", self.fails(self.load))
        self.assertEqual(self.offsets(self.load(failOnDataLoss="false")), [*range(1, 31), 34])

    def test_wrongOptionIsOneSentence(self) -> None:
        self.assertIn("the source has no option 'subscibe'", self.fails(lambda: self.load(subscibe="a")))
