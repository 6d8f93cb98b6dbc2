"""Lets an observer see the log while the broker runs."""

from twisted.application.service import Service
from twisted.logger import ILogObserver, globalLogPublisher


class LogObserverService(Service):
    """Adds an observer to the log when it starts, and removes it when it stops."""

    def __init__(self, observer: ILogObserver) -> None:
        self._observer = observer

    def startService(self) -> None:
        super().startService()
        globalLogPublisher.addObserver(self._observer)

    def stopService(self) -> None:
        super().stopService()
        globalLogPublisher.removeObserver(self._observer)
