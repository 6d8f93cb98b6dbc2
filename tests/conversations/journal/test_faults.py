"""A broker that is disturbed at random keeps its promises: two minutes, in the nightly run only.

``python -m tests.conversations.journal.fault_loop`` takes any time.
"""

import os

from twisted.trial.unittest import SynchronousTestCase

from tests.conversations.journal.crash_loop import report
from tests.conversations.journal.fault_loop import FaultLoop, missing
from tests.nightly import nightly


@nightly
class FaultTests(SynchronousTestCase):
    """The loop of disturbances."""

    if missing():
        skip = missing()

    def test_nothingConfirmedIsLostAndNobodyHangs(self) -> None:
        """Steps of the clock, full disks, no descriptors, an unread log and reloads."""
        folder = os.path.abspath(self.mktemp())
        os.mkdir(folder)
        loop = FaultLoop(folder)
        counts = loop.disturb(2)
        said = report(0, counts, loop.ledger.faults, 0)
        self.assertEqual(loop.ledger.faults, [], said)
        for count in counts.values():
            self.assertEqual((count.lost, count.duplicated), (0, 0), said)
            self.assertGreater(count.confirmed, 100, said)
