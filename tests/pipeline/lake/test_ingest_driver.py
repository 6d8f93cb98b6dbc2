"""What tasks stage and tell, and what the driver makes of it; without Spark."""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    import msgspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
    from fleximq.pipeline.files.slice_reader import Missing
    from fleximq.pipeline.lake.batch_commit import writing
    from fleximq.pipeline.lake.checkpoint import checkCheckpoint, checkpointOffsets, syncOffsets
    from fleximq.pipeline.lake.column_changes import addColumns
    from fleximq.pipeline.lake.ingest_driver import TableIngest
    from fleximq.pipeline.lake.ingest_task import SAMPLE, stage
    from fleximq.pipeline.lake.table import parquet_writer
    from fleximq.pipeline.lake.table.columns import readColumns
    from fleximq.pipeline.lake.table.ledger import Covered, DeadLetters, Gap, Ledger, readLedger, writeLedger
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from fleximq.pipeline.lake.task_reports import TaskReports
    from tests.pipeline.lake.tables import JOURNAL, offsetsIn, rows, staged


class FeedCase(SynchronousTestCase):
    """``lake`` is a folder."""

    def setUp(self) -> None:
        self.lake = str(Path(self.mktemp()).absolute())

    def feeding(self, *specs: "TableSpec", lossAllowed: bool = False, tableFormat: str = "parquet") -> "TableIngest":
        """Return what feeds these tables, entered."""
        feeding = TableIngest(self.lake, specs, {"format": tableFormat}, lossAllowed)
        feeding.__enter__()
        self.addCleanup(feeding.__exit__)
        return feeding

    def batch(self, *values: Any, topic: str = "t", first: int = 1) -> Any:
        """Return records as the source gives them, with these values as MessagePack."""
        payloads = [msgspec.msgpack.encode(value) for value in values]
        return rows(range(first, first + len(values)), topic, schema=schemaOf(ALL_COLUMNS), value=payloads)

    def ingest(self, specs: Any, *values: Any, number: int = 0, first: int = 1, tableFormat: str = "parquet") -> None:
        """Commit a batch with these values to tables."""
        with TableIngest(self.lake, specs, {"format": tableFormat}, False) as feeding:
            batch = self.batch(*values, first=first)
            while feeding.evolve(told := self.told(specs, batch)):
                pass
            feeding.publish(number, told)

    def told(self, specs: Any, *batches: Any, missing: Any = (), end: int | None = None) -> "TaskReports":
        """Return what a task tells of batches of the one journal."""
        last = end or max(batch.column("offset")[-1].as_py() for batch in batches) + 1
        first = batches[0].column("offset")[0].as_py()
        bounds = json.dumps({"start": {JOURNAL: first}, "end": {JOURNAL: last}, "gaps": {}})
        return TaskReports.of([bounds, *stage(self.lake, specs, JOURNAL, 0, batches, missing)])


