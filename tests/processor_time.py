"""Measures what a call costs, for bounds of what hostile input costs; they are about ten times what is usual.

A busy processor takes two or three times as long for everything. So a fixed piece of work is measured directly before
and after the call, and the cost is the ratio of both: a bound can be read as seconds of a quiet machine of 2026.
"""

import time
from collections.abc import Callable
from typing import Self

TRIES = 3
#: Seconds that :func:`calibrate` takes on a quiet machine.
UNIT = 0.00065


def calibrate() -> float:
    """Do a fixed piece of work, and return its processor time in seconds: small objects, a dict, and new memory."""
    began = time.thread_time()
    found = {}
    for number in range(4000):
        found[number & 255] = (number, str(number))
    bytes(1 << 20)
    return time.thread_time() - began


class Measured:
    """A block whose cost is ``seconds`` after its end."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._calibrated = calibrate()
        self._began = time.thread_time()
        return self

    def __exit__(self, *error: object) -> None:
        took = time.thread_time() - self._began
        self.seconds = took * 2 * UNIT / (self._calibrated + calibrate())


def processorSeconds(call: Callable[[], object]) -> float:
    """Return the least cost of three calls, which no pause of the garbage collector raises."""
    found = []
    for _ in range(TRIES):
        with Measured() as measured:
            call()
        found.append(measured.seconds)
    return min(found)
