"""What the broker's process does when it gets a signal.

SIGTERM and SIGINT stop it in good order, after which the process ends with 0; the second of them ends it at once.
``twistd`` by itself sends its own process the same signal again behind an orderly stop, because the reactor's way of
taking signals notes it for that; so they are taken here. SIGHUP reads the settings again. docs/operating.rst,
"Stopping" and "Reloading".
"""

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twisted.application.service import Service
from twisted.logger import Logger

from fleximq.services.process.startup_failure import removePidfile

_log = Logger("fleximq.services.signals")

#: What asks the broker to stop.
STOP = (signal.SIGTERM, signal.SIGINT)


class SignalService(Service):
    """Takes signals from its start on until the process ends.

    The reactor takes those that stop it as it starts itself; they are taken from it behind that, and wait in between.
    What they ask for is done when it runs. They wait no longer than that, for whatever is started meanwhile, programs
    and threads, would inherit it.

    :param reactor: is stopped; what a signal asks for is done in a round of its own.
    :param reload: called for SIGHUP.
    :param configuration: the options of ``twistd``, whose pid file goes with a process that ends at once.
    :param onSignal: installs what is called when this process gets a signal (:func:`signal.signal`).
    :param kill: sends a signal to a process (:func:`os.kill`).
    :param mask: makes signals wait, or no more (:func:`signal.pthread_sigmask`).
    """

    def __init__(
        self,
        reactor: Any,
        reload: Callable[[], object],
        configuration: Mapping[str, object],
        onSignal: Callable[[int, Any], Any] = signal.signal,
        kill: Callable[[int, int], None] = os.kill,
        mask: Callable[[int, Iterable[int]], object] = signal.pthread_sigmask,
    ) -> None:
        self._reactor = reactor
        self._reload = reload
        self._configuration = configuration
        self._onSignal = onSignal
        self._kill = kill
        self._mask = mask
        self._asked = False

    def startService(self) -> None:
        """Take signals; those that stop the broker once more behind the reactor's own start."""
        super().startService()
        self._take()
        self._onSignal(signal.SIGHUP, self._hungUp)
        taker = self._onSignal(signal.SIGUSR2, self._nothingToOpen)
        if taker not in (None, signal.SIG_DFL):  # it is the journal's; without one it would end the process
            self._onSignal(signal.SIGUSR2, taker)
        self._reactor.addSystemEventTrigger("before", "startup", self._mask, signal.SIG_BLOCK, STOP)
        self._reactor.callWhenRunning(self._begin)

    def _take(self) -> None:
        for number in STOP:
            self._onSignal(number, self._stop)

    def _begin(self) -> None:
        self._take()
        self._mask(signal.SIG_UNBLOCK, STOP)

    def _nothingToOpen(self, *ignored: object) -> None:
        self._reactor.callFromThread(_log.warn, "Received SIGUSR2, but there is no journal to open again")

    def _hungUp(self, *ignored: object) -> None:
        self._reactor.callFromThread(self._reloadIfRunning)  # a signal comes anywhere in the code

    def _reloadIfRunning(self) -> None:
        if self.running:
            self._reload()

    def _stop(self, number: int, frame: object = None) -> None:
        if self._asked:
            removePidfile(self._configuration)
            self._onSignal(number, signal.SIG_DFL)
            self._kill(os.getpid(), number)
            return
        self._asked = True
        self._reactor.callFromThread(self._stopReactor, signal.Signals(number).name)

    def _stopReactor(self, name: str) -> None:
        if self.running:  # else it is stopping already
            _log.info("Received {name}: the broker stops; once more ends it at once", name=name)
            self._reactor.stop()