class StageTests(FeedCase):
    """What a task does."""

    def test_newColumnsAreToldBeforeAnythingIsStaged(self) -> None:
        specs = [TableSpec("s", decode="messagepack")]
        feeding = self.feeding(*specs)
        batches = [self.batch({"a": 1}), self.batch({"a": 1.5, "b": "x"}, first=2)]
        told = self.told(specs, *batches)
        self.assertEqual((told.staged, staged(f"{self.lake}/s")), ({}, []))
        self.assertTrue(feeding.evolve(told))
        columns = readColumns(f"{self.lake}/s")
        self.assertEqual(columns and columns.fields, pa.schema([("a", pa.float64()), ("b", pa.string())]))
        told = self.told(specs, *batches)
        self.assertFalse(feeding.evolve(told))
        self.assertEqual(feeding.publish(0, told), 2)
        self.assertEqual(offsetsIn(f"{self.lake}/s"), [1, 2])

    def test_columnRecordedMeanwhileKeepsItsType(self) -> None:
        specs = [TableSpec("s", decode="messagepack")]
        feeding = self.feeding(*specs)
        told = self.told(specs, self.batch({"a": "x", "b": "y"}))
        addColumns(f"{self.lake}/s", [pa.schema([("a", pa.float64())])])
        feeding.evolve(told)
        columns = readColumns(f"{self.lake}/s")
        self.assertEqual(columns and columns.fields, pa.schema([("a", pa.float64()), ("b", pa.string())]))

    def test_ledgerCountsDeadLettersWithTheFirstReason(self) -> None:
        specs = [TableSpec("s", decode="messagepack", schema="a INT")]
        self.ingest(specs, {"a": 1}, {"a": "x"}, {"a": 1.5})
        self.ingest(specs, {"a": 2}, number=1, first=4)
        self.ingest(specs, {"a": "y"}, number=2, first=5)
        ledger = readLedger(f"{self.lake}/s")
        self.assertEqual(ledger.journals[JOURNAL].dead, 3)
        why = "'a' is no INT: expected `int`, got `str`"
        self.assertEqual(ledger.dead, (DeadLetters(0, 3, 2, why), DeadLetters(2, 1, 1, why)))
        self.assertEqual(str(ledger.dead[0]), f"batch 0: 2 of 3 rows are dead letters; the first: {why}")

    def test_tableWithoutABatchBeginsAtTheCheckpoint(self) -> None:
        early, late = TableSpec("early"), TableSpec("late")
        self.ingest([early], 1, 2)
        with TableIngest(self.lake, [early, late], {"format": "parquet"}, False) as feeding:
            self.assertEqual(feeding.beginAt({JOURNAL: 3}), ["late"])
            self.assertEqual(feeding.beginAt({JOURNAL: 3}), [])
        self.assertEqual(readLedger(f"{self.lake}/late").journals, {JOURNAL: Covered(3, 3)})
        self.ingest([early, late], 3, number=1, first=3)
        self.assertEqual(readLedger(f"{self.lake}/late").journals, {JOURNAL: Covered(3, 4, 1)})

    def test_someRecordsOfALargeBatchAreInspectedWithFirstAndLast(self) -> None:
        specs = [TableSpec("s", decode="messagepack")]
        self.feeding(*specs)
        values: list[dict[str, int]] = [{"a": 1}] * (3 * SAMPLE)
        values[0], values[1], values[-1] = {"first": 1}, {"unseen": 1}, {"last": 1}
        (found,) = self.told(specs, self.batch(*values)).fields["s"]
        self.assertEqual(found.names, ["first", "a", "last"])

    def test_eachTableGetsItsTopics(self) -> None:
        specs = [TableSpec("one", ("a",)), TableSpec("two", ("#",)), TableSpec("none", ("x",))]
        feeding = self.feeding(*specs)
        both = pa.Table.from_batches([self.batch(1, topic="a"), self.batch(2, topic="b", first=2)])
        told = self.told(specs, both.combine_chunks().to_batches()[0])
        self.assertEqual(feeding.publish(0, told), 3)
        self.assertEqual([offsetsIn(f"{self.lake}/{spec.name}") for spec in specs], [[1], [1, 2], []])
        self.assertTrue(readLedger(f"{self.lake}/none").covers({JOURNAL: 3}))

    def test_failedTaskRemovesItsFilesAndALaterAttemptStagesAll(self) -> None:
        specs = [TableSpec("s")]
        feeding = self.feeding(*specs)
        self.patch(parquet_writer, "GROUP_BYTES", 1)

        def broken() -> Iterator[Any]:
            yield self.batch(1)
            self.assertEqual(len(staged(f"{self.lake}/s")), 1)
            raise RuntimeError("the task ends here")

        self.assertRaises(RuntimeError, list, stage(self.lake, specs, JOURNAL, 0, broken(), []))
        self.assertEqual(staged(f"{self.lake}/s"), [])
        feeding.publish(0, self.told(specs, self.batch(1)))
        self.assertEqual(offsetsIn(f"{self.lake}/s"), [1])

    def test_fileThatCannotBeWrittenIsOneSentence(self) -> None:
        specs = [TableSpec("s")]
        self.feeding(*specs)
        os.rmdir(f"{self.lake}/s/_fleximq/staged")
        error = self.assertRaises(LakeRefused, self.told, specs, self.batch(1))
        self.assertEqual(str(error), f"the table {self.lake}/s cannot be written: no such file or directory")

    def test_fullDiskIsOneSentence(self) -> None:
        with self.assertRaises(LakeRefused) as raised, writing("/lake/s"):
            writer = pq.ParquetWriter("/dev/full", pa.schema([("a", pa.int64())]))
            writer.write_table(pa.table({"a": list(range(100_000))}))
            writer.close()
        self.assertEqual(str(raised.exception), "the table /lake/s cannot be written: no space left on device")

    def test_missingRecordsAreAGapOfEveryTable(self) -> None:
        specs = [TableSpec("s")]
        feeding = self.feeding(*specs, lossAllowed=True)
        told = self.told(specs, self.batch(1), missing=[Missing(2, 5, "bytes are damaged")], end=5)
        feeding.publish(0, told)
        self.assertEqual(readLedger(f"{self.lake}/s").journals[JOURNAL].gaps, (Gap(2, 5, "bytes are damaged", True),))


class OffsetsTests(SynchronousTestCase):
    """What Spark remembers."""

    def test_offsetsAreSyncedWhereTheyAre(self) -> None:
        folder = Path(self.mktemp())
        syncOffsets(str(folder), 3)
        (folder / "offsets").mkdir(parents=True)
        (folder / "offsets" / "3").write_text("v1")
        synced: list[bool] = []
        self.patch(os, "fsync", lambda descriptor: synced.append(True))
        syncOffsets(str(folder), 3)
        self.assertEqual(len(synced), 2)

    def test_commandForALostCheckpointCanBePasted(self) -> None:
        table = Path(self.mktemp(), "my lake", "t")
        (table / "_fleximq").mkdir(parents=True)
        writeLedger(str(table), Ledger(batch=0))
        error = self.assertRaises(LakeRefused, checkCheckpoint, str(table / "none"), [str(table)])
        self.assertIn(f"--lake {shlex.quote(str(table.parent))} --from t", str(error))

    def test_lastCommittedBatchSaysWhereTheNextBegins(self) -> None:
        folder = Path(self.mktemp())
        self.assertEqual(checkpointOffsets(str(folder)), {})
        for name in ("commits", "offsets"):
            (folder / name).mkdir(parents=True)
        for number in (9, 10, 11):
            (folder / "offsets" / str(number)).write_text(f'v1\n{{}}\n{{"{JOURNAL}": {number}}}')
        for number in (9, 10):
            (folder / "commits" / str(number)).write_text("v1\n{}")
        self.assertEqual(checkpointOffsets(str(folder)), {JOURNAL: 10})
