"""Who may change a table."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.table.lock import changing, feeding


class LockTests(SynchronousTestCase):
    """One at a time."""

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute())
        (Path(self.table) / "_fleximq").mkdir(parents=True)

    def test_waits(self) -> None:
        """Whoever comes second waits until the first is done."""
        first = changing(self.table)
        first.__enter__()
        pauses: list[float] = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            first.__exit__(None, None, None)

        with changing(self.table, sleep=sleep):
            self.assertEqual(len(pauses), 1)

    def test_patience(self) -> None:
        """It does not wait for ever."""
        with changing(self.table):
            error = self.assertRaises(LakeRefused, changing(self.table, patience=0).__enter__)
        self.assertIn("is in use: it has been locked for 0 seconds", str(error))

    def test_feeding(self) -> None:
        """A second ingest is refused at once; a change is possible meanwhile; a later ingest comes in."""
        with feeding(self.table):
            error = self.assertRaises(LakeRefused, feeding(self.table).__enter__)
            with changing(self.table):
                pass
        self.assertIn("is in use: another ingest feeds it", str(error))
        with feeding(self.table):
            pass

    def test_noTable(self) -> None:
        """There has to be a table."""
        error = self.assertRaises(LakeRefused, changing(f"{self.table}/none").__enter__)
        self.assertIn("cannot be locked: No such file or directory", str(error))
