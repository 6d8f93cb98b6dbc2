"""Dead letters and older rows are decoded again, each exactly once."""

import contextlib
import os
import shutil
from typing import Any

from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip
from tests.pipeline.lake.test_ingest_driver import FeedCase

if not skip:
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.batch_commit import exclusive
    from fleximq.pipeline.lake.column_changes import widenColumns
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.completeness import audit
    from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
    from fleximq.pipeline.lake.redecoding import redecode
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.lake.table.lock import compactorLock
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from tests.pipeline.lake.tables import JOURNAL, crashes

    OLD = TableSpec("m", decode="messagepack", schema="a INT, c STRING")
    NEW = TableSpec("m", decode="messagepack", schema="a BIGINT, c STRING, b INT")


class RedecodeCase(FeedCase):
    """``table`` has rows of a schema that was too narrow."""

    def make(self, tableFormat: str = "parquet") -> None:
        """Make it; with Delta Lake no column was too narrow."""
        self.table = f"{self.lake}/m"
        values = [{"a": 20, "b": 1}, {"a": 2**40, "b": 2}, {"a": "no", "b": 3}, {"a": 5, "b": "misfit", "c": "x"}]
        old = OLD if tableFormat != "delta" else TableSpec("m", decode="messagepack", schema="a BIGINT, c STRING")
        self.ingest([old], *values, tableFormat=tableFormat)
        self.ingest([old], {"a": 6}, number=1, first=5, tableFormat=tableFormat)

    def mend(self) -> None:
        """Mend the schema."""
        widenColumns(self.table, NEW.fields)

    def seen(self) -> list[Any]:
        """Return what readers of the format see of each row, in the order of offsets."""
        found = []
        for path, topic in liveFiles(self.table):
            for rows in rowGroups(self.table, path, topic):
                found += [
                    tuple(row.get(name) for name in ("offset", "topic", "a", "b", "c")) for row in rows.to_pylist()
                ]
        return sorted(found, key=lambda row: row[0])

    #: The rows after all was mended.
    wanted = [
        (1, "t", 20, 1, None), (2, "t", 2**40, 2, None), (3, "t~dlq", None, None, None),
        # What fitted before does not become a dead letter.
        (4, "t", 5, None, "x"), (5, "t", 6, None, None),
    ]  # fmt: skip


class RedecodeTests(RedecodeCase):
    """Without failures."""

    def test_fittingDeadLettersReturnInEachFormat(self) -> None:
        """In each format what fits now is back under its topic, and the ledger counts the rest."""
        for tableFormat in ("parquet", "delta", "iceberg"):
            shutil.rmtree(self.lake, ignore_errors=True)
            self.make(tableFormat)
            self.mend()
            *_, done = redecode(self.table, NEW)
            self.assertEqual((done.back, done.dead), (int(tableFormat != "delta"), 1))
            self.assertEqual(self.seen(), self.wanted)
            covered = readLedger(self.table).journals[JOURNAL]
            self.assertEqual((covered.rows, covered.dead), (5, 1))
            *_, done = redecode(self.table, NEW)
            self.assertEqual(done.replaced, 0)
            self.ingest([NEW], {"a": 2**41, "b": 7}, number=2, first=6, tableFormat=tableFormat)
            self.assertEqual(self.seen(), [*self.wanted, (6, "t", 2**41, 7, None)])

    def test_mergedFilesAreRedecodedAndMayBeMergedAgain(self) -> None:
        self.make()
        self.mend()
        goal = CompactionGoal(olderThan=0)
        self.assertEqual(sum(done.before for done in compact(self.table, goal)), 2)
        list(redecode(self.table, NEW))
        self.assertEqual(self.seen(), self.wanted)
        list(compact(self.table, goal))
        self.assertEqual(self.seen(), self.wanted)
        self.assertEqual(audit(self.table), [])

    def test_tableWithoutDecodedColumnsStays(self) -> None:
        self.ingest([TableSpec("m")], 1)
        self.assertEqual([done.files for done in redecode(f"{self.lake}/m", TableSpec("m"))], [0])

    def test_tableInUseIsRefused(self) -> None:
        self.make()
        with compactorLock(self.table):
            error = self.assertRaises(LakeRefused, list, redecode(self.table, NEW))
        self.assertIn("another run compacts or redecodes it", str(error))

    def test_fileThatExpiresMeanwhileStaysAway(self) -> None:
        self.make()
        self.mend()
        paths = [path for path, _ in liveFiles(self.table)]
        run = redecode(self.table, NEW)
        next(run)
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.table}/{path}")
        list(run)
        self.assertEqual(self.seen(), [])


class CrashTests(RedecodeCase):
    """A run that ends at any of its changes to the disk."""

    def crash(self, tableFormat: str) -> None:
        """End a run at each step, and look whether the next one completes it."""
        shutil.rmtree(self.lake, ignore_errors=True)
        self.make(tableFormat)
        self.mend()
        saved = f"{self.lake}-{tableFormat}"
        shutil.copytree(self.lake, saved)

        def mend(files: LakeFiles) -> None:
            shutil.rmtree(self.lake)
            shutil.copytree(saved, self.lake)
            list(redecode(self.table, NEW, files))

        for steps in crashes(mend, 10):
            with exclusive(self.table):
                self.assertEqual([row[0] for row in self.seen()], [1, 2, 3, 4, 5], f"after {steps} steps")
            list(redecode(self.table, NEW))
            self.assertEqual(self.seen(), self.wanted, f"after {steps} steps")
            self.assertEqual(readLedger(self.table).journals[JOURNAL].dead, 1)
            if tableFormat == "parquet":
                self.assertEqual(audit(self.table), [])

    def test_crashAtAnyChangeLeavesEveryRowOnce(self) -> None:
        self.crash("parquet")

    @nightly
    def test_crashAtAnyChangeOfATableWithALogLeavesEveryRowOnce(self) -> None:
        self.crash("delta")
        self.crash("iceberg")
