"""How often Python looks for cycles of garbage: seldom, and never among what a start leaves for good.

The broker's own values are freed by their reference counts. Cycles come from Failures, closures and Autobahn's
connections, so the collector stays on; but it also walks what is alive, and in a broker those are the messages of
its queues. By Python's own thresholds (700, 10, 10) it takes a third of the time of a queue with 100,000 messages.
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
