"""Keep-alive of FlexiMQ connections (FlexiMQ document 3.7, docs/reference/dialects.rst), and of Identity ones.

After one interval of silence, in seconds, a connection is sent a PING; after three it is closed. Traffic costs no timer
calls: the timer compares the time of the last read when it fires.
"""

from typing import Protocol

from fleximq.broker.deadlines import Deadline, Deadlines

#: Intervals of silence after which the connection is closed.
MAX_SILENT_INTERVALS = 3
#: Limits of the interval that a client may suggest, in seconds.
MIN_INTERVAL, MAX_INTERVAL = 5, 300


class Watched(Protocol):
    """The session of a connection."""

    def lastReceived(self) -> float:
        """Return the time of the last read, in the clock's seconds."""

    def ping(self) -> None:
        """Send a PING."""

    def silent(self) -> None:
        """Close the connection: the peer was silent for too long."""


class KeepAlive:
    """The timer of one connection; ``mayBeSilent``: the peer is not known to answer a PING, so it is not closed."""

    __slots__ = ("_deadlines", "_next", "_watched", "interval", "mayBeSilent")

    def __init__(self, deadlines: Deadlines, interval: float, watched: Watched) -> None:
        self._deadlines = deadlines
        self.interval = interval
        self._watched = watched
        self.mayBeSilent = False
        self._next: Deadline | None = deadlines.callLater(interval, self._look)

    def suggest(self, interval: int) -> None:
        """Use the interval that a client suggests; values below 5 or above 300 seconds are ignored."""
        if MIN_INTERVAL <= interval <= MAX_INTERVAL:
            self.interval = float(interval)
            if self._next is not None:
                self._next.cancel()
                self._next = self._deadlines.callLater(self.interval, self._look)

    def stop(self) -> None:
        """Stop the timer."""
        if self._next is not None:
            self._next.cancel()
        self._next = None

    def _look(self) -> None:
        idle = self._deadlines.seconds() - self._watched.lastReceived()
        if idle >= MAX_SILENT_INTERVALS * self.interval and not self.mayBeSilent:
            self._next = None
            self._watched.silent()
            return
        if idle >= self.interval:
            self._watched.ping()
            left = MAX_SILENT_INTERVALS * self.interval - idle
            wait = min(self.interval, left) if left > 0 else self.interval
        else:
            wait = self.interval - idle
        self._next = self._deadlines.callLater(wait, self._look)
