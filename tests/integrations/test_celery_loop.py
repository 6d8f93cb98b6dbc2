"""Tasks of Celery while brokers and workers are killed."""

from importlib.util import find_spec

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.kill_loop import KillLoop
from tests.nightly import repetitions

_MISSING = "" if find_spec("celery") else "needs the extra celery"
if not _MISSING:
    from tests.integrations.celery_loop import command, publish


class CeleryLoopTests(SynchronousTestCase):
    """A worker with two processes that acknowledges late."""

    if _MISSING:
        skip = _MISSING

    def test_eachConfirmedTaskRuns(self) -> None:
        """None twice without a kill, none early, and the worker goes on after each kill of the broker."""
        folder = self.mktemp()
        loop = KillLoop(folder, command, publish)
        self.addCleanup(loop.stop)
        loop.run(repetitions(2, 100))
        self.assertEqual(loop.faults, [], loop.report())
        self.assertGreater(len(loop.confirmed), 10)
