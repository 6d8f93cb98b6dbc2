"""Observers, record watchers and wiretaps of the broker, mostly of extensions, and the counts of events.

Their exceptions are passed to ``onError`` and affect neither the broker nor the others. A wiretap receives publications
without being a client. It costs one more rendering for each matching run, creates no topic and no channel, does not
receive publications narrowed to certain clients, and is removed after too many errors in a row.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from zope.interface import implementer

from fleximq.broker.topics.topic_table import TopicTable
from fleximq.interfaces import IBrokerObserver, IForm, IQueueWatcher, IRecordWatcher, ISubscriber
from fleximq.values.counted_event import CountedEvent, EventFamily

T = TypeVar("T")

#: Failed publications in a row after which a wiretap is removed.
MAX_FAILURES = 10

#: Replaces a run that could not be rendered.
_FAILED = object()


@implementer(ISubscriber, IForm)
class Wiretap:
    """An extension's subscriber in the topic table; passes each of its exceptions to ``failed``."""

    def __init__(self, subscriber: ISubscriber, failed: Callable[["Wiretap", Exception], None]) -> None:
        self.form = self
        self.subscriber = subscriber
        self.patterns: Counter[str] = Counter()
        self.errors = 0
        self._failed = failed

    def render(self, envelope: Any, body: Any, count: int) -> Any:
        try:
            return self.subscriber.form.render(envelope, body, count)
        except Exception as error:
            self._failed(self, error)
            return _FAILED

    def deliver(self, rendered: Any, count: int) -> None:
        if rendered is _FAILED:
            return
        try:
            self.subscriber.deliver(rendered, count)
        except Exception as error:
            self._failed(self, error)
        else:
            self.errors = 0


class Wiretaps:
    """All wiretaps of a broker; ``onError`` is called with their exceptions."""

    def __init__(self, topics: TopicTable, onError: Callable[[Exception], None]) -> None:
        self._topics = topics
        self._onError = onError
        self._wiretaps: dict[ISubscriber, Wiretap] = {}

    def add(self, subscriber: ISubscriber, pattern: str) -> None:
        """See :meth:`fleximq.broker.broker.Broker.wiretap`."""
        wiretap = self._wiretaps.get(subscriber) or Wiretap(subscriber, self._failed)
        self._topics.subscribePattern(wiretap, pattern)
        self._topics.others.add(wiretap)
        wiretap.patterns[pattern] += 1
        self._wiretaps[subscriber] = wiretap

    def remove(self, subscriber: ISubscriber, pattern: str) -> None:
        """Remove one pattern of a wiretap; a no-op if it does not have it."""
        wiretap = self._wiretaps.get(subscriber)
        if wiretap is None or not wiretap.patterns[pattern]:
            return
        self._topics.unsubscribePattern(wiretap, pattern)
        wiretap.patterns[pattern] -= 1
        if not wiretap.patterns.total():
            del self._wiretaps[subscriber]
            self._topics.others.discard(wiretap)

    def _failed(self, wiretap: Wiretap, error: Exception) -> None:
        self._onError(error)
        wiretap.errors += 1
        if wiretap.errors == MAX_FAILURES:
            self._onError(RuntimeError(f"{MAX_FAILURES} publications in a row failed: the wiretap is taken off"))
            for pattern in tuple(wiretap.patterns.elements()):
                self.remove(wiretap.subscriber, pattern)


class _Registry(Generic[T]):
    """A list of objects that are notified in order; their exceptions are passed to ``onError``."""

    def __init__(self, onError: Callable[[Exception], None]) -> None:
        self.present = False
        self._entries: list[T] = []
        self._onError = onError

    def add(self, entry: T) -> None:
        """Notify this one from now on."""
        self._entries.append(entry)
        self.present = True

    def remove(self, entry: T) -> None:
        """Stop notifying this one; raises ValueError if it was not added."""
        self._entries.remove(entry)
        self.present = bool(self._entries)

    def _notify(self, event: str, *arguments: Any) -> None:
        for entry in tuple(self._entries):
            try:
                getattr(entry, event)(*arguments)
            except Exception as error:
                self._onError(error)


class RecordWatchers(_Registry[IRecordWatcher]):
    """All record watchers of a broker; ``present`` is False while there are none."""

    def appended(self, envelope: Any, body: Any, count: int) -> None:
        self._notify("appended", envelope, body, count)

    def decided(self, envelope: Any, body: Any, count: int, reason: str | None) -> None:
        self._notify("decided", envelope, body, count, reason)


@implementer(IQueueWatcher)
class QueueWatchers(_Registry[IQueueWatcher]):
    """All queue watchers of a broker; ``present`` is False while there are none."""

    def delivered(self, queue: str, client: Any, deliveries: Any) -> None:
        self._notify("delivered", queue, client, deliveries)

    def settled(self, queue: str, client: Any, acks: Any, retries: Any, rejects: Any) -> None:
        self._notify("settled", queue, client, acks, retries, rejects)

    def leaseEnded(self, queue: str, client: Any, tag: int) -> None:
        self._notify("leaseEnded", queue, client, tag)

    def left(self, queue: str, client: Any) -> None:
        self._notify("left", queue, client)


@implementer(IBrokerObserver)
class Observers(_Registry[IBrokerObserver]):
    """A list of observers that is itself one."""

    def clientJoined(self, client: Any) -> None:
        self._notify("clientJoined", client)

    def clientLeft(self, client: Any, reason: str) -> None:
        self._notify("clientLeft", client, reason)

    def topicCreated(self, name: str) -> None:
        self._notify("topicCreated", name)

    def counted(self, event: str, number: int) -> None:
        self._notify("counted", event, number)


@implementer(IBrokerObserver)
class Counts:
    """Counts of events since the start, as ``/broker/about`` shows them."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self._joined: dict[str, CountedEvent] = {}

    def clientJoined(self, client: Any) -> None:
        dialect = client.dialect
        event = self._joined.get(dialect)
        if event is None:
            event = self._joined[dialect] = CountedEvent(EventFamily.JOINED, dialect)
        self.events[event] += 1

    def clientLeft(self, client: Any, reason: str) -> None:
        self.events[CountedEvent(EventFamily.LEFT, reason)] += 1

    def topicCreated(self, name: str) -> None:
        self.events["topics created"] += 1

    def counted(self, event: str, number: int) -> None:
        self.events[event] += number
