"""``fleximq-pipeline ingest``: topics become tables."""

import json
import os
from argparse import ArgumentParser
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from fleximq.errors import JournalError
from fleximq.values.message import Content
from tests.nightly import nightly, repetitions
from tests.pipeline.installed import missing as skip
from tests.pipeline.lake.iceberg_case import skip as noIceberg
from tests.pipeline.written import TIME, Written

if not skip:
    import msgspec
    import pyarrow.parquet as pq

    from fleximq.pipeline import lake
    from fleximq.pipeline.errors import DeadLettersFound, LakeRefused, LeftBehind, OptionRefused, sentenceOf
    from fleximq.pipeline.jobs.describe import DESCRIBE
    from fleximq.pipeline.jobs.ingest import INGEST
    from fleximq.pipeline.jobs.upkeep import BACKFILL, REDECODE
    from fleximq.pipeline.lake.batch_commit import BatchCommit
    from fleximq.pipeline.lake.live_files import dataFiles
    from fleximq.pipeline.lake.table.ledger import Gap
    from fleximq.pipeline.lake.table.lock import writerLock
    from fleximq.pipeline.lake.table.table_spec import TableSpec, tableOf
    from tests.pipeline.jobs.fake_run import FakeRun, runJob
    from tests.pipeline.session import sharedSession

if not noIceberg:
    from fleximq.pipeline.lake.iceberg.iceberg_log import IcebergLog


class IngestCase(SynchronousTestCase):
    """``written`` is a journal, and ``lake`` a folder."""

    def setUp(self) -> None:
        self.spark = sharedSession()
        self.parent = Path(self.mktemp()).absolute()
        self.parent.mkdir()
        self.folder = str(self.parent / "journal")
        self.lake = str(self.parent / "lake")
        self.table = f"{self.lake}/messages"
        self.written = Written(self.folder, segmentBytes=20_000)

    def ingest(self, *words: str, **tables: Any) -> "FakeRun":
        """Ingest until all is in."""
        run = FakeRun()
        INGEST.run(self.chosen(*words, "--once", **tables), run)
        return run

    def failed(self, *words: str) -> str:
        """Return the sentence with which an ingest ends."""
        try:
            self.ingest(*words)
        except Exception as error:
            return sentenceOf(error)
        self.fail("it did not end with an error")
        return ""

    def chosen(self, *words: str, table: Any = None) -> Any:
        """Return what these words choose."""
        parser = ArgumentParser()
        INGEST.prepare(parser)
        chosen = parser.parse_args(["--journal", self.folder, "--lake", self.lake, *words])
        if table is not None:
            chosen.table = table
        return chosen

    def rows(self, table: str = "messages", *columns: str) -> list[tuple[Any, ...]]:
        """Return what plain Spark reads, in the order of the offsets."""
        found = self.spark.read.parquet(f"{self.lake}/{table}").orderBy("journal", "offset")
        return [tuple(row) for row in found.select(*(columns or ("topic", "offset", "value"))).collect()]

    def fill(self, number: int, topic: str = "t") -> None:
        """Publish so many records, each in a frame of its own."""
        for _ in range(number):
            self.written.kept(topic, b"%d" % self.written.next)


