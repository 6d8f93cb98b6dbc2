"""Poison: messages that Iceberg has no names or bounds for, and tables whose log refused a batch of them for ever."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from tests.pipeline.lake.iceberg_case import skip
from tests.pipeline.lake.test_ingest_driver import FeedCase

if not skip:
    import msgspec
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import parquet_files_to_data_files

    from fleximq.pipeline.errors import CommitRefused, LakeRefused
    from fleximq.pipeline.lake import audit, column_changes, ingest_task, ranges, staged_files
    from fleximq.pipeline.lake.batch_commit import BatchCommit, pending
    from fleximq.pipeline.lake.column_changes import addColumns
    from fleximq.pipeline.lake.iceberg import catalogOf, iceberg_log
    from fleximq.pipeline.lake.iceberg.data_files import dataFilesOf
    from fleximq.pipeline.lake.ingest_driver import TableIngest
    from fleximq.pipeline.lake.repair import repair
    from fleximq.pipeline.lake.storage.lake_files import FILES
    from fleximq.pipeline.lake.table.column_names import Distinct
    from fleximq.pipeline.lake.table.columns import requiredColumns
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.lake.table.table_log import BatchRange
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from fleximq.pipeline.lake.table_change import TableChange, commitChange
    from tests.pipeline.lake.tables import JOURNAL, Failing, rows, stage

#: Payloads with columns that Iceberg cannot tell apart, and what becomes of them.
AMBIGUOUS: list[tuple[dict[str, Any], list[str]]] = [
    ({"a": {"b": 1}, "a.b": 2}, ["a"]),
    ({"list": [1], "list.element": 2}, ["list"]),
    ({"a.b": 2, "a": {"b": 1, "c": 3}}, ["a.b", "a"]),
    ({"s": {"x": {"y": 1}, "x.y": 2}, "S.X": 3}, ["s"]),
    ({"headers.key": 1, "ok": 2}, ["ok"]),
]
#: The 16th character is the last before the surrogates.
TEXT = "x" * 15 + "\ud7ff" + "tail"


class PoisonCase(FeedCase):
    """``spec`` is a table of any topics, of Iceberg."""

    def setUp(self) -> None:
        super().setUp()
        self.spec = TableSpec("s", decode="messagepack")
        self.table = f"{self.lake}/s"

    def ingested(self, *values: Any, number: int = 0, first: int = 1) -> None:
        """Commit a batch."""
        self.ingest([self.spec], *values, number=number, first=first, tableFormat="iceberg")

    def read(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return some columns as Iceberg has them, by offset."""
        found = catalogOf(self.lake, None).load_table("lake.s").scan().to_arrow().sort_by("offset")
        return list(zip(*(found.column(name).to_pylist() for name in columns), strict=True))

    def names(self) -> list[str]:
        """Return the columns of payloads."""
        found: list[str] = requiredColumns(self.table).fields.names
        return found


