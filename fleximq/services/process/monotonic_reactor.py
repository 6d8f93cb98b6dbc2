"""Makes a reactor's timers independent of the system clock.

Twisted's reactors count by ``time.time``, so that a step of the system clock (NTP, an operator, a virtual machine that
continues) moves all their timers: those of the broker, of Twisted's endpoints and of plug-ins. A reactor class of our
own cannot be installed instead: ``twistd`` has installed one, chosen by ``--reactor``, before it reads a plug-in.

The clock is CLOCK_MONOTONIC, which pauses while a machine sleeps, as the waits of ``epoll`` do. A clock that counts
that time would make all timers due at the wake, and the broker would take every client for silent.
"""

import time
from collections.abc import Callable
from typing import Any

#: Seconds by which two readings of one clock differ at most.
_SAME = 1.0


def followMonotonicClock(reactor: Any, monotonic: Callable[[], float] = time.monotonic) -> None:
    """Let a reactor count by ``monotonic`` from now on, and move its timers accordingly.

    No effect on a reactor that does so already.
    """
    difference = monotonic() - reactor.seconds()
    if abs(difference) < _SAME:
        return
    reactor.seconds = monotonic
    # Not getDelayedCalls: cancelled timers remain in the heap, which must stay in order.
    for call in (*reactor._pendingTimedCalls, *reactor._newTimedCalls):
        call.time += difference
        call.seconds = monotonic
