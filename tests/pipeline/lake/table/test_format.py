"""Tables whose files the log of a table format names too."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from tests.pipeline.installed import missing as skip
from tests.pipeline.lake.iceberg_case import skip as noIceberg

if not skip:
    import pyarrow as pa

    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake import batch_commit
    from fleximq.pipeline.lake.batch_commit import BatchCommit
    from fleximq.pipeline.lake.live_files import logOf
    from fleximq.pipeline.lake.table.columns import TableColumns, writeColumns
    from fleximq.pipeline.lake.table.format import formatOf, setFormat
    from fleximq.pipeline.lake.table.table_log import BatchRange
    from tests.pipeline.lake.tables import JOURNAL, Failing, commit, makeTable, rows


class FormatTests(SynchronousTestCase):
    """What a table's format is."""

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute())
        self.publishing = BatchCommit(self.table)
        self.publishing.makeFolders()

    def test_defaultFormatIsParquetWithoutALog(self) -> None:
        self.assertEqual(formatOf(self.table), {"format": "parquet"})
        self.assertIsNone(logOf(self.table))

    def test_tableKeepsItsFormat(self) -> None:
        setFormat(self.table, {"format": "delta"})
        setFormat(self.table, {"format": "delta"})
        error = self.assertRaises(LakeRefused, setFormat, self.table, {"format": "iceberg"})
        self.assertIn("is of format delta and cannot become iceberg", str(error))

    def test_tableWithBatchesAndNoFormatStaysParquet(self) -> None:
        self.publishing.prepare()
        self.publishing.publish(BatchRange(0, {JOURNAL: 1}, {JOURNAL: 2}), [], {})
        error = self.assertRaises(LakeRefused, setFormat, self.table, {"format": "delta"})
        self.assertIn("is of format parquet and cannot become delta", str(error))

    def test_unknownFormatAndLayoutAreRefused(self) -> None:
        Path(self.table, "_fleximq", "format").write_text('{"format": "hudi"}')
        self.assertRaisesRegex(LakeRefused, "names a format that this FlexiMQ does not know", formatOf, self.table)
        Path(self.table, "_fleximq", "format").write_text('{"format": "parquet", "layout": "hour"}')
        self.assertRaisesRegex(LakeRefused, "names a layout that this FlexiMQ does not know", formatOf, self.table)

    def test_deltaTableHasNoLayoutByTopic(self) -> None:
        error = self.assertRaises(LakeRefused, setFormat, self.table, {"format": "delta"}, "topic")
        self.assertIn("cannot have the layout topic: Delta tables are laid out by date", str(error))

    def test_missingExtraIsNamed(self) -> None:
        setFormat(self.table, {"format": "delta"})
        name = "fleximq.pipeline.lake.delta_log"
        had = sys.modules.pop(name, None)
        self.addCleanup(lambda: sys.modules.pop(name) if had is None else sys.modules.update({name: had}))
        sys.modules[name] = None  # type: ignore[assignment]
        error = self.assertRaises(LakeRefused, logOf, self.table)
        self.assertIn("needs the extra delta: pip install '.[delta]'", str(error))


