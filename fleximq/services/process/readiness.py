"""Tells the service manager when the broker is ready: not before its journal is recovered and everything listens.

The last service to be started, and the first to be stopped.
"""

from collections.abc import Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import gatherResults
from twisted.logger import Logger

from fleximq.services.network.listeners import ListenerService
from fleximq.services.process.service_manager import NotifySocket

_log = Logger("fleximq.services.readiness")


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
