"""Timers that follow the monotonic clock, for clients on a reactor that belongs to another program.

Twisted's reactors count by ``time.time``: a step of the system clock forward fires their timers early, and a step
backward delays them for as long. A library must not change a reactor that it was given. So one thread for each
reactor waits, and passes each call to the reactor's own thread.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from math import inf
from threading import Condition, Thread, current_thread
from typing import Any

from fleximq.broker.deadlines import Deadlines, Timer

#: Seconds after which the thread ends if no timer was set.
LINGER = 60.0


@cache
def timersOf(reactor: Any) -> Any:
    """Return an object whose ``callLater`` follows the monotonic clock.

    It is the reactor itself if its seconds are not those of the system clock; for other reactors its ``callLater``
    takes a function without arguments.
    """
    return Deadlines(ThreadClock(reactor)) if followsSystemClock(reactor) else reactor


def followsSystemClock(reactor: Any) -> bool:
    """Return whether a reactor's seconds are those of the system clock."""
    return bool(abs(reactor.seconds() - time.time()) < 1.0)


class ThreadClock:
    """The clock of one :class:`~fleximq.broker.deadlines.Deadlines`, which has one timer at a time."""

    seconds = staticmethod(time.monotonic)

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._changed = Condition()
        self._thread: Thread | None = None
        self._due = inf
        self._alarm = _Alarm(lambda: None)

    def callLater(self, delay: float, call: Callable[..., object], /, *arguments: object) -> Timer:
        """Call in the reactor's thread; replaces the previous timer."""
        alarm = _Alarm(partial(call, *arguments))
        with self._changed:
            self._due, self._alarm = self.seconds() + delay, alarm
            self._changed.notify()
            if self._thread is None or not self._thread.is_alive():  # it is not in a forked process
                self._thread = Thread(target=self._wait, name="timers of FlexiMQ", daemon=True)
                self._thread.start()
        return alarm

    def end(self) -> None:
        """End the thread, and wait for that; a timer that is set later starts another."""
        with self._changed:
            thread, self._thread, self._due = self._thread, None, inf
            self._changed.notify()
        if thread is not None:
            thread.join()

    def _wait(self) -> None:
        while True:
            with self._changed:
                while (left := self._due - self.seconds()) > 0:
                    if self._thread is not current_thread():
                        return
                    if not self._changed.wait(min(left, LINGER)) and self._due == inf:
                        self._thread = None
                        return
                self._due = inf
                alarm = self._alarm
            self._reactor.callFromThread(alarm.ring)


class _Alarm:
    """The timer of a :class:`ThreadClock`; used in the reactor's thread."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call

    def active(self) -> bool:
        return self._call is not None

    def cancel(self) -> None:
        self._call = None

    def ring(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()