class RawTests(IngestCase):
    """Payloads as they are."""

    def test_withoutTablesAllTopicsAreInTheTableMessagesWithAllColumnsOfTheSource(self) -> None:
        header = msgspec.msgpack.encode({"topic": "a/b", "key": "k"})
        self.written.kept("a/b", b"1", b"2", header=header)
        self.written.kept("c", b"3")
        run = self.ingest()
        found = self.spark.read.parquet(self.table).orderBy("offset")
        self.assertEqual(
            found.columns,
            "journal topic offset timestamp publisher dialect headers key value content reason date".split(),
        )
        source = self.spark.read.format("fleximq").load(self.folder).orderBy("offset")
        self.assertEqual(found.select(source.columns).collect(), source.collect())
        self.assertEqual([str(row.date) for row in found.collect()], ["2023-11-14"] * 3)
        self.assertEqual(lake.audit(self.table), [])
        spans = [file.spans for file in dataFiles(self.table)]
        self.assertEqual(spans, [[(self.written.id, 1, 3, 3, 0)]])
        self.assertEqual("3 rows are in", run.said[-1])

    def test_fieldsThatDifferInCapitalsAreColumnsAndTheOneThatCannotIsToldOnce(self) -> None:
        """Fields whose names differ only in capitals are columns, as are those beside a number that is too large, and
        one with the name of a folder; one that can be none is told once.
        """
        first = b'{"userId":1,"userid":2,"USERID":3,"fleximq_topic":"x","s":{"b":1,"B":2}}'
        self.written.kept("a", first, b'{"n":1e400,"m":1}', dialect="identity", content=Content.TEXT)
        run = self.ingest("--table", "t=#:json", "--layout", "topic")
        found = self.rows("t", "userId", "userid_", "USERID__", "fleximq_topic", "fleximq_topic_", "s", "m", "reason")
        self.assertEqual(found[0], (1.0, 2.0, 3.0, "a", "x", (1.0,), None, None))
        self.assertEqual(found[1][-1], "'n' is no DOUBLE: Number out of range")
        told = [line for line in run.said if "are no columns" in line]
        self.assertEqual(len(told), 1)
        self.assertIn("table t: the fields 's.B' are no columns, only value has them", told[0])

    @nightly
    def test_secondRunTakesNewRecordsOnly(self) -> None:
        self.fill(30)
        self.ingest("--max-offsets", "7")
        self.assertEqual([row[1] for row in self.rows()], list(range(1, 31)))
        self.ingest()
        self.fill(5)
        self.ingest()
        self.ingest()
        self.assertEqual([row[1] for row in self.rows()], list(range(1, 36)))
        self.assertEqual(lake.ranges(self.table), {self.written.id: lake.Covered(1, 36, 35)})

    def test_anyNameOfATopicIsKeptAndLateMessagesAreFiledUnderTheirDay(self) -> None:
        names = ["007", "1e5", "2024-01-31", "NaN", "a b=c%/{x}", "größe", "$stats/x", "__HIVE_DEFAULT_PARTITION__"]
        for number, name in enumerate(names):
            self.written.time = TIME - number * 86_400_000_000
            self.written.kept(name, b"")
        self.ingest()
        self.assertEqual([row[0] for row in self.rows()], names)
        self.assertEqual(
            [str(row[0]) for row in self.rows("messages", "date")][:3], ["2023-11-14", "2023-11-13", "2023-11-12"]
        )

    def test_topicsThatAreNumbersStayTexts(self) -> None:
        for name in ("007", "7", "1.50"):
            self.written.kept(name, b"")
        self.ingest("--layout", "topic")
        found = self.spark.read.parquet(self.table).orderBy("offset").select("topic", "fleximq_topic").collect()
        self.assertEqual([tuple(row) for row in found], [(name, name) for name in ("007", "7", "1.50")])

    def test_longNameIsWholeInTheFileAndItsFolderIsAscii(self) -> None:
        name = "ж" * 150
        self.written.kept(name, b"1")
        self.ingest("--layout", "topic")
        (path,) = Path(self.table).glob("fleximq_topic=*/*/*.parquet")
        self.assertTrue(str(path.relative_to(self.table)).isascii(), path)
        self.assertEqual(pq.ParquetFile(path).read(["topic"]).column("topic").to_pylist(), [name])
        self.assertEqual(next(dataFiles(self.table)).topic, name)

    def test_tableBeginsAtTheStartingOffset(self) -> None:
        self.fill(10)
        self.ingest("--starting", "6")
        self.assertEqual([row[1] for row in self.rows()], [6, 7, 8, 9, 10])
        self.assertEqual(lake.ranges(self.table)[self.written.id].first, 6)

    def test_ingestGoesOnUntilItIsStopped(self) -> None:
        run = FakeRun()
        thread = Thread(target=INGEST.run, args=(self.chosen("--trigger", "100ms"), run))
        thread.start()
        try:
            for turn in range(1, 4):
                self.fill(5)
                self._wait(lambda turn=turn: self._count() == 5 * turn)
        finally:
            run.stopping.set()
            thread.join(300)
        self.assertFalse(thread.is_alive())
        self.assertEqual([row[1] for row in self.rows()], list(range(1, 16)))
        self.assertIn("ingested", run.done)

    def _count(self) -> int:
        path = Path(self.table, "_fleximq", "ledger")
        return sum(covered.rows for covered in lake.ranges(self.table).values()) if path.exists() else 0

    def _wait(self, isSo: Any) -> None:
        limit = monotonic() + 300
        while not isSo():
            self.assertLess(monotonic(), limit, "it did not come")
            sleep(0.05)


