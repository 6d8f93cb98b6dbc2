"""Tunes Python's garbage collector: short runs that skip all objects created at the start.

The broker's own values are freed by reference counting; failures, closures and Autobahn's connections form cycles, so
the collector stays on. But it also traverses live objects, e.g. the messages of queues, and every connection waits
meanwhile. Small young generations make these pauses short, and together no longer.

Processor time in the collector, and its longest runs: all, and those of young objects only. Measured with the
benchmarks' queue scenes, three times 300,000 messages of 100 bytes:

=============== ============================ ============================
thresholds      MiniMQ: all, longest, young  BlipMQ: all, longest, young
=============== ============================ ============================
700, 10, 10     1,480 ms, 97 ms, 2 ms        505 ms, 60 ms, 2 ms
50,000, 5, 5    350 ms, 70 ms, 70 ms         145 ms, 17 ms, 17 ms
5,000, 1, 100   315 ms, 65 ms, 4 ms          160 ms, 3 ms, 3 ms
=============== ============================ ============================

The cost: closed WebSockets that were open with a thousand others stay in memory until the rare collection of all
objects, calculated for about 20,000 of them (10 KiB each). Short connections do not grow the broker: it has 68 MiB
after 10,000 of them.
"""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

from twisted.application.service import Service

#: New containers before the youngest generation is collected, and rounds before the older ones are.
THRESHOLDS = (5_000, 1, 100)


def returnFreeMemory() -> None:
    """Return the memory that the start does not need any more to the system, if the C library can: the restored state
    of a large journal is read through much more memory than it takes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class GarbageService(Service):
    """Makes collections short while it runs; starts last, when all modules are loaded."""

    def __init__(self, collector: Any = gc, trim: Callable[[], object] = returnFreeMemory) -> None:
        self._collector = collector
        self._trim = trim
        self._before: tuple[int, int, int] | None = None

    def startService(self) -> None:
        super().startService()
        self._before = self._collector.get_threshold()
        self._collector.collect()
        self._collector.freeze()
        self._collector.set_threshold(*THRESHOLDS)
        self._trim()

    def stopService(self) -> None:
        super().stopService()
        if self._before is not None:
            self._collector.set_threshold(*self._before)
            self._collector.unfreeze()
            self._before = None
