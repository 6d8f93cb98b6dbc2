"""``twistd`` with a reactor that notes how long its thread works: ``python watched.py FILE ARGUMENTS OF TWISTD``.

FILE holds three numbers: the longest time of one event (a read, a write, the timed calls that were due), the longest
time of one turn, and the time of all turns. They are seconds of the thread's own processor time, so that other
processes of the machine do not count; those that make the processor slower do not count either, since each is divided
by what a fixed piece of work has taken directly after it. Whoever reads them may set them to zero.
"""

import mmap
import sys
import time

from twisted.internet import epollreactor

from tests.processor_time import UNIT, calibrate

EVENT, TURN, ALL = range(3)
SLOTS = 3
#: Seconds of work after which the processor's pace is looked at again.
OFTEN = 0.005


def watch(path: str) -> None:
    """Note the times in a file from now on."""
    with open(path, "r+b") as file:
        times = memoryview(mmap.mmap(file.fileno(), 8 * SLOTS)).cast("d")
    kind = epollreactor.EPollReactor
    pace = Pace()

    def note(name: str, longest: int, adds: bool) -> None:
        inner = getattr(kind, name)

        def timed(self: object, *arguments: object) -> object:
            began = pace.now()
            try:
                return inner(self, *arguments)
            finally:
                took = pace.ofQuiet(pace.now() - began)
                if took > times[longest]:
                    times[longest] = took
                if adds:
                    times[ALL] += took

        setattr(kind, name, timed)

    note("_doReadOrWrite", EVENT, False)
    note("runUntilCurrent", EVENT, True)
    note("doIteration", TURN, True)


class Pace:
    """How fast this processor is now; it is looked at again after each few milliseconds of work."""

    def __init__(self) -> None:
        self._calibrating = self._since = 0.0
        self._factor = UNIT / min(calibrate() for _ in range(5))

    def now(self) -> float:
        """Return the thread's time, without that of the calibrations."""
        return time.thread_time() - self._calibrating

    def ofQuiet(self, took: float) -> float:
        """Return how many seconds of a quiet machine this time is."""
        self._since += took
        if self._since > OFTEN:
            self._since, calibrated = 0.0, calibrate()
            self._calibrating += calibrated
            self._factor = UNIT / calibrated
        return took * self._factor


if __name__ == "__main__":
    watch(sys.argv.pop(1))
    epollreactor.install()
    from twisted.scripts.twistd import run

    run()
