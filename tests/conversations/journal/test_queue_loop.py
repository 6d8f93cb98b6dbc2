"""Kills at random moments lose no confirmed job and no confirmed settle: 3 kills, in the nightly run 100."""

import os

from twisted.trial.unittest import SynchronousTestCase

from tests.conversations.journal.http_queue_loop import HttpQueueLoop
from tests.conversations.journal.queue_loop import JOBS, LATER, ORDERED, Jobs, QueueLoop, report
from tests.nightly import repetitions


class QueueLoopTests(SynchronousTestCase):
    """The loop of kills, and that it sees faults."""

    def test_killsLoseNoConfirmedJobAndNoSettle(self) -> None:
        """Four producers and eight workers, durable queues."""
        kills = repetitions(3, 100)
        loop = QueueLoop(os.path.abspath(self.mktemp()))
        loop.run(kills)
        self.assertEqual(loop.jobs.faults, [], report(kills, loop.jobs, 0))
        self.assertGreater(len(loop.jobs.finished), kills)
        self.assertGreater(sum(each.startswith(LATER) for each in loop.jobs.confirmed), 0)

    def test_norDoTheyWithWorkersByHttp(self) -> None:
        """The same with workers that take and settle by HTTP; no tag of an earlier broker settles anything."""
        kills = repetitions(2, 50)
        loop = HttpQueueLoop(os.path.abspath(self.mktemp()))
        loop.run(kills)
        self.assertEqual(loop.jobs.faults, [], report(kills, loop.jobs, 0))
        self.assertGreater(loop.settled, kills)
        self.assertGreater(loop.stale, 0)

    def test_deliveryAfterConfirmedAcknowledgementIsFault(self) -> None:
        """The ledger notices a finished job."""
        jobs = Jobs()
        name = jobs.new(JOBS, "a")
        jobs.finished.add(name)
        jobs.delivered(name)
        self.assertEqual(jobs.faults, ["jobs a 1 was delivered after its confirmed acknowledgement"])

    def test_deliveryBeforeEarlierOneOfKeyIsFault(self) -> None:
        """The ledger notices the order of a key."""
        jobs = Jobs()
        first, second = jobs.new(ORDERED, "a"), jobs.new(ORDERED, "a")
        jobs.confirmed |= {first, second}
        jobs.delivered(second)
        self.assertEqual(jobs.faults, ["ordered a 2 was delivered before ordered a 1 was settled"])
        jobs.settling.add(first)
        jobs.delivered(second)
        self.assertEqual(len(jobs.faults), 1)
