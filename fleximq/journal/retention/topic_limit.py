"""The limit of the number of topics in the journal. A topic counts while it has a record that has not expired."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from fleximq.errors import NotKept
from fleximq.interfaces import IQueueState
from fleximq.journal.retention.retention_rules import ExpiryDecision, RetentionPolicy, Verdict
from fleximq.limits import DEAD
from fleximq.values.records import TopicBounds

#: Maximum of topics on disk, including those with expired records only, as a multiple of the limit.
_WITH_EXPIRED = 2
#: Expired topics are counted so many at a time, at 3 us each, for this many seconds in one call.
_TOPICS, _PART = 100, 0.005
#: If a call takes more seconds than this, the count is continued after so many times as long.
_LONG, _PAUSE = 0.001, 20.0


class TopicLimit:
    """Limits the topics of the journal; a restart, and dead letters, may add more. ``known`` are the topics with
    committed records, ``pending`` those with uncommitted first records.

    :param rules: None: no record expires.
    :param now: microseconds since 1970.
    :param makeRoom: begins to remove expired records.
    """

    def __init__(
        self,
        most: int,
        known: Mapping[str, TopicBounds],
        rules: RetentionPolicy | None,
        queues: IQueueState,
        now: Callable[[], int],
        makeRoom: Callable[[], None],
    ) -> None:
        self._most = most
        self.known = known
        self.pending: set[str] = set()
        self._rules = rules
        self._queues = queues
        self._now = now
        self._makeRoom = makeRoom
        #: When the count continues, the topics not yet counted, and the number of expired topics found in this and in
        #: the last count.
        self._again = 0.0
        self._left: Iterator[str] | None = None
        self._found = self._expired = 0

    def check(self, topics: Iterable[str], count: int) -> set[str]:
        """Return the new topics among these. Raises NotKept for ``count`` messages if they are too many."""
        new = {each for each in topics if each not in self.known and each not in self.pending}
        most = self._most
        excess = len(self.known) + len(self.pending) + len(new) - most
        if new and most and excess > 0 and not all(each.startswith(DEAD) for each in new):
            isCrowded = excess > (_WITH_EXPIRED - 1) * most
            if isCrowded or not self._haveExpired(excess):
                if isCrowded:
                    self._makeRoom()
                raise NotKept(f"the journal may have at most {most} topics", range(count))
        return new

    def _haveExpired(self, number: int) -> bool:
        """Tell whether all records of so many topics have expired; of many topics, whether a count has found so many
        that need not be over, so that no call takes long.
        """
        if self._rules is None:
            return False
        now = time.monotonic()
        if now >= self._again:
            took = self._countOn(self._rules)
            self._again = now + took * _PAUSE if took > _LONG else 0.0
        return number <= max(self._expired, self._found)

    def _countOn(self, rules: RetentionPolicy) -> float:
        """Continue the count for a while, or begin one; return the seconds of processor time that it took."""
        began = time.thread_time()
        if self._left is None:
            self._left, self._found = iter(tuple(self.known)), 0
            self._decision = ExpiryDecision(rules, (), self._queues.needed(), self._now())
        while topics := tuple(islice(self._left, _TOPICS)):
            self._found += sum(1 for each in topics if not rules.retained(each) and self._hasExpired(each))
            took = time.thread_time() - began
            if took > _PART:
                return took
        self._expired, self._left = self._found, None
        return time.thread_time() - began

    def _hasExpired(self, topic: str) -> bool:
        bounds = self.known.get(topic)
        return bounds is not None and self._decision.verdict(topic, bounds, 0) is Verdict.NONE

    def settled(self) -> None:
        """Count the topics of a commit as known."""
        self.pending.difference_update([each for each in self.pending if each in self.known])
