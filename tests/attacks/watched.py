"""``twistd`` with a reactor that notes how long its thread works: ``python watched.py FILE ARGUMENTS OF TWISTD``.

FILE holds three numbers: the longest time of one event (a read, a write, the timed calls that were due), the longest
time of one turn, and the time of all turns. They are seconds of the thread's own processor time, so that other
processes of the machine do not count. Whoever reads them may set them to zero.
"""

import mmap
import sys
import time

from twisted.internet import epollreactor

EVENT, TURN, ALL = range(3)
SLOTS = 3


def watch(path: str) -> None:
    """Note the times in a file from now on."""
    with open(path, "r+b") as file:
        times = memoryview(mmap.mmap(file.fileno(), 8 * SLOTS)).cast("d")
    kind = epollreactor.EPollReactor

    def note(name: str, longest: int, adds: bool) -> None:
        inner = getattr(kind, name)

        def timed(self: object, *arguments: object) -> object:
            began = time.thread_time()
            try:
                return inner(self, *arguments)
            finally:
                took = time.thread_time() - began
                if took > times[longest]:
                    times[longest] = took
                if adds:
                    times[ALL] += took

        setattr(kind, name, timed)

    note("_doReadOrWrite", EVENT, False)
    note("runUntilCurrent", EVENT, True)
    note("doIteration", TURN, True)


if __name__ == "__main__":
    watch(sys.argv.pop(1))
    epollreactor.install()
    from twisted.scripts.twistd import run

    run()
