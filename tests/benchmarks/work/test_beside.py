"""Where the broker and those who measure it run."""

import os
import subprocess
import sys

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from benchmarks.work.beside import apart


class ApartTests(SynchronousTestCase):
    """A process beside this one."""

    def setUp(self) -> None:
        """Start one that waits."""
        self.before = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, self.before)
        waiting = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.addCleanup(waiting.communicate, b"\n")
        self.pid = waiting.pid

    def test_apart(self) -> None:
        """The two share no processor, and between them have all; afterwards this one has its own again."""
        if len(self.before) == 1:
            raise SkipTest("there is one processor")
        with apart(self.pid):
            mine, its = os.sched_getaffinity(0), os.sched_getaffinity(self.pid)
        self.assertEqual((mine & its, mine | its, len(its)), (set(), self.before, 1))
        self.assertEqual(os.sched_getaffinity(0), self.before)

    def test_oneProcessor(self) -> None:
        """Where there is only one, it is left to both."""
        one = {min(self.before)}
        os.sched_setaffinity(0, one)
        with apart(self.pid):
            self.assertEqual((os.sched_getaffinity(0), os.sched_getaffinity(self.pid)), (one, self.before))