class PoisonTests(PoisonCase):
    """What becomes of a message that a table cannot take as it is."""

    def test_fieldWithANameOfIcebergIsNoColumn(self) -> None:
        """A field is no column if Iceberg has its name; the table and later batches are as usual."""
        for payload, names in AMBIGUOUS:
            self.setUp()
            self.ingested(payload)
            self.ingested(payload, {"new": True}, number=1, first=2)
            self.assertEqual(self.names(), [*names, "new"])
            self.assertEqual([row[0] for row in self.read("offset")], [1, 2, 3])
            self.assertEqual(audit(self.table), [])

    def test_laterFieldWithANameOfIcebergIsNoColumn(self) -> None:
        self.ingested({"a": {"b": 1}, "c.d": 1, "c": {"e": 1}})
        self.ingested({"a": {"b": 1}, "a.b": 2, "c": {"d": 2, "f": 2}}, number=1, first=2)
        self.assertEqual(self.names(), ["a", "c.d", "c"])
        self.assertEqual(self.read("c"), [({"e": 1, "f": None},), ({"e": None, "f": 2},)])

    def test_shortNameOfAListElementIsNoColumn(self) -> None:
        """Iceberg leaves ``element`` out of the names of fields in a list; a later field has such a name."""
        self.ingested({"l": [{"element": {"a": 1}}]})
        self.ingested({"l": [{"a": 2, "b": 3}]}, number=1, first=2)
        self.assertEqual(self.read("l"), [([{"element": {"a": 1}, "b": None}],), ([{"element": None, "b": 3}],)])

    def test_taskTellsFieldsThatAreNoColumns(self) -> None:
        self.ingested({"a": {"b": 1}})
        told = self.told([self.spec], self.batch({"a": {"b": 1}, "a.b": 2}, first=2))
        self.assertEqual((told.leftOut, told.fields), ({"s": {"a.b": None}}, {}))

    def test_firstOfTwoTasksWithOneNameHasTheColumn(self) -> None:
        self.ingested({"x": 1})
        addColumns(self.table, [pa.schema([("a.b", pa.int64())]), pa.schema([("a", pa.struct([("b", pa.int64())]))])])
        self.assertEqual(self.names(), ["x", "a.b"])

    def test_givenSchemaWithSuchNamesIsRefused(self) -> None:
        self.spec = TableSpec("s", decode="messagepack", schema="m MAP<STRING, BIGINT>, `m.key` BIGINT")
        error = self.assertRaises(LakeRefused, self.ingested, {})
        self.assertIn("cannot have the column 'm.key': Iceberg has this name for a field in another", str(error))
        self.assertFalse(os.path.exists(self.table))

    def test_textWhoseTruncationIsNoTextHasNoBounds(self) -> None:
        """A text whose truncation is no text leaves its column without bounds in this file; other columns have them."""
        self.ingested({"t": TEXT, "u": "v"})
        self.assertEqual(self.read("t"), [(TEXT,)])
        found = catalogOf(self.lake, None).load_table("lake.s")
        (task,) = found.scan(row_filter=f"t = '{TEXT}' and u = 'v'").plan_files()
        bounds = {found.schema().find_field(journalId).name for journalId in task.file.upper_bounds}
        self.assertTrue(bounds >= {"topic", "offset", "u"} and "t" not in bounds, bounds)

    def test_topicWhoseTruncationIsNoTextIsKept(self) -> None:
        for layout in ("date", "topic"):
            self.setUp()
            specs, batch = [TableSpec("s")], self.batch(1, topic=TEXT)
            with TableIngest(self.lake, specs, {"format": "iceberg"}, False, layout) as feeding:
                feeding.publish(0, self.told(specs, batch))
            self.assertEqual(self.read("topic"), [(TEXT,)])
            self.assertEqual(audit(self.table), [])

    def test_timeOfAnUnknownYearIsFiledUnderTheLastDay(self) -> None:
        with TableIngest(self.lake, [self.spec], {"format": "iceberg"}, False) as feeding:
            for number, time in enumerate((253_402_300_800_000_000, (1 << 63) - 1, -(1 << 63))):
                batch = self.batch({}, first=number + 1)
                place = batch.schema.get_field_index("timestamp")
                batch = batch.set_column(place, "timestamp", pa.array([time], batch.schema.field(place).type))
                feeding.publish(number, self.told([self.spec], batch))
        self.assertEqual(self.read("offset"), [(1,), (2,), (3,)])
        self.assertEqual(audit(self.table), [])


class StuckCase(PoisonCase):
    """Makes tables that are stuck, as the pipeline was when it recorded batches that Iceberg refuses."""

    def before(self, *values: Any, number: int = 0, first: int = 1) -> None:
        """Let a batch get stuck."""
        self.stuck("a batch", lambda: self.ingested(*values, number=number, first=first))

    def stuck(self, waiting: str, step: Callable[[], object]) -> None:
        """Let a step get stuck."""

        def allColumns(tableFormat: str, columns: Any, known: Any = ()) -> "Distinct":
            return Distinct(columns, [])

        def described(found: Any, paths: Sequence[str], files: LakeFiles) -> list[Any]:
            return list(parquet_files_to_data_files(found.io, found.metadata, iter(paths)))

        patches = [self.patch(module, "distinct", allColumns) for module in (column_changes, ingest_task)]
        patches.append(self.patch(iceberg_log, "dataFilesOf", described))
        patches.append(self.patch(staged_files, "withoutRefused", lambda *_: None))
        error = self.assertRaises(CommitRefused, step)
        self.assertIn(f"; fleximq-pipeline repair --lake {self.lake} --table s tries it again", str(error))
        self.assertEqual(pending(self.table), [waiting])
        for patch in patches:
            patch.restore()


