"""What a call costs does not depend on how fast the machine is now, and no test asks for the time of its processor."""

import itertools
import re
from pathlib import Path
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from tests import processor_time
from tests.processor_time import UNIT, processorSeconds

TESTS = Path(__file__).parent
#: The files that may read these clocks: they calibrate, bound a campaign, or report.
MAY_READ = {
    "attacks/case.py", "attacks/watched.py", "fuzz/guided.py", "fuzz/run.py", "processor_time.py",
    "schemas/test_hostile.py",
}  # fmt: skip


class ProcessorSecondsTests(SynchronousTestCase):
    """Costs as multiples of a fixed piece of work."""

    def test_costIsTheSameOnASlowMachine(self) -> None:
        """A call that takes as long as the fixed piece of work costs one unit, whatever that is in seconds."""
        for pace in (1.0, 50.0):
            clock = itertools.count()
            self.patch(processor_time, "time", SimpleNamespace(thread_time=lambda: next(clock) * pace))  # noqa: B023
            self.assertAlmostEqual(processorSeconds(lambda: None), UNIT)

    def test_noOtherTestReadsTheProcessorsClock(self) -> None:
        """Bounds in its seconds fail where a machine is slow."""
        reading = {
            str(path.relative_to(TESTS))
            for path in TESTS.rglob("*.py")
            if re.search(r"\b(time\.process_time|time\.thread_time|perf_counter)\(", path.read_text())
        }
        self.assertEqual(reading - MAY_READ, set())
