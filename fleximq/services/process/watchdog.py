"""Feeds systemd's watchdog while the broker works.

With a journal, a beat is appended to the queue of the writer thread, and the watchdog is fed only when the thread
answers it. So a thread that hangs on a disk ends the process, as a hanging reactor does, and the next process recovers
all confirmed messages.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

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


@dataclass(eq=False, repr=False)
class WatchdogService(Service):
    """Feeds while it runs.

    :param pause: seconds between two feedings.
    :param beat: calls its argument when the monitored thread has answered; None to monitor the reactor alone.
    """

    clock: InitVar[IReactorTime]
    _pause: float
    _feed: Callable[[], object]
    beat: InitVar[Callable[[Callable[[], None]], object] | None] = None
    _missed = 0
    _awaitsAnswer = False

    def __post_init__(self, clock: IReactorTime, beat: Callable[[Callable[[], None]], object] | None) -> None:
        self._beat = beat or (lambda answered: answered())
        self._loop = LoopingCall(self._check)
        self._loop.clock = clock

    def startService(self) -> None:
        super().startService()
        feeding = self._loop.start(self._pause)
        feeding.addErrback(lambda failure: _log.failure("The watchdog is not fed any more", failure))

    def stopService(self) -> None:
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
            words = "The thread that writes the journal has not answered for {seconds} seconds: the watchdog is not fed"
            _log.error(words, seconds=self._pause)

    def _answered(self) -> None:
        if self._missed:
            _log.info("The thread that writes the journal answers again")
        self._awaitsAnswer = False
        self._missed = 0
        if self.running:
            self._feed()
