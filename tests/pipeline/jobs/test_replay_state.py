"""How far a replay is, in a file."""

import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.jobs.replay_state import ReplayState
from tests.pipeline.installed import missing as skip  # noqa: F401


class ReplayStateTests(SynchronousTestCase):
    """What is written and found again."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fleximq-replay-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def state(self, what: str = "this", folder: str = "") -> ReplayState:
        """Return the state of a replay."""
        return ReplayState(folder or str(self.folder / "new"), "r", {"what": what})

    def test_stateIsReadAgainWithTheNameOfItsTransactions(self) -> None:
        state = self.state()
        with state as first:
            self.assertFalse(first.begun)
            first.batch, first.journal, first.start, first.stop, first.ends = 3, "j", 5, 9, {"j": 20}
            state.write(first)
        with self.state() as second:
            self.assertEqual(second, first)
            self.assertTrue(second.begun)

    def test_twoReplaysHaveDifferentTransactions(self) -> None:
        with self.state() as one:
            pass
        with self.state() as other:
            self.assertNotEqual(one.id, other.id)

    def test_nameIsBoundToItsSource(self) -> None:
        state = self.state()
        with state as progress:
            state.write(progress)
        error = self.assertRaises(OptionRefused, self.state("that").__enter__)
        self.assertEqual(str(error), "the replay r was begun with other options: choose another --name")

    def test_secondRunIsRefusedUntilTheFirstEnds(self) -> None:
        with self.state():
            error = self.assertRaises(OptionRefused, self.state().__enter__)
            self.assertEqual(str(error), "the replay r is running already")
        with self.state():
            pass

    def test_damagedStateIsRefusedAndReleased(self) -> None:
        for content in ("{", "[]", '{"what": {}, "more": 1}'):
            (self.folder / "r.json").write_text(content)
            for _ in range(2):
                self.assertRaisesRegex(OptionRefused, "cannot be read", self.state(folder=str(self.folder)).__enter__)

    def test_folderThatCannotBeMadeIsRefused(self) -> None:
        (self.folder / "file").write_text("")
        error = self.assertRaises(PipelineError, self.state(folder=str(self.folder / "file" / "x")).__enter__)
        self.assertIn("cannot be stored", str(error))
