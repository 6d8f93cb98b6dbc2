"""Tasks of dramatiq and taskiq while brokers and workers are killed."""

from importlib import import_module
from importlib.util import find_spec

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.integrations.kill_loop import KillLoop
from tests.nightly import repetitions


class TaskLoopTests(SynchronousTestCase):
    """A worker with one process, started by the framework's own command."""

    def kill(self, framework: str) -> None:
        """Run the loop of a framework, and check what it has found."""
        if not find_spec(framework):
            raise SkipTest(f"needs the extra {framework}")
        program = import_module(f"tests.integrations.{framework}_loop")
        loop = KillLoop(self.mktemp(), program.command, program.publish)
        self.addCleanup(loop.stop)
        loop.run(repetitions(2, 50))
        self.assertEqual(loop.faults, [], loop.report())
        self.assertGreater(len(loop.confirmed), 10)

    def test_dramatiq(self) -> None:
        """None of its tasks is lost, begins twice without a kill, or early."""
        self.kill("dramatiq")

    def test_taskiq(self) -> None:
        """The same."""
        self.kill("taskiq")