class DecodedTests(IngestCase):
    """Payloads as columns."""

    def publish(self, *values: Any, topic: str = "t") -> None:
        """Publish values as MessagePack."""
        self.written.kept(topic, *(msgspec.msgpack.encode(value) for value in values))

    def test_columnsAreFoundRecordedAndAddedAlsoInLaterRuns(self) -> None:
        self.publish({"a": 1}, {"a": 2, "b": "x"})
        self.ingest("--decode", "messagepack")
        self.publish({"a": 3, "c": [1.5]})
        self.ingest("--decode", "messagepack")
        self.publish({"d": {"e": True}})
        self.ingest("--decode", "messagepack")
        self.assertEqual(
            self.rows("messages", "a", "b", "c", "d.e", "reason"),
            [
                (1, None, None, None, None),
                (2, "x", None, None, None),
                (3, None, [1.5], None, None),
                (None, None, None, True, None),
            ],
        )
        recorded = json.loads(Path(self.table, "_fleximq", "schema").read_text())
        self.assertEqual(recorded["fields"], "a DOUBLE, b STRING, c ARRAY<DOUBLE>, d STRUCT<e: BOOLEAN>")

    def test_columnsThatDifferentTasksFindAreUnited(self) -> None:
        for number in range(4000):
            self.publish({"n": number, f"c{number // 1000}": 1.5 if number % 2 else 1})
        self.patch(__import__("fleximq.pipeline.jobs.ingest", fromlist=["x"]), "TASK_BYTES", 70_000)
        self.ingest("--decode", "messagepack")
        found = self.spark.read.parquet(self.table)
        counts = found.selectExpr("count(n)", "count(c0)", "count(c3)", "count(reason)").collect()
        self.assertEqual([row[:] for row in counts], [(4000, 1000, 1000, 0)])

    def test_payloadThatDoesNotFitIsADeadLetterWithBytesAndReason(self) -> None:
        self.publish({"a": 1}, {"a": "no number"})
        self.written.kept("t", b"\xc1")
        self.publish({"a": 2})
        run = FakeRun()
        chosen = self.chosen("--decode", "messagepack", "--schema", "a INT", "--once", "--strict")
        error = self.assertRaises(DeadLettersFound, INGEST.run, chosen, run)
        self.assertEqual(error.exitCode, 3)
        self.assertIn("2 messages became dead letters, which --strict does not allow", str(error))
        why = "'a' is no INT: expected `int`, got `str`"
        said = f"warning: table messages, batch 0: 2 of 4 rows are dead letters; the first: {why}"
        self.assertEqual(run.said[1:2], [said])
        self.assertIn("4 rows are in", run.said[-1])
        self.assertIn("2 of them dead letters", run.said[-1])
        found = self.rows("messages", "topic", "offset", "a", "value", "reason")
        self.assertEqual([row[:3] for row in found], [("t", 1, 1), ("t~dlq", 2, None), ("t~dlq", 3, None), ("t", 4, 2)])
        self.assertEqual([row[4] is None for row in found], [True, False, False, True])
        self.assertEqual(found[2][3], b"\xc1")
        self.assertEqual(lake.audit(self.table), [])

    def test_fractionAfterWholeNumbersFitsUnlessTheFieldIsAnInteger(self) -> None:
        for values in ({"temp": 20, "id": 1}, {"temp": 21.5, "id": 2}, {"temp": 22, "id": 2.5}):
            self.publish(values)
            self.ingest("--decode", "messagepack", "--integers", "id")
        found = self.rows("messages", "topic", "temp", "id")
        self.assertEqual(found, [("t", 20.0, 1), ("t", 21.5, 2), ("t~dlq", None, None)])

    def test_widenedSchemaKeepsOlderRowsAndRedecodeBringsDeadLettersBack(self) -> None:
        self.publish({"a": 1, "b": 5}, {"a": 2**40})
        self.ingest("--decode", "messagepack", "--schema", "a INT")
        self.publish({"a": 2**41})
        self.ingest("--decode", "messagepack", "--schema", "a BIGINT, b INT")
        wanted: list[tuple[Any, ...]] = [("t", 1, None), ("t~dlq", None, None), ("t", 2**41, None)]
        self.assertEqual(self.rows("messages", "topic", "a", "b"), wanted)
        run = self.job(REDECODE, "--table", "messages")
        self.assertEqual(run.said, ["table messages: 1 of 2 files replaced, 1 dead letters brought back, 0 remain"])
        wanted = [("t", 1, 5), ("t", 2**40, None), ("t", 2**41, None)]
        self.assertEqual(self.rows("messages", "topic", "a", "b"), wanted)
        self.assertEqual(lake.audit(self.table), [])

    def test_laterTableSaysWhereItBeginsAndBackfillAddsTheRest(self) -> None:
        self.publish({"a": 1}, {"a": 2})
        self.ingest()
        words = ("--table", "messages=#", "--table", "late=t:messagepack")
        run = self.ingest(*words)
        said = (
            f"the table late begins where the checkpoint is, at offset 3 of journal {self.written.id}: fleximq-pipeline"
        )
        self.assertIn(f"{said} backfill late --lake {self.lake}", run.said[0])
        self.publish({"a": 3})
        self.assertNotIn("begins", " ".join(self.ingest(*words).said))
        self.assertEqual(self.rows("late", "offset", "a"), [(3, 3.0)])
        run = self.job(BACKFILL, "late", "--journal", self.folder)
        place = f"it begins at offset 1 of journal {self.written.id}"
        self.assertEqual(run.said, [f"table late: 2 rows added, 0 of them dead letters; {place}"])
        self.assertEqual(self.rows("late", "offset", "a"), [(1, 1.0), (2, 2.0), (3, 3.0)])
        run = self.job(BACKFILL, "late", "--from", "messages")
        self.assertEqual(run.said, ["table late: 0 rows added, 0 of them dead letters; nothing is earlier"])
        self.assertRaises(OptionRefused, self.job, BACKFILL, "late")

    def job(self, job: Any, *words: str) -> "FakeRun":
        """Run another job over the lake."""
        return runJob(job, "--lake", self.lake, *words)

    def test_recordedTypeStaysAndALaterMisfitIsADeadLetter(self) -> None:
        self.publish({"a": 1})
        self.ingest("--decode", "messagepack")
        self.publish({"a": "x", "b": 2})
        self.ingest("--decode", "messagepack")
        self.assertEqual(self.rows("messages", "topic", "a", "b"), [("t", 1, None), ("t~dlq", None, None)])

    def test_payloadOfNoFormatIsADeadLetterBeforeAnyColumnIsKnown(self) -> None:
        self.written.kept("t", b"\xc1")
        self.ingest("--decode", "messagepack")
        ((topic, reason),) = self.rows("messages", "topic", "reason")
        self.assertEqual(topic, "t~dlq")
        self.assertTrue(reason)

    def test_eachTableHasTopicsAndAFormatOfItsOwnOrTheDefaultOfDecode(self) -> None:
        self.publish({"a": 1})
        self.written.kept("j", b'{"a": 1}', dialect="identity", content=Content.TEXT)
        tables = ("one=t", "two=t:raw", "json=j:json")
        words = [word for each in tables for word in ("--table", each)]
        self.ingest("--decode", "messagepack", "--schema", "a INT", *words)
        self.assertEqual(self.rows("one", "a"), [(1,)])
        self.assertEqual(self.rows("two", "value"), [(b"\x81\xa1a\x01",)])
        self.assertEqual(self.rows("json", "a"), [(1,)])

    def test_metadataAndBase64OfIdentityAreTakenApart(self) -> None:
        """A field of a payload may be called as the column of the metadata is."""
        self.written.kept("x", b"aGVsbG8=||sent=5", dialect="identity", content=Content.TEXT)
        self.written.kept("a", b'{"metadata":1,"b":2}||k=v', dialect="identity", content=Content.TEXT)
        wanted = {"name": "plain", "topics": ["x"], "identity-metadata": True, "identity-base64": True}
        self.ingest(table=[tableOf("table", wanted), TableSpec("t", ("a",), "json", metadata=True)])
        self.assertEqual(self.rows("plain", "body", "metadata"), [(b"hello", {"sent": "5"})])
        self.assertEqual(self.rows("t", "metadata_", "b", "metadata", "reason"), [(1.0, 2.0, {"k": "v"}, None)])

    def test_tableKeepsItsFormatAndAColumnItsType(self) -> None:
        self.publish({"a": 1})
        self.ingest("--decode", "messagepack")
        error = self.assertRaises(LakeRefused, self.ingest, "--decode", "json")
        self.assertIn("has payloads as messagepack and cannot go on with json", str(error))
        error = self.assertRaises(LakeRefused, self.ingest, "--decode", "messagepack", "--schema", "a STRING")
        self.assertIn("has a DOUBLE and cannot take a STRING: only whole numbers become wider", str(error))

    @nightly
    def test_schemaMayGetColumnsInALaterRun(self) -> None:
        self.publish({"a": 1, "b": 2})
        self.ingest("--decode", "messagepack", "--schema", "a INT")
        self.publish({"a": 3, "b": 4})
        self.ingest("--decode", "messagepack", "--schema", "a INT, b INT")
        self.assertEqual(self.rows("messages", "a", "b"), [(1, None), (3, 4)])


