"""What no reader of an Iceberg table can need goes, and nothing else."""

import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from tests.pipeline.lake.iceberg_case import FIRST, IcebergCase, skip

if not skip:
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.batch_commit import exclusive
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.iceberg import snapshots
    from fleximq.pipeline.lake.iceberg.iceberg_log import GRACE, expiredSnapshots, removeUnused
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from tests.pipeline.lake.tables import crashes


def tidy(table: str, now: float, files: LakeFiles = FILES) -> int:
    """Remove what no reader needs any more."""
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

    def test_nothingYoungerThanAWeekIsRemoved(self) -> None:
        self.assertEqual(tidy(self.table, self.later - 120), 0)
        self.assertEqual(len(self.files()), 6)
        self.assertEqual(len(self.opened().snapshots()), 5)

    def test_joinedFilesSnapshotsAndMetadataAreRemovedAfterAWeek(self) -> None:
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

    def test_namedSnapshotStaysWithItsFiles(self) -> None:
        first = self.opened().snapshots()[0].snapshot_id
        self.opened().manage_snapshots().create_tag(first, "kept").commit()
        tidy(self.table, self.later)
        self.assertEqual(len(self.files()), 3)
        found = self.opened().scan(snapshot_id=first).to_arrow()
        self.assertEqual(sorted(found.column("offset").to_pylist()), [1, 2, 3, 4])

    def test_tablePropertyKeepsSnapshotsLonger(self) -> None:
        with self.opened().transaction() as transaction:
            transaction.set_properties({"history.expire.max-snapshot-age-ms": str(30 * 86_400_000)})
        self.assertEqual(tidy(self.table, self.later), 0)
        self.assertEqual(len(self.opened().snapshots()), 5)

    def test_ageOfASnapshotBeginsWhenAnotherReplacesIt(self) -> None:
        metadata = self.opened().metadata
        *_, last, now = metadata.snapshots
        edge = now.timestamp_ms / 1000 + GRACE
        self.assertIn(last.snapshot_id, expiredSnapshots(metadata, edge + 0.01))
        self.assertNotIn(last.snapshot_id, expiredSnapshots(metadata, edge - 0.01))
        self.assertNotIn(now.snapshot_id, expiredSnapshots(metadata, edge * 2))

    def test_oldLeftoversOfAKilledRunAreRemovedAndOtherFilesStay(self) -> None:
        rubbish = Path(self.table, FIRST, "0-rubbish.parquet")
        others = [Path(self.table, FIRST, "readme.txt"), Path(self.table, "metadata", "x.stats")]
        for path in (rubbish, *others):
            path.write_bytes(b"")
        tidy(self.table, self.later - 120)
        self.assertTrue(rubbish.exists())
        tidy(self.table, self.later)
        self.assertFalse(rubbish.exists())
        self.assertTrue(all(path.exists() for path in others))

    def test_filesOfTheOriginalOfACopyAreNotTouched(self) -> None:
        copy, other = f"{self.lake}2", f"{self.lake}3"
        shutil.copytree(self.lake, copy)
        self.assertRaisesRegex(LakeRefused, "by its catalog: call it so", tidy, f"{copy}/messages", self.later)
        self.assertEqual(len(list(Path(copy).rglob("*.parquet"))), 6)
        self.assertEqual(len(self.files()), 6)
        os.symlink(self.lake, other)
        self.assertGreater(tidy(f"{other}/messages", self.later), 4)
        self.assertEqual(self.files(), self.named())
        self.whole()

    def test_unreadableSnapshotRemovesNothing(self) -> None:
        def broken(location: str) -> Any:
            raise ValueError("it is damaged")

        self.patch(snapshots, "localPath", broken)
        self.assertRaises(LakeRefused, tidy, self.table, self.later)
        self.assertEqual(len(self.files()), 6)
        self.whole()

    def test_crashAtAnyStepLeavesTheTableWhole(self) -> None:
        for step in crashes(partial(tidy, self.table, self.later), 2):
            self.whole()
            if step == 2:
                tidy(self.table, self.later)
                self.assertEqual(self.files(), self.named())
        self.assertEqual(self.files(), self.named())
        self.whole()
