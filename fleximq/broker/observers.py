"""Those who are told what happens in the broker, and the counting of it.

A broken observer hurts nobody: what it raises is given to ``onError`` and the others are told all the same.

Those who look on while publications go through the journal: extensions that measure how long that takes.

Where there are none, a run costs one look at an empty list. A broken one hurts nobody: what it raises is given to
``onError``.

Those who look on: extensions that take what is published without being anybody's client.

A tap costs nothing where there is none. Where there is, each run that matches is rendered once more. It makes no
topic and no channel, and publications that are narrowed to certain clients do not come by. Topics that begin with
``$`` match no wildcard at their first level, here as for everybody.

A broken tap hurts nobody: what it raises is given to ``onError``, and after too many errors in a row it is taken off.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from fleximq.broker.topics.topic_table import TopicTable
from fleximq.interfaces import IBrokerObserver, IForm, IRecordWatcher, ISubscriber
from fleximq.values.counted_event import CountedEvent, EventFamily

#: So many publications in a row may fail before a tap is taken off.
MAX_FAILURES = 10

#: Stands for a run that could not be rendered.
_FAILED = object()


@implementer(ISubscriber, IForm)
class Tap:
    """Stands in the topic table for a subscriber of an extension, and keeps what that raises from the broker.

    ``patterns`` counts how often it is there for each pattern. ``failed`` is called with each error.
    """

    def __init__(self, subscriber: ISubscriber, failed: Callable[["Tap", Exception], None]) -> None:
        self.form = self
        self.subscriber = subscriber
        self.patterns: Counter[str] = Counter()
        self.errors = 0
        self._failed = failed

    def render(self, envelope: Any, body: Any, count: int) -> Any:
        """Return the run in the subscriber's own form."""
        try:
            return self.subscriber.form.render(envelope, body, count)
        except Exception as error:
            self._failed(self, error)
            return _FAILED

    def deliver(self, rendered: Any, count: int) -> None:
        """Hand the run to the subscriber."""
        if rendered is _FAILED:
            return
        try:
            self.subscriber.deliver(rendered, count)
        except Exception as error:
            self._failed(self, error)
        else:
            self.errors = 0


class Taps:
    """All taps of a broker.

    :param onError: is given what a tap raised.
    """

    def __init__(self, topics: TopicTable, onError: Callable[[Exception], None]) -> None:
        self._topics = topics
        self._onError = onError
        self._taps: dict[ISubscriber, Tap] = {}

    def add(self, subscriber: ISubscriber, pattern: str) -> None:
        """Let a subscriber take what is published to matching topics, each message once however many patterns match.

        :raises InvalidTopic: the pattern is empty or too long.
        """
        tap = self._taps.get(subscriber) or Tap(subscriber, self._failed)
        self._topics.subscribePattern(tap, pattern)
        tap.patterns[pattern] += 1
        self._taps[subscriber] = tap

    def remove(self, subscriber: ISubscriber, pattern: str) -> None:
        """Take one pattern of a subscriber back; nothing happens where it is not there."""
        tap = self._taps.get(subscriber)
        if tap is None or not tap.patterns[pattern]:
            return
        self._topics.unsubscribePattern(tap, pattern)
        tap.patterns[pattern] -= 1
        if not tap.patterns.total():
            del self._taps[subscriber]

    def _failed(self, tap: Tap, error: Exception) -> None:
        self._onError(error)
        tap.errors += 1
        if tap.errors == MAX_FAILURES:
            self._onError(RuntimeError(f"{MAX_FAILURES} publications in a row failed: the tap is taken off"))
            for pattern in tuple(tap.patterns.elements()):
                self.remove(tap.subscriber, pattern)


class RecordWatchers:
    """All of a broker; ``present`` is False while there are none.

    :param onError: is given what a watcher raised.
    """

    def __init__(self, onError: Callable[[Exception], None]) -> None:
        self.present = False
        self._watchers: list[IRecordWatcher] = []
        self._onError = onError

    def add(self, watcher: IRecordWatcher) -> None:
        """Tell this one from now on."""
        self._watchers.append(watcher)
        self.present = True

    def remove(self, watcher: IRecordWatcher) -> None:
        """Tell it no more.

        :raises ValueError: it was not there.
        """
        self._watchers.remove(watcher)
        self.present = bool(self._watchers)

    def appended(self, envelope: Any, body: Any, count: int) -> None:
        """Tell all of a run that is about to be given to the journal."""
        self._tell("appended", envelope, body, count)

    def decided(self, envelope: Any, body: Any, count: int, reason: str | None) -> None:
        """Tell all what became of it."""
        self._tell("decided", envelope, body, count, reason)

    def _tell(self, event: str, *arguments: Any) -> None:
        for watcher in tuple(self._watchers):
            try:
                getattr(watcher, event)(*arguments)
            except Exception as error:
                self._onError(error)


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
        self.events[CountedEvent(EventFamily.JOINED, client.dialect)] += 1

    def clientLeft(self, client: Any, reason: str) -> None:
        """Count leaves by reason."""
        self.events[CountedEvent(EventFamily.LEFT, reason)] += 1

    def topicCreated(self, name: str) -> None:
        """Count new topics."""
        self.events["topics created"] += 1

    def counted(self, event: str, number: int) -> None:
        """Add to an event's count."""
        self.events[event] += number
