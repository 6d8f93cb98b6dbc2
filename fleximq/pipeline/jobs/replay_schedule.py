"""The publication times of a replay: as fast as possible, at a rate, or in the original rhythm. A slice has the rows
that are due within the same tenth of a second, and is published in one transaction.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

#: Seconds of a slice.
TICK = 0.1

Numbers = npt.NDArray[Any]


class ScheduledSlice(NamedTuple):
    """The rows from ``start`` up to ``stop``, due so many seconds after the beginning."""

    start: int
    stop: int
    due: float


class ReplaySchedule:
    """Computes when rows are due: ``rate`` is in rows per second, ``speed`` a factor to the original rhythm; without
    both all are due at once. Call it once for all rows, block by block.
    """

    def __init__(self, rate: float | None = None, speed: float | None = None) -> None:
        self._rate = rate
        self._speed = speed
        self._done = 0
        self._first: int | None = None
        self._latest = 0

    def slices(self, times: Numbers) -> Iterator[ScheduledSlice]:
        """Yield the slices of the next rows by their times in microseconds; a clock set back makes no pause."""
        if not len(times):
            return
        if self._rate is None and self._speed is None:
            yield ScheduledSlice(0, len(times), 0.0)
            return
        ticks = self._ticks(times)
        ends = [*(np.flatnonzero(np.diff(ticks)) + 1).tolist(), len(times)]
        start = 0
        for stop in ends:
            yield ScheduledSlice(start, stop, int(ticks[start]) * TICK)
            start = stop

    def _ticks(self, times: Numbers) -> Numbers:
        if self._rate is not None:
            places = self._done + np.arange(len(times))
            self._done += len(times)
            due: Numbers = places / self._rate
        else:
            if self._first is None:
                self._first = self._latest = int(times[0])
            latest = np.maximum.accumulate(np.maximum(times, self._latest))
            self._latest = int(latest[-1])
            due = (latest - self._first) / (self._speed or 1.0) / 1_000_000
        ticks: Numbers = np.floor(due / TICK + 1e-9).astype(np.int64)
        return ticks
