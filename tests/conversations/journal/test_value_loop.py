"""Kills at random moments lose no confirmed change of a value: 3 kills, in the nightly run 100."""

import os

from twisted.trial.unittest import SynchronousTestCase

from tests.conversations.journal.value_loop import ValueLoop, Values, report
from tests.nightly import repetitions


class ValueLoopTests(SynchronousTestCase):
    """The loop of kills, and that it sees faults."""

    def test_killsLoseNoConfirmedChange(self) -> None:
        """Of values, sums and locks."""
        kills = repetitions(3, 100)
        loop = ValueLoop(os.path.abspath(self.mktemp()))
        loop.run(kills)
        self.assertEqual(loop.values.faults, [], report(kills, loop.values, 0))
        self.assertGreater(min(loop.values.confirmed[each] for each in ("changes", "additions", "locks")), 0)

    def test_aSumThatIsGivenTwiceIsFault(self) -> None:
        """Two additions were stored as one."""
        values = Values()
        for _ in range(2):
            values.addition("sum/1", 3, 7)
        self.assertEqual(values.faults, ["sum/1 had the sum 7 twice"])

    def test_aRevisionThatDoesNotGrowIsFault(self) -> None:
        """For a change; a reader may see the same one again."""
        values = Values()
        values.revised("a", 5, 5, atLeast=True)
        self.assertEqual(values.faults, [])
        values.revised("a", 5, 5)
        self.assertEqual(values.faults, ["a has the revision 5, after 5"])

    def test_aLockOfTwoIsFault(self) -> None:
        """Who asks again gets the one that it holds."""
        values = Values()
        values.took("lock/0", "one")
        values.took("lock/0", "one")
        self.assertEqual(values.faults, [])
        values.took("lock/0", "two")
        self.assertEqual(values.faults, ["lock/0 was given to two, but one holds it"])
