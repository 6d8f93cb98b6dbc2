"""The socket on which a service manager is told what goes on: systemd's ``sd_notify`` protocol.

``NOTIFY_SOCKET`` names it: a path, or a name that is in no folder and begins with ``@``. Without it nobody is told.

Tells the service manager when the broker is ready: not before its journal is recovered and everything listens.

The last service to be started, and the first to be stopped.
"""

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import gatherResults
from twisted.logger import Logger

from fleximq.services.network.listeners import ListenerService

_log = Logger("fleximq.services.notify_socket")

#: Seconds that telling may take where the manager does not read.
PATIENCE = 1.0


class NotifySocket:
    """Tells the service manager; what cannot be told is logged.

    :param environment: the process's variables.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name

    @property
    def exists(self) -> bool:
        """Whether there is somebody who wants to be told."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Say that all is as it should be, after a start or after :meth:`reloading`."""
        self.tell(f"READY=1\nSTATUS={status}")

    def reloading(self, status: str) -> None:
        """Say that the settings are read anew; :meth:`ready` has to follow."""
        self.tell(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}\nSTATUS={status}")

    def stopping(self, status: str) -> None:
        """Say that the end has begun."""
        self.tell(f"STOPPING=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """Say in a line what goes on; ``systemctl status`` shows it."""
        self.tell(f"STATUS={status}")

    def alive(self) -> None:
        """Feed the watchdog."""
        self.tell("WATCHDOG=1")

    def tell(self, state: str) -> None:
        """Send assignments, one a line."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as telling:
                telling.settimeout(PATIENCE)
                telling.sendto(state.encode(), self._address)
        except OSError as error:
            _log.warn(
                "The service manager cannot be told {state}: {reason}", state=state.partition("\n")[0], reason=error
            )


class Readiness(Service):
    """Says READY, and STOPPING at the end.

    ``socket`` is for those who have more to tell: of a reload, or of how far a drain is.

    :param reactor: answers peers; ready is what it runs for.
    :param listeners: all that have to be open.
    """

    def __init__(self, reactor: Any, socket: NotifySocket, listeners: Sequence[ListenerService]) -> None:
        self.socket = socket
        self._reactor = reactor
        self._listeners = tuple(listeners)
        self.isReady = False

    @property
    def words(self) -> str:
        """What is told of a broker that is ready."""
        number = len(self._listeners)
        return f"serving on {number} listener{'' if number == 1 else 's'}"

    def startService(self) -> None:
        """Wait for the listeners and for the reactor, then say that the broker is ready."""
        super().startService()
        self._reactor.callWhenRunning(self._wait)

    def stopService(self) -> None:
        """Say that it ends."""
        super().stopService()
        self.isReady = False
        self.socket.stopping("ending connections")

    def reloading(self) -> None:
        """Say that the settings are read again."""
        if self.isReady:
            self.socket.reloading("reading the settings again")

    def reloaded(self) -> None:
        """Say that they are, whether they were taken or not."""
        if self.isReady:
            self.socket.ready(self.words)

    def _wait(self) -> None:
        gatherResults([each.whenOpen() for each in self._listeners]).addCallback(lambda _: self._ready())

    def _ready(self) -> None:
        if self.running:
            self.isReady = True
            self.socket.ready(self.words)
