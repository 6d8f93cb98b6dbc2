"""Feeds systemd's watchdog for as long as the broker can do its work.

That is while the reactor turns and, where there is a journal, while the thread that writes it does what it is handed:
it is handed a beat behind all that waits, and only its answer is food. A thread that hangs on a disk therefore ends
the process, as a reactor that hangs does, and whatever was confirmed is read back by the next one.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

_log = Logger("fleximq.services.watchdog")

#: The share of the time that the service manager waits, after which it is fed again.
INTERVAL_SHARE = 0.5


def watchdogInterval(environment: Mapping[str, str], process: int | None = None) -> float | None:
    """Return the seconds between two feedings, None if nobody waits for them from this process.

    :param environment: ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` are looked at.
    :param process: its id; our own if None.
    """
    meant = environment.get("WATCHDOG_PID", "")
    if meant and meant != str(os.getpid() if process is None else process):
        return None
    try:
        patience = int(environment.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return patience / 1e6 * INTERVAL_SHARE if patience > 0 else None


class WatchdogService(Service):
    """Feeds while it runs.

    :param pause: seconds between two beats.
    :param feed: feeds the watchdog.
    :param beat: calls what it is given when what is watched does its work; None: the reactor is all there is.
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
        self._waits = False
        self._loop = LoopingCall(self._look)
        self._loop.clock = clock

    def startService(self) -> None:
        """Feed at once, and from then on."""
        super().startService()
        self._loop.start(self._pause).addErrback(_failed)

    def stopService(self) -> None:
        """Feed no more; a service that ends is not watched."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()

    def _look(self) -> None:
        if not self._waits:
            self._waits = True
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
        self._waits = False
        self._missed = 0
        if self.running:
            self._feed()


def _failed(failure: Failure) -> Any:
    _log.failure("The watchdog is not fed any more", failure)
