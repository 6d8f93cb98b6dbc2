"""Small files of an Iceberg table become large ones; whatever happens meanwhile, every row is there once."""

import os
from pathlib import Path
from typing import Any

from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from tests.pipeline.lake.iceberg_case import FIRST, IcebergCase, skip

if not skip:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake import batch_commit
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.expiration import expireDays
    from fleximq.pipeline.lake.iceberg import iceberg_compaction, snapshots
    from fleximq.pipeline.lake.table.columns import TableColumns, writeColumns
    from fleximq.pipeline.lake.table.file_merge import merge
    from fleximq.pipeline.lake.table.parquet_writer import Span, spansOf
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, crashes

    #: All that there is is joined, however new it is.
    AT_ONCE = CompactionGoal(1 << 20, -1e9, 2)


class RewriteCase(IcebergCase):
    """``foreign`` is a table's handle of somebody else."""

    def compact(self, files: LakeFiles = FILES) -> list[tuple[int, int]]:
        """Compact the table; return how many files became how many."""
        return [each[1:] for each in compact(self.table, AT_ONCE, files)]

    def appendForeign(self) -> None:
        """Let somebody else, who knows no lock, add the rows 101 to 104."""
        source = sorted(self.files())[0]
        found = pq.ParquetFile(source).read()
        offset = found.column_names.index("offset")
        target = str(Path(source).with_name("foreign.parquet"))
        pq.write_table(found.set_column(offset, "offset", pa.array([101, 102, 103, 104], pa.int64())), target)
        self.opened().add_files([f"file://{target}"])


class RewritingTests(RewriteCase):
    """What there is afterwards."""

    def test_eachDayBecomesOneFileInOrder(self) -> None:
        self.assertEqual(self.compact(), [(2, 1), (2, 1)])
        self.whole()
        first, second = sorted(self.named())
        found = pq.ParquetFile(first).read()
        self.assertEqual(found.column("offset").to_pylist(), list(range(1, 9)))
        self.assertEqual(spansOf(pq.read_metadata(second).metadata)[1], [Span(JOURNAL, 9, 16, 8, 2)])
        self.assertEqual(os.path.dirname(first), f"{self.table}/{FIRST}")
        self.assertFalse(os.path.exists(f"{self.table}/_fleximq/compacting"))
        self.assertEqual(self.compact(), [])

    def test_compactionIsOneSnapshotForMaxPartitions(self) -> None:
        before = len(self.opened().snapshots())
        self.compact()
        self.assertEqual(len(self.opened().snapshots()), before + 1)
        self.patch(iceberg_compaction, "MAX_PARTITIONS", 1)
        for time in (TIME, TIME + DAY):
            self.publish(time)
        self.assertEqual(self.compact(), [(2, 1), (2, 1)])
        self.assertEqual(len(self.opened().snapshots()), before + 5)
        self.whole()

    def test_recentChangesAreLeftAloneUnlessTheyAreMany(self) -> None:
        self.assertEqual(list(compact(self.table, CompactionGoal(1 << 20, 3600.0, 3))), [])
        self.assertEqual(len(list(compact(self.table, CompactionGoal(1 << 20, 3600.0, 2)))), 2)

    def test_olderReaderFinishesWithItsRows(self) -> None:
        before = self.opened()
        self.compact()
        self.publish()
        self.assertEqual(self.offsets(before), list(range(1, 17)))

    def test_batchesFollowACompactionAndTheLastOneIsInOnce(self) -> None:
        self.compact()
        self.assertFalse(self.publishAgain(3, TIME + DAY))
        self.whole()
        for _ in range(3):
            self.publish()
        self.assertEqual(self.compact(), [(4, 1)])
        self.assertFalse(self.publishAgain(6, TIME + DAY))
        self.whole()

    def test_begunBatchIsFinishedFirstAndIsInOnce(self) -> None:
        def ends(*_: Any) -> None:
            raise OSError(5, "it ends here")

        patched = self.patch(batch_commit, "writeLedger", ends)
        self.assertRaises(LakeRefused, self.publish)
        patched.restore()
        self.compact()
        self.assertFalse(self.publishAgain(4, TIME + DAY))
        self.batches += 1
        self.whole()

    def test_columnsOfNoBatchYetAreInTheTable(self) -> None:
        writeColumns(self.table, TableColumns("json", pa.schema([("n", pa.int64())])))
        self.compact()
        self.assertEqual(self.opened().scan().to_arrow().column("n").to_pylist(), [None] * 16)
        self.whole()

    def test_tableWithoutABatchIsLeftAlone(self) -> None:
        self.batches = -1
        table = f"{self.lake}/empty"
        batch_commit.BatchCommit(table).makeFolders()
        Path(table, "_fleximq", "format").write_text('{"format": "iceberg"}')
        self.assertEqual(list(compact(table, AT_ONCE)), [])


