"""Who may change a table."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.table.lock import changeLock, writerLock


class LockTests(SynchronousTestCase):
    """One at a time."""

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute())
        (Path(self.table) / "_fleximq").mkdir(parents=True)

    def test_secondWaitsForTheFirst(self) -> None:
        first = changeLock(self.table)
        first.__enter__()
        pauses: list[float] = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            first.__exit__(None, None, None)

        with changeLock(self.table, sleep=sleep):
            self.assertEqual(len(pauses), 1)

    def test_waitingHasAnEnd(self) -> None:
        with changeLock(self.table):
            error = self.assertRaises(LakeRefused, changeLock(self.table, timeout=0).__enter__)
        self.assertIn("is in use: it has been locked for 0 seconds", str(error))

    def test_secondIngestIsRefusedAtOnceButAChangeIsPossible(self) -> None:
        with writerLock(self.table):
            error = self.assertRaises(LakeRefused, writerLock(self.table).__enter__)
            with changeLock(self.table):
                pass
        self.assertIn("is in use: another ingest feeds it", str(error))
        with writerLock(self.table):
            pass

    def test_lockNeedsATable(self) -> None:
        error = self.assertRaises(LakeRefused, changeLock(f"{self.table}/none").__enter__)
        self.assertIn("cannot be locked: No such file or directory", str(error))
