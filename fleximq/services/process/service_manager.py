"""Notifies the service manager: systemd's ``sd_notify`` protocol, readiness, and the watchdog.

``NOTIFY_SOCKET`` is a path, or the name of an abstract socket that begins with ``@``. Without it no notification is
sent. The broker is ready when its journal is recovered and all listeners are open; :class:`Readiness` is therefore the
last service to start and the first to stop.

With a journal, the watchdog is fed only when the writer thread answers a beat in its queue. So a thread that hangs on a
disk ends the process, as a hanging reactor does, and the next process recovers all confirmed messages.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from fleximq.services.network.listeners import ListenerService

_log = Logger()

#: Timeout for sending, in seconds, if the manager does not read.
TIMEOUT = 1.0
#: The feeding interval as a share of the service manager's timeout.
INTERVAL_SHARE = 0.5


class NotifySocket:
    """Sends notifications; failures are logged. ``environment``: the variables of the process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name

    @property
    def exists(self) -> bool:
        """Whether a service manager expects notifications."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Report that the broker is ready, after its start or after :meth:`reloading`."""
        self.send(f"READY=1\nSTATUS={status}")

    def reloading(self, status: str) -> None:
        """Report a reload; :meth:`ready` must follow."""
        self.send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}\nSTATUS={status}")

    def stopping(self, status: str) -> None:
        """Report that the broker stops."""
        self.send(f"STOPPING=1\nSTATUS={status}")

    def alive(self) -> None:
        """Feed the watchdog."""
        self.send("WATCHDOG=1")

    def send(self, state: str) -> None:
        """Send assignments, one per line."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as telling:
                telling.settimeout(TIMEOUT)
                telling.sendto(state.encode(), self._address)
        except OSError as error:
            words = "The service manager cannot be notified of {state}: {reason}"
            _log.warn(words, state=state.partition("\n")[0], reason=error)


class Readiness(Service):
    """Reports READY once these listeners are open and the reactor runs, and STOPPING at the end."""

    def __init__(self, reactor: Any, socket: NotifySocket, listeners: Sequence[ListenerService]) -> None:
        self.socket = socket
        self._reactor = reactor
        self._listeners = tuple(listeners)
        self.isReady = False

    @property
    def words(self) -> str:
        """The status text of a ready broker; a node of a cluster opens its listeners later."""
        number = len(self._listeners)
        if not number:
            return "taking part in the cluster"
        return f"serving on {number} listener{'' if number == 1 else 's'}"

    def startService(self) -> None:
        super().startService()
        opened = gatherResults([each.whenOpen() for each in self._listeners])
        self._reactor.callWhenRunning(opened.addCallback, lambda _: self._ready())

    def stopService(self) -> None:
        super().stopService()
        self.isReady = False
        self.socket.stopping("ending connections")

    def reloading(self) -> None:
        if self.isReady:
            self.socket.reloading("reading the settings again")

    def reloaded(self) -> None:
        if self.isReady:
            self.socket.ready(self.words)

    def _ready(self) -> None:
        if self.running:
            self.isReady = True
            self.socket.ready(self.words)


def watchdogInterval(environment: Mapping[str, str], process: int | None = None) -> float | None:
    """Return the seconds between two feedings, None if the watchdog is not enabled for this process."""
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