class StuckTests(StuckCase):
    """A table that is stuck."""

    def test_repairCompletesAStuckTableWithoutLossOrRepeats(self) -> None:
        for payload, names in AMBIGUOUS:
            self.setUp()
            self.before(payload, {"n": 1})
            dropped, complete = repair(self.table)
            self.assertIn("no columns any more, since Iceberg has these names already: ", dropped)
            self.assertEqual(complete, "a batch is complete")
            self.assertEqual(self.names(), [*names, "n"])
            self.assertEqual(
                self.read("offset", "value"), [(1, msgspec.msgpack.encode(payload)), (2, b"\x81\xa1n\x01")]
            )
            self.assertEqual((audit(self.table), repair(self.table)), ([], []))

    def test_columnsThatIcebergHasStay(self) -> None:
        self.ingested({"a": {"c": 1}, "a.b": 1})
        self.before({"a": {"b": 2, "c": 2}, "a.b": 2}, number=1, first=2)
        self.assertEqual(self.names(), ["a", "a.b"])
        repair(self.table)
        self.assertEqual(self.read("a", "a.b"), [({"c": 1}, 1), ({"c": 2}, 2)])
        self.assertEqual(audit(self.table), [])

    def test_nextIngestRepairsAStuckTable(self) -> None:
        self.before({"a": {"b": 1}, "a.b": 2, "t": TEXT})
        self.ingested({"a.b": 2, "t": TEXT}, number=1, first=2)
        self.assertEqual(self.read("offset", "t"), [(1, TEXT), (2, TEXT)])
        self.assertEqual(ranges(self.table)[JOURNAL].rows, 2)
        self.assertEqual(audit(self.table), [])

    def test_tableStuckByABoundIsCompleteAsItIs(self) -> None:
        self.before({"t": TEXT})
        self.assertEqual(repair(self.table), ["a batch is complete"])
        self.assertEqual(self.read("t", "reason"), [(TEXT, None)])

    def test_auditNamesTheCommandAndChangesNothing(self) -> None:
        self.before({"t": TEXT})
        (sentence,) = audit(self.table)
        self.assertEqual(
            sentence,
            f"a batch is recorded, but not complete: fleximq-pipeline repair --lake {self.lake} --table s completes it",
        )
        self.assertEqual(pending(self.table), ["a batch"])

    def test_refusedChangeIsRepairedLikeABatch(self) -> None:
        self.ingested({"t": "x"}, first=5)

        schema = requiredColumns(self.table).schema
        made = stage(self.table, rows([4], schema=schema, t=[TEXT]), schema=schema)
        change = TableChange("staged", made, (), {JOURNAL: 4}, {JOURNAL: 1})
        self.stuck("a change", lambda: commitChange(self.table, change, FILES))
        self.assertEqual(repair(self.table), ["a change is complete"])
        self.assertEqual(self.read("t"), [(TEXT,), ("x",)])
        self.assertEqual(audit(self.table), [])


class RefusedRowTests(PoisonCase):
    """A log that refuses rows for a cause that nothing knows before."""

    def setUp(self) -> None:
        super().setUp()
        self.tries = 0

        def described(found: Any, paths: Sequence[str], files: LakeFiles) -> list[Any]:
            self.tries += 1
            for path in paths:
                values = pq.read_table(path.removeprefix("file://"), columns=["n"]).column("n").to_pylist()
                if self.poison.intersection(values):
                    raise ValueError("it is poison")
            return dataFilesOf(found, paths)

        self.poison: set[Any] = {13, 77}
        self.patch(iceberg_log, "dataFilesOf", described)

    def test_onlyGuiltyRowsBecomeDeadLettersWithTheirBytes(self) -> None:
        self.ingested(*({"n": number} for number in range(100)))
        dead = [row for row in self.read("offset", "topic", "n", "value", "reason") if row[4] is not None]
        why = "the table cannot take it: it is poison"
        packed = [msgspec.msgpack.encode({"n": number}) for number in (13, 77)]
        self.assertEqual(dead, [(14, "t~dlq", None, packed[0], why), (78, "t~dlq", None, packed[1], why)])
        self.assertEqual(sorted(n for (n,) in self.read("n") if n is not None), sorted({*range(100)} - {13, 77}))
        ledger = readLedger(self.table)
        self.assertEqual((ledger.journals[JOURNAL].rows, ledger.journals[JOURNAL].dead), (100, 2))
        self.assertEqual((ledger.dead[0].dead, ledger.dead[0].reason), (2, why))
        self.assertEqual(audit(self.table), [])
        self.assertLess(self.tries, 50)
        self.assertEqual(os.listdir(f"{self.table}/_fleximq/staged"), [])

    def test_crashAtAnyStepLeavesEachRowOnce(self) -> None:
        step = 0
        while True:
            self.setUp()
            with TableIngest(self.lake, [self.spec], {"format": "iceberg"}, False) as feeding:
                batch = self.batch({"n": 12}, {"n": 13})
                while feeding.evolve(told := self.told([self.spec], batch)):
                    pass
                staged, bounds = told.staged["s"], BatchRange(0, told.start, told.end)
                try:
                    BatchCommit(self.table, Failing(step)).publish(bounds, staged, {})
                    break
                except LakeRefused:
                    begun = pending(self.table) or ranges(self.table)
            repair(self.table)
            self.assertEqual([row[0] for row in self.read("offset")] if begun else [], [1, 2] if begun else [], step)
            self.assertEqual(audit(self.table), [], step)
            step += 1
        self.assertGreater(step, 10)

    def test_causeInNoRowTouchesNoRowAndTheBatchWaits(self) -> None:
        self.poison = {None, *range(100)}
        error = self.assertRaises(CommitRefused, self.ingested, *({"n": number} for number in range(100)))
        self.assertIn("it is poison; fleximq-pipeline repair --lake ", str(error))
        self.assertLess(self.tries, 5)
        self.poison = set()
        self.assertEqual(repair(self.table), ["a batch is complete"])
        self.assertEqual(ranges(self.table)[JOURNAL].dead, 0)
