"""Feeds systemd's watchdog while the broker works.

The broker works while the reactor turns and, with a journal, while the writer thread processes its queue: a beat is
appended to that queue, and the watchdog is fed only when the thread answers it. So a thread that hangs on a disk ends
the process, as a hanging reactor does, and the next process recovers all confirmed messages.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

_log = Logger()

#: The feeding interval as a share of the service manager's timeout.
INTERVAL_SHARE = 0.5


def watchdogInterval(environment: Mapping[str, str], process: int | None = None) -> float | None:
    """Return the seconds between two feedings, None if the watchdog is not enabled for this process.

    :param environment: uses ``WATCHDOG_USEC`` and ``WATCHDOG_PID``.
    :param process: the process id; our own if None.
    """
    meant = environment.get("WATCHDOG_PID", "")
    if meant and meant != str(os.getpid() if process is None else process):
        return None
    try:
        timeout = int(environment.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return timeout / 1e6 * INTERVAL_SHARE if timeout > 0 else None


class WatchdogService(Service):
    """Feeds while it runs.

    :param pause: seconds between two feedings.
    :param feed: feeds the watchdog.
    :param beat: calls its argument when the monitored thread has answered; None to monitor the reactor alone.
    """

    def __init__(
        self,
        clock: IReactorTime,
        pause: float,
        feed: Callable[[], object],
        beat: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._pause = pause
        self._feed = feed
        self._beat = beat or (lambda answered: answered())
        self._missed = 0
        self._awaitsAnswer = False
        self._loop = LoopingCall(self._check)
        self._loop.clock = clock

    def startService(self) -> None:
        """Feed at once, then regularly."""
        super().startService()
        self._loop.start(self._pause).addErrback(_failed)

    def stopService(self) -> None:
        """Stop feeding; a stopped service is not watched."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()

    def _check(self) -> None:
        if not self._awaitsAnswer:
            self._awaitsAnswer = True
            self._beat(self._answered)
            return
        self._missed += 1
        if self._missed == 1:
            _log.error(
                "The thread that writes the journal has not answered for {seconds} seconds: the watchdog is not fed",
                seconds=self._pause,
            )

    def _answered(self) -> None:
        if self._missed:
            _log.info("The thread that writes the journal answers again")
        self._awaitsAnswer = False
        self._missed = 0
        if self.running:
            self._feed()


def _failed(failure: Failure) -> Any:
    _log.failure("The watchdog is not fed any more", failure)
