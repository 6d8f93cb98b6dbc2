"""Logs steps of the system clock, which an operator or NTP sets: times of messages and credentials follow it."""

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

_log = Logger()

#: Seconds between two looks, and seconds between these by which the clock is set, not adjusted.
INTERVAL, STEP = 1.0, 1.0


class ClockStepService(Service):
    """Compares ``wall``, the seconds since 1970, with a monotonic clock."""

    def __init__(self, clock: IReactorTime, wall: Callable[[], float]) -> None:
        self._clock, self._wall = clock, wall
        self._looking = LoopingCall(self._look)
        self._looking.clock = clock

    def startService(self) -> None:
        self._ahead = self._wall() - self._clock.seconds()
        super().startService()
        self._looking.start(INTERVAL)

    def stopService(self) -> None:
        super().stopService()
        if self._looking.running:
            self._looking.stop()

    def _look(self) -> None:
        ahead = self._wall() - self._clock.seconds()
        step, self._ahead = ahead - self._ahead, ahead
        if abs(step) >= STEP:
            how = "forward, or the machine slept" if step > 0 else "back"
            words = "The system clock was set by {step:+.1f} s ({how}): "
            words += "times of messages and credentials follow it, no timer does"
            _log.warn(words, step=step, how=how)
