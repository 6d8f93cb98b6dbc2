"""Those who are told what happens in the broker, and the counting of it.

A broken observer hurts nobody: what it raises is given to ``onError`` and the others are told all the same.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from fleximq.interfaces import IBrokerObserver


@implementer(IBrokerObserver)
class Observers:
    """A list of observers that is itself one."""

    def __init__(self, onError: Callable[[Exception], None]) -> None:
        self._observers: list[IBrokerObserver] = []
        self._onError = onError

    def add(self, observer: IBrokerObserver) -> None:
        """Tell this observer from now on."""
        self._observers.append(observer)

    def remove(self, observer: IBrokerObserver) -> None:
        """Tell this observer no more."""
        self._observers.remove(observer)

    def clientJoined(self, client: Any) -> None:
        """Tell all of a new client."""
        self._tell("clientJoined", client)

    def clientLeft(self, client: Any, reason: str) -> None:
        """Tell all of a client that is gone."""
        self._tell("clientLeft", client, reason)

    def topicCreated(self, name: str) -> None:
        """Tell all of a new topic."""
        self._tell("topicCreated", name)

    def counted(self, event: str, number: int) -> None:
        """Tell all of something worth counting."""
        self._tell("counted", event, number)

    def _tell(self, event: str, *arguments: Any) -> None:
        for observer in tuple(self._observers):
            try:
                getattr(observer, event)(*arguments)
            except Exception as error:
                self._onError(error)


@implementer(IBrokerObserver)
class Counts:
    """Counts events by name since the start; ``/broker/about`` shows them."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()

    def clientJoined(self, client: Any) -> None:
        """Count joins by dialect."""
        self.events[f"joined: {client.dialect}"] += 1

    def clientLeft(self, client: Any, reason: str) -> None:
        """Count leaves by reason."""
        self.events[f"left: {reason}"] += 1

    def topicCreated(self, name: str) -> None:
        """Count new topics."""
        self.events["topics created"] += 1

    def counted(self, event: str, number: int) -> None:
        """Add to an event's count."""
        self.events[event] += number
