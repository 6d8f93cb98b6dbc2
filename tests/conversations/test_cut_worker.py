"""The job of a worker whose machine is cut off, in network namespaces."""

import json
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.conversations.cut_worker import missing
from tests.nightly import NIGHTLY, REASON


class CutWorkerTests(SynchronousTestCase):
    """A link that is set down, in a process of its own."""

    def test_itsJobIsGivenOnWithinThreeKeepAlives(self) -> None:
        """Its own late acknowledgement has no effect."""
        reason = missing() if NIGHTLY else REASON
        if reason:
            self.skipTest(reason)
        run = subprocess.run([sys.executable, "-m", "tests.conversations.cut_worker"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        found = json.loads(run.stdout)
        self.assertLessEqual(found.pop("pings"), 3)
        self.assertEqual(found, {"attempts": [1, 2], "late": "ConnectionLost", "others": 0, "left": 0})
