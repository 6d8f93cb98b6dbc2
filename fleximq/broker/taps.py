"""Those who look on: extensions that take what is published without being anybody's client.

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
from fleximq.interfaces import IForm, ISubscriber

#: So many publications in a row may fail before a tap is taken off.
PATIENCE = 10

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
        if tap.errors == PATIENCE:
            self._onError(RuntimeError(f"{PATIENCE} publications in a row failed: the tap is taken off"))
            for pattern in tuple(tap.patterns.elements()):
                self.remove(tap.subscriber, pattern)
