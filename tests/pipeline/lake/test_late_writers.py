"""A writer that has read a table's log and was stopped commits later, when others have committed meanwhile."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip
from tests.pipeline.lake.iceberg_case import skip as noIceberg

if not skip:
    import pyarrow.parquet as pq

    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.live_files import logOf
    from fleximq.pipeline.lake.table.table_log import TableFile
    from tests.pipeline.lake.tables import makeTable, rows, stage

if not noIceberg:
    from pyiceberg.catalog.sql import SqlCatalog

    from fleximq.pipeline.lake.iceberg import catalogOf


class DeltaTests(SynchronousTestCase):
    """``place`` is where the format's library commits; just before, another writer does something."""

    format = "delta"

    if find_spec("deltalake") is None:
        skip = "deltalake is not installed: pip install fleximq[delta]"

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute() / "messages")
        makeTable(self.table, self.format)
        self.log = logOf(self.table)
        assert self.log is not None
        self.log.commit(0, self.files(0))

    def files(self, batch: int) -> "list[TableFile]":
        """Return the files of a batch, at their final places."""
        (file,) = stage(self.table, rows([batch * 2 + 1, batch * 2 + 2]), batch=batch)
        placed = file.placed("date", "")
        to = Path(self.table, placed.path)
        to.parent.mkdir(exist_ok=True)
        Path(self.table, "_fleximq", "staged", file.path).rename(to)
        return [placed]

    def place(self) -> tuple[Any, str]:
        """Return the object and the name of the method that commits."""
        from deltalake import DeltaTable

        return DeltaTable, "create_write_transaction"

    def other(self) -> None:
        """Change the table as another program does."""
        from deltalake import DeltaTable

        DeltaTable(self.table).alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})

    def before(self, step: Callable[[], None]) -> None:
        """Do something just before the next commit."""
        owner, name = self.place()
        real = getattr(owner, name)

        def commit(self: Any, *arguments: Any, **more: Any) -> Any:
            patched.restore()
            step()
            return real(self, *arguments, **more)

        patched = self.patch(owner, name, commit)

    def seen(self) -> list[int]:
        """Return the offsets that readers of the log find."""
        assert self.log is not None
        paths = [file.path for file in self.log.files()]
        self.assertEqual(len(paths), len(set(paths)))
        return sorted(row for path in paths for row in pq.read_table(f"{self.table}/{path}")["offset"].to_pylist())

    def test_aBatchThatAnotherWriterHasCommittedIsNotCommittedAgain(self) -> None:
        assert self.log is not None
        files = self.files(1)
        self.before(lambda: logOf(self.table).commit(1, files))  # type: ignore[union-attr]
        self.log.commit(1, files)
        self.assertEqual(self.seen(), [1, 2, 3, 4])

    def test_aChangeThatAnotherWriterHasMadeIsNotMadeAgain(self) -> None:
        assert self.log is not None
        (gone,), files = self.log.files(), self.files(1)
        self.before(lambda: logOf(self.table).change(1, [gone.path], files))  # type: ignore[union-attr]
        self.log.change(1, [gone.path], files)
        Path(self.table, gone.path).unlink()
        self.assertEqual(self.seen(), [3, 4])

    def test_aCommitFollowsThatOfAnotherProgram(self) -> None:
        assert self.log is not None
        self.before(self.other)
        self.log.commit(1, self.files(1))
        self.assertEqual(self.seen(), [1, 2, 3, 4])


class IcebergTests(DeltaTests):
    """The same in Iceberg's format."""

    format = "iceberg"
    skip = noIceberg  # type: ignore[assignment]

    def place(self) -> tuple[Any, str]:
        """Return the object and the name of the method that commits."""
        return SqlCatalog, "commit_table"

    def other(self) -> None:
        """Change the table as another program does."""
        found = catalogOf(str(Path(self.table).parent), None).load_table("lake.messages")
        with found.update_schema() as change:
            change.update_column("value", doc="bytes")

    def test_aWriterThatEndsWhileItMakesTheTableLeavesNoneThatCannotBeUsed(self) -> None:
        def ends() -> None:
            raise RuntimeError("it ends here")

        self.table = f"{self.table}2"
        makeTable(self.table, self.format)
        self.log = logOf(self.table)
        assert self.log is not None
        files = self.files(0)
        self.before(ends)
        self.assertRaisesRegex(LakeRefused, "it ends here", self.log.commit, 0, files)
        self.log.commit(0, files)
        self.assertEqual(self.seen(), [1, 2])
