"""The time by which an owner counts the seconds that it may serve (/explanation/cluster, Ownership).

The reactor's own seconds do not count the time in which the machine is suspended, and a reactor that is not FlexiMQ's
follows the system clock, which can be set. These go on evenly.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

#: Linux counts the time of a suspended machine in this clock only.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@implementer(IReactorTime)
class SteadyClock:
    """A reactor's timers with steady seconds."""

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor

    def seconds(self) -> float:
        """Return the seconds since the machine was started."""
        return time.clock_gettime(_CLOCK)

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object) -> IDelayedCall:  # noqa: A002 the name in IReactorTime
        return self._reactor.callLater(delay, callable, *args, **kwargs)

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        return self._reactor.getDelayedCalls()
