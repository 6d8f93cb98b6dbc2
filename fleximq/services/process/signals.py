"""Signals to the broker's process.

The first SIGTERM or SIGINT stops it in order, with exit code 0; the second ends it at once. They are handled here
because ``twistd`` would send the same signal to its own process again after an orderly stop, as recorded by the
reactor's handlers. SIGHUP reloads the settings. docs/guides/operating.rst, "Stopping" and "Reloading".
"""

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.application.service import Service
from twisted.logger import Logger

from fleximq.services.process.startup_failure import removePidfile

_log = Logger()

#: The signals that stop the broker.
STOP = (signal.SIGTERM, signal.SIGINT)


@dataclass(eq=False, repr=False)
class SignalService(Service):
    """Handles signals from its start until the process ends.

    The reactor installs its own handlers when it starts; ours are installed again after that, and signals are blocked
    in between. They are unblocked as soon as it runs, because later threads and programs would inherit the mask.
    Requested actions are done when the reactor runs.

    :param reload: called for SIGHUP.
    :param configuration: the options of ``twistd``; its pid file is removed when the process ends at once.
    """

    _reactor: Any
    _reload: Callable[[], object]
    _configuration: Mapping[str, object]
    _onSignal: Callable[[int, Any], Any] = signal.signal
    _kill: Callable[[int, int], None] = os.kill
    mask: Callable[[int, Iterable[int]], object] = signal.pthread_sigmask
    _stopRequested = False

    def startService(self) -> None:
        super().startService()
        self._installStopHandlers()
        self._onSignal(signal.SIGHUP, self._onHangup)
        journalHandler = self._onSignal(signal.SIGUSR2, self._nothingToOpen)
        if journalHandler not in (None, signal.SIG_DFL):  # the journal's handler; the default one would end the process
            self._onSignal(signal.SIGUSR2, journalHandler)
        self._reactor.addSystemEventTrigger("before", "startup", self.mask, signal.SIG_BLOCK, STOP)
        self._reactor.callWhenRunning(self._begin)

    def _installStopHandlers(self) -> None:
        for number in STOP:
            self._onSignal(number, self._stop)

    def _begin(self) -> None:
        self._installStopHandlers()
        self.mask(signal.SIG_UNBLOCK, STOP)

    def _nothingToOpen(self, *ignored: object) -> None:
        self._reactor.callFromThread(_log.warn, "Received SIGUSR2, but no journal is configured")

    def _onHangup(self, *ignored: object) -> None:
        # A signal may arrive at any point in the code.
        self._reactor.callFromThread(lambda: self._reload() if self.running else None)

    def _stop(self, number: int, frame: object = None) -> None:
        if self._stopRequested:
            removePidfile(self._configuration)
            self._onSignal(number, signal.SIG_DFL)
            self._kill(os.getpid(), number)
            return
        self._stopRequested = True
        self._reactor.callFromThread(self._stopReactor, signal.Signals(number).name)

    def _stopReactor(self, name: str) -> None:
        if self.running:  # else it is stopping already
            _log.info("Received {name}: the broker stops; once more ends it at once", name=name)
            self._reactor.stop()
