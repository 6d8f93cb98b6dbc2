"""Counts the new records of a stream before a micro-batch is planned, each once: a stream of some topics starts none
for other topics, and ``minOffsetsPerTrigger`` waits for a number of records.

Meanwhile retention could remove the records after the stream's offset, which the next start of the query would report
as a loss. So :meth:`NewRecords.isOverdue` allows a micro-batch without rows after a while.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fleximq.limits import MEBIBYTE
from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.reader.journals import Journal, Journals, records
from fleximq.pipeline.reader.offsets import RecordsMissing
from fleximq.pipeline.reader.source_options import SourceOptions

#: Seconds for which the offset stays before records of other topics.
PATIENCE = 300.0
#: Maximum bytes to search for a record of the wanted topics; beyond, the tasks search more quickly.
LOOK_BYTES = 64 * MEBIBYTE
#: Seconds from one search to the next through a broker, which takes some requests.
_PAUSE = 0.1
_PART_BYTES = 8 * MEBIBYTE


@dataclass
class _Counted:
    """The counted part of a journal, from ``start`` to before ``until``: no wanted record is before ``first``."""

    start: int
    until: int
    first: int | None = None
    records: int = 0
    bytes: int = 0
    deadline: float | None = None


class NewRecords:
    """The new records of one stream; ``now`` is the time in seconds since 1970."""

    def __init__(self, journals: Journals, options: SourceOptions, now: Callable[[], float] = time.time) -> None:
        self._journals = journals
        self._options = replace(options, partitionBytes=_PART_BYTES, minPartitions=1)
        self._selection = Selection(options.topics)
        self._now = now
        self._counted: dict[str, _Counted] = {}
        self._next = 0.0

    def count(
        self, journals: Mapping[str, Journal], start: Mapping[str, int], end: Mapping[str, int], enough: int
    ) -> int:
        """Return the number of new records of the wanted topics in these ranges, counted up to ``enough``."""
        found = 0
        for id, begin in start.items():
            counted = self._counted.get(id)
            if counted is None or counted.start != begin:
                counted = self._counted[id] = _Counted(begin, begin)
            if counted.until < end[id] and counted.records < enough - found and id in journals:
                self._look(journals[id], counted, end[id], enough - found)
            found += counted.records
            if found >= enough:
                break
        return found

    def _look(self, journal: Journal, counted: _Counted, end: int, enough: int) -> None:
        # A copy that lags ends before; its missing records must not count as seen.
        end = max(counted.until, min(end, journal.end().offset))
        if self._options.topics.all:
            distance = journal.advance(counted.until, end, enough - counted.records, None)
            counted.until, counted.records = distance.offset, counted.records + distance.records
            counted.first = counted.start
            return
        if self._options.brokers:
            now = time.monotonic()
            time.sleep(max(0.0, min(self._next - now, _PAUSE)))
            self._next = max(now, self._next) + _PAUSE
        for part in self._journals.partitions(journal, counted.until, end, self._options, self._selection):
            if not counted.records and counted.bytes + part.slice.bytes > LOOK_BYTES:
                counted.deadline = self._now()
                return
            counted.bytes += part.slice.bytes
            try:
                for batch in records(part, ("offset",), self._selection, True, []):
                    offsets = batch.column(0)
                    if counted.first is None and len(offsets):
                        counted.first = offsets[0].as_py()
                    counted.records += len(offsets)
                    if counted.records >= enough:
                        counted.until = offsets[-1].as_py() + 1
                        return
            except RecordsMissing:
                # The tasks report them.
                counted.first = counted.until if counted.first is None else counted.first
                counted.records = enough
                return
            counted.until = part.slice.pieces[-1].next
        counted.until = end

    def begin(self, journal: str, start: int) -> int:
        """Return the offset of the first wanted record from ``start`` on, as far as it is known."""
        counted = self._counted.get(journal)
        if counted is None or counted.start != start:
            return start
        return counted.until if counted.first is None else counted.first

    def latest(self, journal: str, end: int) -> int:
        """Return the end of a journal as if the records of other topics before a wanted one were not there."""
        counted = self._counted.get(journal)
        return end if counted is None or counted.records else counted.start + max(0, end - counted.until)

    def isOverdue(self, journals: Mapping[str, Journal]) -> bool:
        """Tell whether the offsets of some journal have stayed too long before records of other topics."""
        for id, counted in self._counted.items():
            if counted.until == counted.start and counted.deadline is None:
                continue
            if counted.deadline is None and id in journals:
                # The query may have been started again since.
                isOld = journals[id].offsetAt(int((self._now() - PATIENCE) * 1_000_000)) > counted.start
                counted.deadline = self._now() + (0 if isOld else PATIENCE)
            if counted.deadline is not None and self._now() >= counted.deadline:
                return True
        return False