class FailureTests(IngestCase):
    """It ends, and goes on."""

    def test_crashAtAnyStepOfACommitLeavesEachRowOnce(self) -> None:
        self.fill(10)
        self.ingest()
        steps = [("before", "publish"), ("after", "publish"), ("before", "_writeIntent"), ("after", "_writeIntent")]
        for when, name in steps[:: repetitions(3, 1)]:
            self.fill(10)
            real = getattr(BatchCommit, name)

            def ends(*arguments: Any, real: Any = real, when: str = when, **more: Any) -> Any:
                if when == "after":
                    real(*arguments, **more)
                raise LakeRefused("the driver ends here")

            patch = self.patch(BatchCommit, name, ends)
            self.assertIn("the driver ends here", self.failed())
            patch.restore()
            self.fill(3)
            self.ingest()
            self.assertEqual([row[1] for row in self.rows()], list(range(1, self.written.next)), (when, name))
            self.assertEqual(lake.audit(self.table), [])

    def test_crashBetweenTwoTablesOfABatchGivesTheSecondItsRowsLater(self) -> None:
        self.fill(10)
        real = BatchCommit.publish

        def ends(publishing: Any, *arguments: Any) -> Any:
            if publishing.table.endswith("two"):
                raise LakeRefused("the driver ends here")
            return real(publishing, *arguments)

        patch = self.patch(BatchCommit, "publish", ends)
        tables = ("--table", "one=#", "--table", "two=#")
        self.failed(*tables)
        self.assertEqual(len(self.rows("one")), 10)
        patch.restore()
        self.fill(4)
        self.ingest(*tables)
        for name in ("one", "two"):
            self.assertEqual([row[1] for row in self.rows(name)], list(range(1, 15)))

    def test_refusedTableHoldsNoOtherBackAndCatchesUpLater(self) -> None:
        """A table whose format refuses a batch keeps no other back, and gets all when it is mended; both are said."""
        if noIceberg:
            raise SkipTest(noIceberg)
        real = IcebergLog.commit

        def commit(log: Any, *arguments: Any) -> None:
            if log._table.endswith("two"):
                raise LakeRefused("it is refused")
            real(log, *arguments)

        tables = ("--table", "one=#", "--table", "two=#", "--format", "iceberg")
        self.fill(4)
        self.ingest(*tables)
        patch = self.patch(IcebergLog, "commit", commit)
        self.fill(4)
        run = FakeRun()
        error = self.assertRaises(LeftBehind, INGEST.run, self.chosen(*tables, "--once", "--max-offsets", "2"), run)
        command = f"it is refused; fleximq-pipeline repair --lake {self.lake} --table two tries it again"
        self.assertEqual(str(error), f"tables were left behind: two; {command}")
        self.assertIn(f"warning: table two is left behind, the others go on: {command}", run.said)
        self.assertEqual([lake.ranges(f"{self.lake}/{name}")[self.written.id].next for name in ("one", "two")], [9, 5])
        told = runJob(DESCRIBE, "--lake", self.lake)
        self.assertIn("Tables that their ingest has left behind", told.printed)
        self.assertIn(command, told.printed)
        patch.restore()
        # It needs no new message.
        run = self.ingest(*tables)
        self.assertIn("table two has all messages again", run.said)
        self.fill(2)
        self.ingest(*tables)
        for name in ("one", "two"):
            self.assertEqual(lake.audit(f"{self.lake}/{name}"), [])
            self.assertEqual(lake.ranges(f"{self.lake}/{name}")[self.written.id], lake.Covered(1, 11, 10))

    def test_checkpointOfAnotherTableOrNoneIsRefused(self) -> None:
        self.fill(10)
        self.ingest("--max-offsets", "5")
        self.fill(3)
        other = self.parent / "other"
        said = self.failed("--checkpoint", str(other))
        self.assertIn(f"there is no checkpoint in {other}, which says where the table {self.table} goes on", said)
        self.assertIn(f"then run fleximq-pipeline backfill NEW --lake {self.lake} --from messages", said)
        self.ingest("--checkpoint", str(other), "--table", "new=#")
        self.fill(1)
        said = self.failed("--checkpoint", str(other))
        self.assertIn("the checkpoint is not that of this table", said)
        self.assertNotIn("\n", said)
        self.assertEqual(len(self.rows()), 10)
        self.ingest()
        self.assertEqual(len(self.rows()), 14)

    def test_secondIngestIntoATableIsRefused(self) -> None:
        self.fill(1)
        self.ingest()
        with writerLock(self.table):
            error = self.assertRaises(LakeRefused, self.ingest)
        self.assertIn("another ingest feeds it", str(error))

    def test_secondIngestIntoALakeNeedsItsOwnCheckpoint(self) -> None:
        self.fill(1)
        self.ingest("--table", "one=#")
        with writerLock(self.lake):
            error = self.assertRaises(LakeRefused, self.ingest, "--table", "two=#")
            self.assertIn("a second one needs other tables and a --checkpoint of its own", str(error))
            self.ingest("--table", "two=#", "--checkpoint", str(self.parent / "other"))
        self.assertEqual(len(self.rows("two")), 1)

    def test_taskThatCannotWriteEndsInOneSentenceAndNothingIsVisible(self) -> None:
        self.fill(10)
        self.ingest()
        self.fill(10)
        staging = Path(self.table, "_fleximq", "staged")
        staging.rmdir()
        staging.symlink_to("/dev/full")
        real = BatchCommit.makeFolders
        patches = [self.patch(BatchCommit, name, lambda *_: None) for name in ("makeFolders", "removeStaged")]
        said = self.failed()
        self.assertIn(f"the table {self.table} cannot be written: not a directory", said)
        self.assertEqual(len(self.rows()), 10)
        for patch in patches:
            patch.restore()
        self.assertIs(BatchCommit.makeFolders, real)
        staging.unlink()
        self.ingest()
        self.assertEqual(len(self.rows()), 20)

    def test_damagedJournalNamesTheOffsetsOrLeavesAGap(self) -> None:
        self.fill(1000)
        first = sorted(name for name in os.listdir(self.folder) if name.endswith(".fxj"))[0]
        with open(f"{self.folder}/{first}", "r+b") as file:
            file.seek(10_000)
            file.write(b"\xff" * 300)
        said = self.failed()
        self.assertIn("bytes are damaged", said)
        self.assertIn("failOnDataLoss=false", said)
        self.ingest("--allow-data-loss")
        covered = lake.ranges(self.table)[self.written.id]
        self.assertEqual((covered.first, covered.next), (1, 1001))
        (gap,) = covered.gaps
        self.assertTrue(gap.lost)
        self.assertIsInstance(gap, Gap)
        self.assertEqual(
            [row[1] for row in self.rows()], [each for each in range(1, 1001) if not gap.first <= each < gap.next]
        )
        self.assertEqual(lake.audit(self.table), [])


