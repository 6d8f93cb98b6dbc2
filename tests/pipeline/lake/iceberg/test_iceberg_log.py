"""What no reader of an Iceberg table can need goes, and nothing else."""

import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from fleximq.journal.files.file_system import Files
from tests.pipeline.lake.iceberg_case import FIRST, IcebergCase, skip

if not skip:
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.batch_commit import exclusive
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.iceberg import snapshots
    from fleximq.pipeline.lake.iceberg.iceberg_log import GRACE, expiredSnapshots, removeUnused
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from tests.pipeline.lake.tables import Failing


def tidy(table: str, now: float, files: Files | None = None) -> int:
    """Remove what no reader needs any more."""
    files = files or Files()
    return removeUnused(table, now, files, partial(exclusive, table, files))


class TidyingTests(IcebergCase):
    """The table was compacted just now."""

    def setUp(self) -> None:
        super().setUp()
        list(compact(self.table, CompactionGoal(1 << 20, -1e9, 2)))
        self.later = time.time() + GRACE + 60

    def metadata(self) -> int:
        """Return how many files of metadata there are but for those that name all others."""
        return len(list(Path(self.table, "metadata").glob("*.avro")))

    def test_young(self) -> None:
        """Nothing goes that was there within a week."""
        self.assertEqual(tidy(self.table, self.later - 120), 0)
        self.assertEqual(len(self.files()), 6)
        self.assertEqual(len(self.opened().snapshots()), 5)

    def test_old(self) -> None:
        """Behind it the files that were joined are gone, with the snapshots and their metadata."""
        before = self.metadata()
        self.assertGreater(tidy(self.table, self.later), 4)
        self.assertEqual(self.files(), self.named())
        self.assertEqual(len(self.opened().snapshots()), 1)
        self.assertLess(self.metadata(), before)
        self.whole()
        self.publish()
        self.whole()
        self.assertGreater(tidy(self.table, self.later), 0)
        self.assertEqual(tidy(self.table, self.later), 0)
        self.whole()

    def test_named(self) -> None:
        """A snapshot with a name stays, with its files."""
        first = self.opened().snapshots()[0].snapshot_id
        self.opened().manage_snapshots().create_tag(first, "kept").commit()
        tidy(self.table, self.later)
        self.assertEqual(len(self.files()), 3)
        found = self.opened().scan(snapshot_id=first).to_arrow()
        self.assertEqual(sorted(found.column("offset").to_pylist()), [1, 2, 3, 4])

    def test_longer(self) -> None:
        """The table may say that snapshots stay for longer."""
        with self.opened().transaction() as transaction:
            transaction.set_properties({"history.expire.max-snapshot-age-ms": str(30 * 86_400_000)})
        self.assertEqual(tidy(self.table, self.later), 0)
        self.assertEqual(len(self.opened().snapshots()), 5)

    def test_sinceWhen(self) -> None:
        """What counts is when another snapshot took its place, not how old it is."""
        metadata = self.opened().metadata
        *_, last, now = metadata.snapshots
        edge = now.timestamp_ms / 1000 + GRACE
        self.assertIn(last.snapshot_id, expiredSnapshots(metadata, edge + 0.01))
        self.assertNotIn(last.snapshot_id, expiredSnapshots(metadata, edge - 0.01))
        self.assertNotIn(now.snapshot_id, expiredSnapshots(metadata, edge * 2))

    def test_rubbish(self) -> None:
        """What a run that was killed has left goes when it is old; other files are none of ours."""
        rubbish = Path(self.table, FIRST, "0-rubbish.parquet")
        others = [Path(self.table, FIRST, "readme.txt"), Path(self.table, "metadata", "x.stats")]
        for path in (rubbish, *others):
            path.write_bytes(b"")
        tidy(self.table, self.later - 120)
        self.assertTrue(rubbish.exists())
        tidy(self.table, self.later)
        self.assertFalse(rubbish.exists())
        self.assertTrue(all(path.exists() for path in others))

    def test_elsewhere(self) -> None:
        """Of a copy, whose metadata name the files of the table that it was made of, nothing is touched."""
        copy, other = f"{self.lake}2", f"{self.lake}3"
        shutil.copytree(self.lake, copy)
        error = self.assertRaises(LakeRefused, tidy, f"{copy}/messages", self.later)
        self.assertIn("by its catalog: call it so", str(error))
        self.assertEqual(len(list(Path(copy).rglob("*.parquet"))), 6)
        self.assertEqual(len(self.files()), 6)
        os.symlink(self.lake, other)
        self.assertGreater(tidy(f"{other}/messages", self.later), 4)
        self.assertEqual(self.files(), self.named())
        self.whole()

    def test_unreadable(self) -> None:
        """Where it cannot be told what a snapshot names, nothing is deleted."""

        def broken(location: str) -> Any:
            raise ValueError("it is damaged")

        self.patch(snapshots, "localPath", broken)
        self.assertRaises(LakeRefused, tidy, self.table, self.later)
        self.assertEqual(len(self.files()), 6)
        self.whole()

    def test_ends(self) -> None:
        """Wherever it ends, the table is whole, and the next one goes on."""
        step = 0
        while True:
            try:
                tidy(self.table, self.later, Failing(step))
                break
            except LakeRefused:
                self.whole()
                if step == 2:
                    tidy(self.table, self.later)
                    self.assertEqual(self.files(), self.named())
                step += 1
        self.assertGreater(step, 2)
        self.assertEqual(self.files(), self.named())
        self.whole()