class CommittedMixin:
    """Batches are in once; ``format`` is the format, and ``read`` gives the rows that its readers see."""

    format: str
    test: Any

    def make(self) -> None:
        """Make a table."""
        self.table = str(Path(self.mktemp()).absolute() / "lake" / "messages")  # type: ignore[attr-defined]
        self.columns = TableColumns("raw", pa.schema([]))
        self.publishing = makeTable(self.table, self.format, columns=self.columns)

    def publish(self, number: int, start: int, end: int, topic: str = "a b/c%", files: LakeFiles = FILES) -> None:
        """Publish a batch of one topic."""
        schema = self.columns.schema
        more: dict[str, Any] = {name: list(range(start, end)) for name in self.columns.names}
        found = rows(range(start, end), topic, schema=schema, **more)
        commit(self.table, number, found, schema=schema, files=files)

    def read(self) -> list[dict[str, Any]]:
        """Return topic, offset and, where it is there, ``n`` of each row."""
        raise NotImplementedError

    def test_eachBatchIsThereWhateverItsTopic(self) -> None:
        for number, topic in enumerate(("a b/c%", "007", "größe")):
            self.publish(number, 2 * number + 1, 2 * number + 3, topic)
        found = [(row["topic"], row["offset"]) for row in self.read()]
        wanted = [("a b/c%", 1), ("a b/c%", 2), ("007", 3), ("007", 4), ("größe", 5), ("größe", 6)]
        self.assertEqual(found, wanted)  # type: ignore[attr-defined]

    def test_columnsMayBeAdded(self) -> None:
        self.publish(0, 1, 2)
        self.columns = TableColumns("json", pa.schema([("n", pa.int64())]))
        writeColumns(self.table, self.columns)
        self.publish(1, 2, 3)
        self.assertEqual([(row["offset"], row["n"]) for row in self.read()], [(1, None), (2, 2)])  # type: ignore[attr-defined]

    def test_columnsMayGetFields(self) -> None:
        for number, fields in enumerate((["x"], ["x", "y"])):
            dataType = pa.struct([(name, pa.int64()) for name in fields])
            self.columns = TableColumns("json", pa.schema([("s", dataType)]))
            writeColumns(self.table, self.columns)
            schema = self.columns.schema
            commit(self.table, number, rows([number + 1], schema=schema, s=[dict.fromkeys(fields, 5)]), schema=schema)
        found = [row["s"] for row in self.read()]
        self.assertEqual(found, [{"x": 5, "y": None}, {"x": 5, "y": 5}])  # type: ignore[attr-defined]

    def test_crashAtAnyStepLeavesEachBatchOnce(self) -> None:
        self.publish(0, 1, 3)

        def ends(*_: Any) -> None:
            raise OSError("it ends here")

        patch = self.patch(batch_commit, "writeLedger", ends)  # type: ignore[attr-defined]
        self.assertRaises(LakeRefused, self.publish, 1, 3, 6)  # type: ignore[attr-defined]
        patch.restore()
        self.publishing.prepare()
        self.publish(1, 3, 6)
        for step in range(0, 16, 3):
            try:
                self.publish(2, 6, 8, files=Failing(step))
            except LakeRefused:
                continue
        self.publish(2, 6, 8)
        self.assertEqual([row["offset"] for row in self.read()], list(range(1, 8)))  # type: ignore[attr-defined]

    def test_refusedCommitIsOneSentenceAndCompletedOnceTheCauseIsGone(self) -> None:
        self.publish(0, 1, 3)
        path = Path(self.table, "_fleximq", "schema")
        had = path.read_text()
        path.unlink()
        self.columns = TableColumns("raw", pa.schema([]))
        self.assertRaisesRegex(LakeRefused, "is no table of a lake any more", self.publish, 1, 3, 5)  # type: ignore[attr-defined]
        path.write_text(had)
        self.publishing.prepare()
        self.assertEqual([row["offset"] for row in self.read()], [1, 2, 3, 4])  # type: ignore[attr-defined]


class DeltaTests(CommittedMixin, SynchronousTestCase):
    """Delta Lake."""

    format = "delta"
    if find_spec("deltalake") is None:
        skip = "deltalake is not installed"

    def setUp(self) -> None:
        self.make()

    def read(self) -> list[dict[str, Any]]:
        """Return what deltalake reads."""
        from deltalake import DeltaTable

        found: list[dict[str, Any]] = DeltaTable(self.table).to_pyarrow_table().sort_by("offset").to_pylist()
        return found


class IcebergTests(CommittedMixin, SynchronousTestCase):
    """Iceberg."""

    format = "iceberg"
    skip = noIceberg

    def setUp(self) -> None:
        self.make()

    def read(self) -> list[dict[str, Any]]:
        """Return what PyIceberg reads from the lake's own catalog."""
        from fleximq.pipeline.lake.iceberg import catalogOf

        table = catalogOf(str(Path(self.table).parent), None).load_table(("lake", "messages"))
        found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("offset").to_pylist()
        return found
