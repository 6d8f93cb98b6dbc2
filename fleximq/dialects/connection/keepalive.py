"""Keep-alive of FlexiMQ connections (FlexiMQ document 3.7, docs/dialects.rst).

A connection that was silent for one interval is sent a PING, one silent for three is closed. The timer looks when
the connection was last heard, so that traffic costs it nothing.
"""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: A silence of so many intervals ends the connection.
MAX_SILENT_INTERVALS = 3
#: A client may suggest an interval between these, in seconds.
MIN_INTERVAL, MAX_INTERVAL = 5, 300


class KeepAlive:
    """Watches one connection.

    :param interval: seconds of silence that call for a PING.
    :param heard: returns when something was last received, in the clock's seconds.
    :param ping: sends a PING.
    :param silent: ends the connection.
    """

    def __init__(
        self,
        clock: IReactorTime,
        interval: float,
        heard: Callable[[], float],
        ping: Callable[[], None],
        silent: Callable[[], None],
    ) -> None:
        self._clock = clock
        self.interval = interval
        self._heard = heard
        self._ping = ping
        self._silent = silent
        self._timer: IDelayedCall | None = clock.callLater(interval, self._look)

    def suggest(self, interval: int) -> None:
        """Take over a client's suggestion; one under 5 or over 300 seconds is ignored."""
        if MIN_INTERVAL <= interval <= MAX_INTERVAL:
            self.interval = float(interval)
            if self._timer is not None:
                self._timer.reset(self.interval)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _look(self) -> None:
        idle = self._clock.seconds() - self._heard()
        if idle >= MAX_SILENT_INTERVALS * self.interval:
            self._timer = None
            self._silent()
            return
        if idle >= self.interval:
            self._ping()
            wait = min(self.interval, MAX_SILENT_INTERVALS * self.interval - idle)
        else:
            wait = self.interval - idle
        self._timer = self._clock.callLater(wait, self._look)