class ConflictTests(RewriteCase):
    """Others commit to the table meanwhile."""

    def test_batchDuringACompactionStays(self) -> None:
        def join(*arguments: Any) -> None:
            merge(*arguments)
            self.publish()

        self.patch(iceberg_compaction, "merge", join)
        self.assertEqual(self.compact(), [(2, 1), (2, 1)])
        self.assertEqual(self.batches, 6)
        self.whole()

    def test_dayThatExpiresDuringACompactionDoesNotReturn(self) -> None:
        def join(*arguments: Any) -> None:
            merge(*arguments)
            expireDays(self.table, [(None, 86_400.0)], 1_700_006_400 + 86_400.0)

        self.patch(iceberg_compaction, "merge", join)
        self.assertEqual(self.compact(), [(2, 1)])
        self.assertEqual(self.offsets(), list(range(9, 17)))
        self.assertEqual(len(self.files() - self.named()), 4)

    def test_foreignAppendIsKeptAndTheCompactionTriedAgain(self) -> None:
        self.atCommits(lambda number: self.appendForeign() if number == 1 else None)
        self.assertEqual(self.compact(), [(2, 1), (2, 1)])
        self.assertEqual(self.offsets(), [*self.all, 101, 102, 103, 104])

    def test_neighboursOfARemovedFileStayAsTheyAre(self) -> None:
        gone = f"file://{min(self.named())}"

        def takeOut(number: int) -> None:
            if number == 1:
                self.opened().delete("offset <= 4")

        self.atCommits(takeOut)
        self.assertEqual(self.compact(), [(2, 1)])
        self.assertNotIn(gone.removeprefix("file://"), self.named())
        self.assertEqual(self.offsets(), list(range(5, 17)))
        self.assertLessEqual(len(self.files() - self.named()), 3)

    def test_compactionThatIsNeverFirstEndsInASentenceAndChangesNothing(self) -> None:
        self.patch(snapshots, "replaceFiles", self.never)
        self.assertRaisesRegex(LakeRefused, "cannot be changed by Iceberg: others were faster", self.compact)
        self.assertEqual(self.files(), self.named())
        self.whole()

    def never(self, table: str, wanted: Any, files: LakeFiles) -> bool:
        """Ask for the change, and fail."""
        from pyiceberg.exceptions import CommitFailedException

        wanted(self.opened())
        raise CommitFailedException("others were faster")

    def test_tableWithRowsThatAnotherEngineDeletedIsRefused(self) -> None:
        self.patch(snapshots, "rowsAreDeleted", lambda found: True)
        self.assertRaisesRegex(LakeRefused, "another engine has deleted one by one", self.compact)

    def test_fileWithOtherNumbersOfRowsIsNotTaken(self) -> None:
        def join(folder: str, group: Any, path: str, schema: Any, files: LakeFiles) -> int:
            return merge(folder, group[:1], path, schema, files)

        self.patch(iceberg_compaction, "merge", join)
        self.assertRaisesRegex(LakeRefused, "other numbers of rows", self.compact)
        self.assertEqual(self.files(), self.named())
        self.whole()


class EndsTests(RewriteCase):
    """The process ends in between."""

    def test_crashAtAnyChangeOfFilesLeavesTheTableWhole(self) -> None:
        """At each step of the files: the table is whole, ingest goes on, and the next run does it."""
        for _ in crashes(self.compact, 3):
            self.whole()
            self.publish()
            self.whole()
            self.assertNotEqual(self.compact(), [])
            self.whole()
            self.setUp()
        self.whole()

    def test_crashBeforeTheCommitChangesNothingAndAfterItAll(self) -> None:
        def ends(number: int) -> None:
            raise RuntimeError("it ends here")

        for after in (False, True):
            self.atCommits(ends, after)
            self.assertRaises(LakeRefused, self.compact)
            self.patched.restore()
            self.whole()
            self.assertEqual(len(self.named()), 2 if after else 4)
            self.publish()
            self.assertEqual(self.compact(), [(2, 1)] if after else [(2, 1), (3, 1)])
            self.whole()
            self.setUp()
