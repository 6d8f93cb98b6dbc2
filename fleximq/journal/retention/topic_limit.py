"""The limit of the number of topics in the journal. A topic counts while it has a record that has not expired."""

import time
from collections.abc import Callable, Iterable, Mapping

from fleximq.errors import NotKept
from fleximq.journal.retention.retention_rules import ExpiryDecision, RetentionPolicy, Verdict
from fleximq.limits import DEAD
from fleximq.values.records import TopicBounds

#: Maximum of topics on disk, including those with expired records only, as a multiple of the limit.
_WITH_EXPIRED = 2
#: A count of expired topics, at 3 us each, that takes more seconds than this is repeated after so many times as long.
_LONG, _PAUSE = 0.001, 20.0


class TopicLimit:
    """Limits the topics of the journal; a restart, and dead letters, may add more. ``known`` are the topics with
    committed records, ``pending`` those with uncommitted first records.

    :param rules: None: no record expires.
    :param needed: returns, by topic, the lowest offset that a queue needs.
    :param now: microseconds since 1970.
    :param makeRoom: begins to remove what has expired.
    """

    def __init__(
        self,
        most: int,
        known: Mapping[str, TopicBounds],
        rules: RetentionPolicy | None,
        needed: Callable[[], Mapping[str, int]],
        now: Callable[[], int],
        makeRoom: Callable[[], None],
    ) -> None:
        self._most = most
        self.known = known
        self.pending: set[str] = set()
        self._rules = rules
        self._needed = needed
        self._now = now
        self._makeRoom = makeRoom
        self._again = 0.0

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
        """Tell whether all records of so many topics have expired; False if the last count was a short time ago."""
        began = time.monotonic()
        if self._rules is None or began < self._again:
            return False
        decision = ExpiryDecision(self._rules, (), self._needed(), self._now())
        for topic, bounds in tuple(self.known.items()):
            if decision.verdict(topic, bounds, 0) is Verdict.NONE and not self._rules.retained(topic):
                number -= 1
                if not number:
                    return True
        took = time.monotonic() - began
        if took > _LONG:
            self._again = began + took * _PAUSE
        return False

    def settled(self) -> None:
        """Count the topics of a commit as known."""
        self.pending.difference_update([each for each in self.pending if each in self.known])
