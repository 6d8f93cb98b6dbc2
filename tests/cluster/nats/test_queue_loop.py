"""Queues and schedules on three nodes whose owners are killed: 2 kills, in the nightly run 100."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.cluster.nats.queue_loop import campaign
from tests.cluster.nats.servers import MISSING
from tests.conversations.journal.queue_loop import LATER, report
from tests.nightly import repetitions


class QueueLoopTests(SynchronousTestCase):
    """The loop of kills; all its clients are at nodes that do not own the journal when they begin."""

    if MISSING:
        skip = MISSING

    def test_killedOwnersLoseNoConfirmedJobAndFireNothingTwice(self) -> None:
        """Of jobs, settlements, and one-time and recurring schedules."""
        kills = 2 * repetitions(1, 50)
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        loop = campaign(str(folder), kills)
        self.assertEqual(loop.jobs.faults, [], report(kills, loop.jobs, 0))
        self.assertGreater(len(loop.jobs.finished), kills)
        self.assertGreater(sum(each.startswith(LATER) for each in loop.jobs.confirmed), 0)
        self.assertGreater(loop.jobs.ticks, 0)
