"""A reader proves that a table is complete."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline import lake
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.batch_commit import BatchCommit
    from fleximq.pipeline.lake.table import lock
    from fleximq.pipeline.lake.table.lock import changeLock
    from tests.pipeline.lake.tables import JOURNAL, commit, rows


def _raising(error: Exception) -> Callable[..., Any]:
    """Return a function that raises an error."""

    def fails(*_: Any) -> Any:
        raise error

    return fails


class RangesTests(SynchronousTestCase):
    """What a table says it has, and what it has."""

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute())
        BatchCommit(self.table).prepare()
        commit(self.table, 0, rows(range(1, 8), "a"), rows(range(8, 10), "b"), end=12)

    def test_offsetsAndRowsOfEachJournalAreTold(self) -> None:
        self.assertEqual(lake.ranges(self.table), {JOURNAL: lake.Covered(1, 12, 9)})

    def test_folderThatIsNoTableIsRefused(self) -> None:
        self.assertRaisesRegex(LakeRefused, "is no table of a lake", lake.ranges, str(Path(self.table).parent))

    def test_copiedAndMissingFilesAreFound(self) -> None:
        self.assertEqual(lake.audit(self.table), [])
        path = next(Path(self.table).glob("topic=b/*/*"))
        path.with_name("copy.parquet").write_bytes(path.read_bytes())
        self.assertEqual(lake.audit(self.table), [f"there are 11 rows of journal {JOURNAL}, but the ledger has 9"])
        for each in Path(self.table).glob("topic=b/*/*"):
            each.unlink()
        self.assertEqual(lake.audit(self.table), [f"there are 7 rows of journal {JOURNAL}, but the ledger has 9"])

    def test_auditNeedsNoRightToWriteAndNoLock(self) -> None:
        path = Path(self.table, "_fleximq", "lock")
        self.patch(LakeFiles, "openLock", lambda *_: self.fail("nothing is opened for writing"))
        self.assertEqual(lake.audit(self.table), [])
        patch = self.patch(LakeFiles, "lock", _raising(OSError(errno.EBADF, "no lock")))
        self.assertEqual(lake.audit(self.table), [])
        patch.restore()
        path.unlink()
        self.assertEqual(lake.audit(self.table), [])
        self.assertFalse(path.exists())

    def test_auditWaitsForAChange(self) -> None:
        with changeLock(self.table):
            self.patch(lock, "TIMEOUT", 0.0)
            error = self.assertRaises(LakeRefused, lake.audit, self.table)
        self.assertIn("is in use", str(error))

    def test_foreignFileIsNamed(self) -> None:
        Path(self.table, "topic=a", "x.parquet").write_bytes(b"PAR1")
        self.assertRaisesRegex(LakeRefused, "has a file of another origin: topic=a/x.parquet", lake.audit, self.table)