class OptionTests(IngestCase):
    """What is refused."""

    def test_wrongTablesAndOptionsAreRefused(self) -> None:
        for words, sentence in (
            (("--table", "_x=#"), "a table cannot be called '_x'"),
            (("--table", "x"), "must be NAME=PATTERN"),
            (("--table", "x=a,"), "must be NAME=PATTERN"),
            (("--table", "x=a,,b:json"), "must be NAME=PATTERN"),
            (("--table", "x=#", "--table", "x=y"), "--table names 'x' twice"),
            (("--decode", "xml"), "has payloads as 'xml', but there are only"),
            (("--schema", "a INT"), "has a schema, which is only for messagepack and json"),
            (("--consumer-group", "g"), "--consumer-group needs --url or --lag-url"),
        ):
            given = ("--journal", self.folder, "--lake", self.lake, *words)
            self.assertRaisesRegex((Exception, SystemExit), sentence, runJob, INGEST, *given)

    def test_missingJournalLeavesNoLake(self) -> None:
        chosen = self.chosen()
        chosen.journal = [self.folder + "s"]
        self.assertIn("is no journal", str(self.assertRaises(JournalError, INGEST.run, chosen, FakeRun())))
        self.assertFalse(os.path.exists(self.lake))

    def test_lakeIsRequired(self) -> None:
        chosen = self.chosen()
        chosen.lake = None
        self.assertRaisesRegex(OptionRefused, "--lake FOLDER or URL is needed", INGEST.run, chosen, FakeRun())
