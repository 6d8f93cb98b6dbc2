"""Owners that are killed at single steps: 2 of them at a time, in the nightly run all."""

import random
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.cluster.nats.servers import MISSING
from tests.cluster.nats.step_kills import campaign, report, steps
from tests.nightly import repetitions


class StepKillTests(SynchronousTestCase):
    """Clients are at all three nodes; they use queues, schedules and values."""

    if MISSING:
        skip = MISSING

    def kill(self, dialect: str) -> None:
        """Kill owners, and check all that was confirmed."""
        chosen = random.sample(steps(), repetitions(2, len(steps())))
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        loop = campaign(str(folder), chosen, dialect)
        self.assertEqual(loop.faults, [], report(chosen, loop, 0))
        self.assertTrue(loop.jobs.finished and loop.cancelled.done and loop.values.values.confirmed["changes"])

    def test_forwardedClients(self) -> None:
        """Confirmed jobs, settlements, schedules, values are neither lost nor repeated."""
        self.kill("")

    def test_clientsOfAMesh(self) -> None:
        """So in a mesh, whose nodes pass such messages on to the owner."""
        self.kill("fleximq")
