"""A reactor for a broker in another program: that program's reactor, with timers that follow the monotonic clock.

Twisted's reactors mostly count by ``time.time``, and the broker must not change one that belongs to others. So a thread
waits, as for clients on a reactor, and passes each call to the reactor's own thread.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import directlyProvides, providedBy

from fleximq.broker.deadlines import Deadline, Deadlines
from fleximq.client.loops.steady_timers import ThreadClock, followsSystemClock

_log = Logger()


def steady(reactor: Any) -> Any:
    """Return a reactor with ``seconds`` and ``callLater`` on a monotonic clock: this one if it has one already."""
    return SteadyReactor(reactor) if followsSystemClock(reactor) else reactor


class SteadyReactor:
    """Replaces the timers of a reactor, and passes on its other attributes. :meth:`end` cancels the timers and ends the
    thread.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._clock = ThreadClock(reactor)
        self._deadlines = Deadlines(self._clock, _failed)
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    seconds = staticmethod(time.monotonic)

    def callLater(
        self, delay: float, call: Callable[..., object], /, *arguments: object, **more: object
    ) -> "SteadyCall":
        """Call once, after so many seconds."""
        return SteadyCall(self, delay, partial(call, *arguments, **more))

    def after(self, delay: float, call: Callable[[], None]) -> Deadline | None:
        """Call once after so many seconds; return its deadline, None if the call is in the next turn."""
        if delay > 0:
            return self._deadlines.callLater(delay, call)
        self._reactor.callFromThread(call)  # callLater would look at the system clock
        return None

    def end(self) -> None:
        """Cancel all timers, and wait for the end of the thread."""
        self._deadlines.stop()
        self._clock.end()


class SteadyCall:
    """A call that waits for its time, with the methods of Twisted's that are used."""

    def __init__(self, reactor: SteadyReactor, delay: float, call: Callable[[], object]) -> None:
        self._reactor = reactor
        self._call: Callable[[], object] | None = call
        self._round = 0
        self._deadline: Deadline | None = None
        self.reset(delay)

    def active(self) -> bool:
        """Return whether it is still to be made."""
        return self._call is not None

    def cancel(self) -> None:
        """Do not make the call."""
        self._call = None
        if self._deadline is not None:
            self._deadline.cancel()

    def reset(self, delay: float) -> None:
        """Call so many seconds from now instead."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._round += 1
        self._deadline = self._reactor.after(delay, partial(self._due, self._round))

    def _due(self, number: int) -> None:
        call = self._call
        if call is not None and number == self._round:
            self._call = None
            call()


def _failed(error: Exception) -> None:
    _log.failure("A timed call failed", Failure(error))
