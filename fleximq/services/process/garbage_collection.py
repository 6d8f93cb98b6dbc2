"""Tunes Python's garbage collector: rare runs that skip all objects created at the start.

The broker's own values are freed by reference counting. Failures, closures and Autobahn's connections form cycles, so
the collector stays on. But it also traverses live objects, in a broker the messages of its queues.

Measured with the benchmarks' queue scenes, 100,000 messages of 100 bytes, thousands a second:

=============== ============== ============== ==============
thresholds      BlipMQ PUBLISH MiniMQ PRODUCE MiniMQ CONSUME
=============== ============== ============== ==============
700, 10, 10     937            235            148
50,000, 5, 5    1,368          279            210
200,000, 10, 10 1,458          291            220
never           1,670          306            239
=============== ============== ============== ==============

The cost: after 50,000 short connections a broker of 59 MiB has 71 MiB if they were WebSockets, 68 if each sent an
error, all of it within the first 10,000 (with Python's thresholds: 60 and 59 MiB).
"""

import gc
from typing import Any

from twisted.application.service import Service

#: New containers before the youngest generation is collected, and rounds before the older ones are.
THRESHOLDS = (50_000, 5, 5)


class GarbageService(Service):
    """Makes collections rare while it runs; starts last, when all modules are loaded.

    :param collector: the module :mod:`gc`, or a test's fake.
    """

    def __init__(self, collector: Any = gc) -> None:
        self._collector = collector
        self._before: tuple[int, int, int] | None = None

    def startService(self) -> None:
        """Collect once, exempt the remaining objects, and raise the thresholds."""
        super().startService()
        self._before = self._collector.get_threshold()
        self._collector.collect()
        self._collector.freeze()
        self._collector.set_threshold(*THRESHOLDS)

    def stopService(self) -> None:
        """Restore the thresholds and make all objects collectable."""
        super().stopService()
        if self._before is not None:
            self._collector.set_threshold(*self._before)
            self._collector.unfreeze()
            self._before = None
