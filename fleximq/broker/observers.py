"""Observers, record watchers and taps of the broker, mostly of extensions, and the counts of events.

Exceptions of any of them are passed to ``onError`` and affect neither the broker nor the others.

A record watcher measures how long publications take in the journal; without any, a run costs one look at an empty list.
A tap receives publications without being a client. It costs one more rendering for each matching run, creates no topic
and no channel, and does not receive publications narrowed to certain clients. As for all subscribers, topics that begin
with ``$`` match no wildcard at their first level. After too many errors in a row a tap is removed.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from fleximq.broker.topics.topic_table import TopicTable
from fleximq.interfaces import IBrokerObserver, IForm, IRecordWatcher, ISubscriber
from fleximq.values.counted_event import CountedEvent, EventFamily

#: Failed publications in a row after which a tap is removed.
MAX_FAILURES = 10

#: Replaces a run that could not be rendered.
_FAILED = object()


@implementer(ISubscriber, IForm)
class Tap:
    """An extension's subscriber in the topic table; catches its exceptions.

    ``patterns`` counts its subscriptions by pattern. ``failed`` is called with each exception.
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
        """Pass the run to the subscriber."""
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

    :param onError: called with exceptions of taps.
    """

    def __init__(self, topics: TopicTable, onError: Callable[[Exception], None]) -> None:
        self._topics = topics
        self._onError = onError
        self._taps: dict[ISubscriber, Tap] = {}

    def add(self, subscriber: ISubscriber, pattern: str) -> None:
        """Subscribe a tap to a pattern; it receives each message once, even if several of its patterns match.

        :raises InvalidTopic: the pattern is empty or too long.
        """
        tap = self._taps.get(subscriber) or Tap(subscriber, self._failed)
        self._topics.subscribePattern(tap, pattern)
        tap.patterns[pattern] += 1
        self._taps[subscriber] = tap

    def remove(self, subscriber: ISubscriber, pattern: str) -> None:
        """Remove one pattern of a tap; a no-op if it does not have it."""
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
    """All record watchers of a broker; ``present`` is False while there are none.

    :param onError: called with exceptions of watchers.
    """

    def __init__(self, onError: Callable[[Exception], None]) -> None:
        self.present = False
        self._watchers: list[IRecordWatcher] = []
        self._onError = onError

    def add(self, watcher: IRecordWatcher) -> None:
        """Notify this watcher from now on."""
        self._watchers.append(watcher)
        self.present = True

    def remove(self, watcher: IRecordWatcher) -> None:
        """Stop notifying this watcher.

        :raises ValueError: it was not added.
        """
        self._watchers.remove(watcher)
        self.present = bool(self._watchers)

    def appended(self, envelope: Any, body: Any, count: int) -> None:
        """Notify all of a run before it is appended to the journal."""
        self._tell("appended", envelope, body, count)

    def decided(self, envelope: Any, body: Any, count: int, reason: str | None) -> None:
        """Notify all of the journal's decision."""
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
        """Notify this observer from now on."""
        self._observers.append(observer)

    def remove(self, observer: IBrokerObserver) -> None:
        """Stop notifying this observer."""
        self._observers.remove(observer)

    def clientJoined(self, client: Any) -> None:
        """Notify all of a new client."""
        self._tell("clientJoined", client)

    def clientLeft(self, client: Any, reason: str) -> None:
        """Notify all of a client that left."""
        self._tell("clientLeft", client, reason)

    def topicCreated(self, name: str) -> None:
        """Notify all of a new topic."""
        self._tell("topicCreated", name)

    def counted(self, event: str, number: int) -> None:
        """Notify all of a counted event."""
        self._tell("counted", event, number)

    def _tell(self, event: str, *arguments: Any) -> None:
        for observer in tuple(self._observers):
            try:
                getattr(observer, event)(*arguments)
            except Exception as error:
                self._onError(error)


@implementer(IBrokerObserver)
class Counts:
    """Counts of events since the start, as ``/broker/about`` shows them."""

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
