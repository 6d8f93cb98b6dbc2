"""How often Python looks for cycles of garbage: seldom, and never among what a start leaves for good.

The broker's own values are freed by their reference counts. Cycles come from Failures, closures and Autobahn's
connections, so the collector stays on; but it also walks what is alive, and in a broker those are the messages of
its queues.

Measured with the benchmarks' queue scenes, 100,000 messages of 100 bytes, thousands a second:

=============== ============== ============== ==============
thresholds      BlipMQ PUBLISH MiniMQ PRODUCE MiniMQ CONSUME
=============== ============== ============== ==============
700, 10, 10     937            235            148
50,000, 5, 5    1,368          279            210
200,000, 10, 10 1,458          291            220
never           1,670          306            239
=============== ============== ============== ==============

What it costs: 50,000 connections that come and go leave a broker of 59 MiB at 71 MiB if they speak WebSocket, at 68 if
each says something wrong, all of it within the first 10,000 (by Python's thresholds: 60 and 59 MiB).
"""

import gc
from typing import Protocol

from twisted.application.service import Service

#: New containers before the youngest are looked through, and how many such rounds before older ones are.
THRESHOLDS = (50_000, 5, 5)


class Collector(Protocol):
    """What is asked of the module :mod:`gc`."""

    def collect(self) -> int:
        """Look through everything once."""

    def freeze(self) -> None:
        """Look no more through what is there now."""

    def unfreeze(self) -> None:
        """Look through it again."""

    def get_threshold(self) -> tuple[int, int, int]:
        """Return how often it looks by itself."""

    def set_threshold(self, young: int, middle: int, old: int, /) -> None:
        """Say how often it looks by itself."""


class GarbageService(Service):
    """Makes the collector of this process rare while it runs; meant to start last, when all modules are loaded.

    :param collector: the module :mod:`gc`, or a test's stand-in.
    """

    def __init__(self, collector: Collector = gc) -> None:
        self._collector = collector
        self._before: tuple[int, int, int] | None = None

    def startService(self) -> None:
        """Collect once, take out of the collector's sight what is left, and raise its thresholds."""
        super().startService()
        self._before = self._collector.get_threshold()
        self._collector.collect()
        self._collector.freeze()
        self._collector.set_threshold(*THRESHOLDS)

    def stopService(self) -> None:
        """Give everything back to the collector, and its thresholds."""
        super().stopService()
        if self._before is not None:
            self._collector.set_threshold(*self._before)
            self._collector.unfreeze()
            self._before = None
