"""Searches for the offsets at which subscriptions start: one of each client and kind at a time.

A search costs far more than the request for it. It ends with its subscription, and when the same one starts again.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.replay.feed import Feed, FeedRange
from fleximq.broker.slices import Slices
from fleximq.interfaces import IJournal
from fleximq.values.records import StoredBatch, TopicBounds

#: So many bytes are read at a time.
PORTION = 1 << 20
#: Growth of the searched part while it has too few messages.
_FURTHER = 8
#: So many patterns of a client are looked up at once in a turn, 1 ms each at most; further ones in slices.
_AT_ONCE = 10


class BackSearch:
    """Looks for the offset of a topic's message ``number`` from the last; the topic has more messages.

    The journal can only be read forwards, so increasing parts of its end are searched, up to the last message at the
    time of the request, while the feed has the range.
    """

    def __init__(self, journal: IJournal, feed: Feed, feedRange: FeedRange, number: int, kept: TopicBounds) -> None:
        self.name = feedRange.name
        self._journal = journal
        self._feed = feed
        self._range = feedRange
        self._kept = kept
        self._offsets: deque[int] = deque(maxlen=number)
        self._start = 0
        self._width = 0

    def begin(self, ended: Callable[[], None]) -> None:
        """Place the range, and call ``ended``, also if the range is removed."""
        self._ended = ended
        self._look(self._offsets.maxlen or 0)

    def _look(self, width: int) -> None:
        self._width = width
        self._start = max(self._kept.first, self._kept.last + 1 - width)
        self._offsets.clear()
        self._read(self._start)

    def _read(self, offset: int) -> None:
        self._journal.read(
            offset, self.name.__eq__, PORTION, lambda batches, nextOffset: self._took(offset, batches, nextOffset)
        )

    def _took(self, offset: int, batches: Sequence[StoredBatch], nextOffset: int) -> None:
        for batch in batches:
            self._offsets.extend(place for place in batch.offsets if place <= self._kept.last)
        if self._feed.ranges.get(self.name) is not self._range:
            self._ended()
        elif offset < nextOffset <= self._kept.last:
            self._read(nextOffset)
        elif len(self._offsets) == self._offsets.maxlen or self._start == self._kept.first:
            self._feed.place(self._range, self._offsets[0] if self._offsets else self._journal.end)
            self._ended()
        else:
            self._look(self._width * _FURTHER)


@dataclass(slots=True)
class _Patterns:
    """The searches of one client through the topics of patterns; ``looked`` counts those at once in this turn.

    A subscription may have two, one for its start and one for retained messages: the key says which.
    """

    steps: dict[tuple[str, bool], Iterator[None]] = field(default_factory=dict)
    looked: int = 0


class Searches:
    """The searches of all clients."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._patterns: dict[ConnectedClient, _Patterns] = {}
        self._backs: dict[ConnectedClient, dict[str, BackSearch]] = {}

    def mayLook(self, client: ConnectedClient) -> bool:
        """Return whether a pattern may be looked up at once; otherwise :meth:`run` the search."""
        patterns = self._patterns.get(client)
        if patterns is None:
            patterns = self._patterns[client] = _Patterns()
            self._slices.run(self._steps(client, patterns))
        if patterns.steps or patterns.looked == _AT_ONCE:
            return False
        patterns.looked += 1
        return True

    def run(self, client: ConnectedClient, name: str, steps: Iterator[None], retained: bool = False) -> None:
        """Run a search in slices, after :meth:`mayLook` in the same turn; ``retained``: for retained messages."""
        self._patterns[client].steps[name, retained] = steps

    def _steps(self, client: ConnectedClient, patterns: _Patterns) -> Iterator[None]:
        try:
            while patterns.steps:
                key, steps = next(iter(patterns.steps.items()))
                if next(steps, self) is self and patterns.steps.get(key) is steps:
                    del patterns.steps[key]
                yield
        finally:
            self._patterns.pop(client, None)

    def findBack(self, client: ConnectedClient, search: BackSearch) -> None:
        """Run a search after the client's earlier ones."""
        running = client in self._backs
        self._backs.setdefault(client, {})[search.name] = search
        if not running:
            self._findNext(client)

    def _findNext(self, client: ConnectedClient) -> None:
        waiting = self._backs.get(client)
        if waiting:
            waiting.pop(next(iter(waiting))).begin(lambda: self._findNext(client))
        else:
            self._backs.pop(client, None)

    def restart(self, client: ConnectedClient, name: str) -> None:
        """End the search for the start of this subscription, as it starts again."""
        self._end(client, name, False)

    def drop(self, client: ConnectedClient, name: str) -> None:
        """End the searches of this subscription; a running one reads no more."""
        self._end(client, name, False)
        self._end(client, name, True)
        self._backs.get(client, {}).pop(name, None)

    def _end(self, client: ConnectedClient, name: str, retained: bool) -> None:
        if client in self._patterns:
            self._patterns[client].steps.pop((name, retained), None)

    def leave(self, client: ConnectedClient) -> None:
        """End all searches of a client."""
        if client in self._patterns:
            self._patterns[client].steps.clear()
        self._backs.pop(client, None)
