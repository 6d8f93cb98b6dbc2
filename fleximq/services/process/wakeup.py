"""Calls functions on the reactor thread faster than ``callFromThread``, where the system allows it.

Linux's eventfd wakes the reactor without a pipe, and functions run in the same reactor turn, not in the next. Measured
between two idle threads: 9 us instead of 26; a durable publication confirmed by a PONG, without syncs: 155 instead of
235.
"""

import os
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

_log = Logger()


@implementer(IReadDescriptor)
class Wakeup:
    """Calls functions on the reactor thread, in order, from all threads; by ``callFromThread`` unless started."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._number = -1
        self._lock = Lock()

    def start(self) -> None:
        """Accept calls by eventfd; called on the reactor thread shortly before it runs."""
        if self._number < 0 and hasattr(os, "eventfd") and IReactorFDSet.providedBy(self._reactor):
            self._number = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._reactor.addReader(self)

    def stop(self) -> None:
        """Run pending calls and close the eventfd, after all other threads have finished."""
        if self._number >= 0:
            self._reactor.removeReader(self)
            with self._lock:
                number, self._number = self._number, -1
                os.close(number)
        self._callAll()

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function soon on the reactor thread; from any thread."""
        self._calls.append((function, arguments))
        with self._lock:
            if self._number >= 0:
                os.eventfd_write(self._number, 1)
                return
        self._reactor.callFromThread(self._callAll)

    def fileno(self) -> int:
        return self._number

    def doRead(self) -> None:
        os.eventfd_read(self._number)
        self._callAll()

    def connectionLost(self, reason: Failure) -> None:
        """Ignore that the reactor disconnects all descriptors at its end."""

    def logPrefix(self) -> str:
        return "journal"

    def _callAll(self) -> None:
        calls = self._calls
        for _ in range(len(calls)):  # later calls wake the reactor again
            function, arguments = calls.popleft()
            try:
                function(*arguments)
            except Exception:
                _log.failure("a call from another thread failed")
