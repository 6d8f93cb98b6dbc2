"""Notifies the service manager: systemd's ``sd_notify`` protocol, and the readiness of the broker.

``NOTIFY_SOCKET`` is a path, or the name of an abstract socket that begins with ``@``. Without it no notification is
sent. The broker is ready when its journal is recovered and all listeners are open; :class:`Readiness` is therefore the
last service to start and the first to stop.
"""

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import gatherResults
from twisted.logger import Logger

from fleximq.services.network.listeners import ListenerService

_log = Logger()

#: Timeout for sending, in seconds, if the manager does not read.
TIMEOUT = 1.0


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
