"""Leaves expired records out of replays: those older than the time to live or the retention of their topic, and those
whose own ``expires_in`` is over.

The journal removes them only later, with whole files (:mod:`fleximq.journal.retention`). The latest message of a topic
that matches ``--retain`` is never older than the retention.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleximq.broker.rules import AgeLimits
from fleximq.interfaces import IJournalRead
from fleximq.values.records import StoredBatch


@dataclass(slots=True, eq=False, repr=False)
class RecordExpiry:
    """Selects records by the times when they were stored.

    :param timesToLive: the maximum ages of messages that are delivered.
    :param retentions: the ages after which the journal may remove messages.
    :param retained: returns whether the latest message of a topic remains; None: that of no topic does.
    :param now: returns the microseconds since 1970.
    """

    _journal: IJournalRead
    _timesToLive: AgeLimits
    _retentions: AgeLimits
    _retained: Callable[[str], bool] | None
    now: Callable[[], int]

    def alive(self, batches: Sequence[StoredBatch]) -> Sequence[StoredBatch]:
        """Return the records within the time to live of their topics, and within their own."""
        now = self.now()
        if self._timesToLive:
            batches = [self._aliveOf(batch, now) for batch in batches]
        return [_withinOwnTime(batch, now) for batch in batches]

    def _aliveOf(self, batch: StoredBatch, now: int) -> StoredBatch:
        times = [self._timesToLive.of(name) for name in batch.topics]
        if not any(time is not None for time in times):
            return batch
        oldest = [0 if time is None else now - time + 1 for time in times]
        columns = zip(batch.topicOf, batch.timestamps, strict=True)
        return batch.pick([place for place, (topic, time) in enumerate(columns) if time >= oldest[topic]])

    def oldest(self, topic: str, now: int) -> int:
        """Return the time before which messages of a topic are older than their retention at the moment ``now``."""
        age = self._retentions.of(topic)
        return 0 if age is None else now - age

    def tooOld(self, batch: StoredBatch) -> Sequence[int]:
        """Return the indexes of the records that are older than their retention."""
        if not self._retentions or not len(batch):
            return ()
        now = self.now()
        oldest = [self.oldest(name, now) for name in batch.topics]
        if min(batch.timestamps) >= max(oldest):
            return ()  # the usual case
        columns = enumerate(zip(batch.topicOf, batch.timestamps, strict=True))
        old = [place for place, (topic, time) in columns if time < oldest[topic]]
        return [
            place for place in old if not self._isRetained(batch.topics[batch.topicOf[place]], batch.offsets[place])
        ]

    def _isRetained(self, topic: str, offset: int) -> bool:
        if self._retained is None or not self._retained(topic):
            return False
        bounds = self._journal.bounds().get(topic)
        return bounds is not None and offset == bounds.last


def _withinOwnTime(batch: StoredBatch, now: int) -> StoredBatch:
    over = {offset for offset, time in batch.expiries().items() if time <= now}
    if not over:
        return batch
    return batch.pick([place for place, offset in enumerate(batch.offsets) if offset not in over])
