"""Streams records from journals: ``spark.readStream.format("fleximq")``. The offsets of the stream are the next offset
of each journal. One that appears later, where ``path`` is a glob, is read from its first record on. A stream of some
topics stays at its offsets while only other topics get messages.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource
from pyspark.sql.streaming.datasource import ReadLimit

from fleximq.limits import MEBIBYTE
from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.lag.reporter import StreamProgress
from fleximq.pipeline.reader.journals import Journal, Journals, Ranges, SlicePartition, read, records
from fleximq.pipeline.reader.offsets import (
    LATEST,
    Offsets,
    Points,
    RecordsMissing,
    batchEnd,
    checked,
    ordered,
    reportLoss,
    startOf,
)
from fleximq.pipeline.reader.source_options import SourceOptions

#: Seconds between two reports to the consumer group without a micro-batch between them.
_REPORT_PAUSE = 1.0
#: Seconds for which the offset stays before records of other topics.
PATIENCE = 300.0
#: Maximum bytes to search for a record of the wanted topics; beyond, the tasks search more quickly.
LOOK_BYTES = 64 * MEBIBYTE
#: Seconds from one search to the next through a broker, which takes some requests.
_LOOK_PAUSE = 0.1
_PART_BYTES = 8 * MEBIBYTE


class StreamReader(DataSourceStreamReader, datasource.SupportsTriggerAvailableNow):
    """Lives in a process of the driver for the whole query, and in each task for its slice."""

    #: Whether a micro-batch may be left out if it would have no rows.
    leavesOutEmpty = True

    def __init__(
        self,
        options: SourceOptions,
        columns: Sequence[str],
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._wall = wall
        self._options = options
        self._columns = tuple(columns)
        self._selection = Selection(options.topics)
        self._target: Offsets | None = None
        self._progress: StreamProgress | None = None
        self._open()

    def _open(self) -> None:
        self._journals = Journals(self._options)
        self._new = NewRecords(self._journals, self._options, self._now, self._wall)
        self._lastBatch: float | None = None
        self._reported: Mapping[str, int] | None = None
        self._nextReport = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task needs."""
        return {name: self.__dict__[name] for name in self.__dict__ if name not in ("_journals", "_new", "_progress")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _target=None, _progress=None)
        self._open()

    def initialOffset(self) -> Offsets:
        """Return the start of a new query; raises RecordsMissing if a named offset was removed by retention."""
        points, fail = self._options.start or Points(LATEST), self._options.failOnDataLoss
        journals = self._journals.having(points)
        points.check("start", journals)
        return ordered(
            {journalId: startOf(points.of(journalId), journal, fail) for journalId, journal in journals.items()}
        )

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _ends(self._journals.find())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit from the options; :meth:`latestOffset` applies a second one."""
        if self._options.maxRecords is not None:
            return datasource.ReadMaxRows(self._options.maxRecords)
        if self._options.maxBytes is not None:
            return datasource.ReadMaxBytes(self._options.maxBytes)
        if self._options.minRecords > 1:
            return datasource.ReadMinRows(self._options.minRecords)
        return datasource.ReadAllAvailable()

    def reportLatestOffset(self) -> Offsets:
        """Return the ends of the journals, less the newest records that the stream does not want."""
        return {journal: self._new.latest(journal, end) for journal, end in _ends(self._journals.find()).items()}

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> Offsets:
        """Return the end of the next micro-batch, or ``start`` if it is not due; raises RecordsMissing."""
        self._reportProgress(start)
        journals = self._journals.find()
        begin = {
            journalId: start[journalId] if start.get(journalId, -1) >= 0 else journals[journalId].bounds().first
            for journalId in {*start, *journals}
        }
        ends = self._target if self._target is not None else _ends(journals)
        # After a power loss a journal without a broker can end before an offset that was read; a copy may lag.
        end = {journalId: max(offset, ends.get(journalId, offset)) for journalId, offset in begin.items()}
        for journalId in begin.keys() - journals.keys():
            reportLoss(f"journal {journalId} was read before and is not there any more", self._options.failOnDataLoss)
        if not self._isDue(journals, begin, end, limit):
            return ordered(start)
        begin = {journal: self._new.begin(journal, offset) for journal, offset in begin.items()}
        records, size = None, None
        if isinstance(limit, datasource.ReadMaxRows):
            records, size = limit.max_rows, self._options.maxBytes
        elif isinstance(limit, datasource.ReadMaxBytes):
            size = limit.max_bytes
        return batchEnd(begin, end, records, size, lambda journal, *span: journals[journal].advance(*span))

    def _isDue(
        self, journals: Mapping[str, Journal], begin: Mapping[str, int], end: Mapping[str, int], limit: ReadLimit
    ) -> bool:
        """Tell whether there are enough new records for a micro-batch, or it is time for one."""
        isAll = self._target is not None or isinstance(limit, datasource.ReadAllAvailable)
        enough = 1 if isAll else self._options.minRecords
        if enough == 1 and (self._options.topics.all or not self.leavesOutEmpty):
            return True
        found, now = self._new.count(journals, begin, end, enough), self._now()
        isLate = self._lastBatch is None or now - self._lastBatch >= self._options.maxDelay
        isDue = found >= enough or (found > 0 and isLate) or (found == 0 and self._new.isOverdue(journals))
        if isDue or self._lastBatch is None:
            self._lastBatch = now
        return isDue

    def _reportProgress(self, start: Mapping[str, int]) -> None:
        """Report the group's progress: Spark asks for the next batch when all before is processed."""
        if self._options.group is None or (start == self._reported and self._now() < self._nextReport):
            return
        if self._progress is None:
            self._progress = StreamProgress(self._options.group, self._options.told)
        self._reported, self._nextReport = start, self._now() + _REPORT_PAUSE
        self._progress.report({journal: self._new.begin(journal, offset) for journal, offset in start.items()})

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        """Return slices between two offsets, balanced by bytes; raises RecordsMissing if some records are gone."""
        journals = self._journals.covering(ranges(start, end))
        found: list[SlicePartition] = []
        for journalId, until in sorted(end.items()):
            journal = journals.get(journalId)
            begin = start.get(journalId, 0)
            if begin >= until:
                continue
            if journal is None:
                # A batch that a restart repeats is planned here first; without its rows it must not count as processed.
                gone = f"journal {journalId} is not there any more, and with it the offsets {begin} to {until - 1}"
                reportLoss(gone, self._options.failOnDataLoss)
                continue
            if journalId in start:
                wanted = min(self._new.begin(journalId, begin), until)
                begin = checked(journalId, wanted, journal.bounds(), self._options.failOnDataLoss)
                if self._progress is not None:
                    self._progress.countLost(journalId, wanted, begin)
            found += self._journals.partitions(journal, begin, until, self._options, self._selection)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        return read(partition, self._columns, self._selection, options.failOnDataLoss, options.decoding)

    def commit(self, end: Mapping[str, int]) -> None:
        """No-op: Spark's checkpoint stores the progress of the query."""

    def stop(self) -> None:
        self._journals.close()
        if self._progress is not None:
            self._progress.close()


def ranges(start: Mapping[str, int], end: Mapping[str, int]) -> Ranges:
    """Return the range of offsets of each journal that is to be read."""
    return {journalId: (start.get(journalId, 0), until) for journalId, until in end.items()}


def _ends(journals: Mapping[str, Journal]) -> Offsets:
    return {journalId: journal.end().offset for journalId, journal in journals.items()}


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
    """Counts the new records of a stream before a micro-batch is planned, each once: a stream of some topics starts
    none for other topics, and ``minOffsetsPerTrigger`` waits for a number of records. Meanwhile retention could remove
    the records after the stream's offset, which the next start of the query would report as a loss. So
    :meth:`isOverdue` allows a micro-batch without rows after a while. ``now`` is a monotonic clock, ``wall``
    returns the seconds since 1970.
    """

    def __init__(
        self, journals: Journals, options: SourceOptions, now: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._journals = journals
        self._options = replace(options, partitionBytes=_PART_BYTES, minPartitions=1)
        self._selection = Selection(options.topics)
        self._now = now
        self._wall = wall
        self._counted: dict[str, _Counted] = {}
        self._next = 0.0

    def count(
        self, journals: Mapping[str, Journal], start: Mapping[str, int], end: Mapping[str, int], enough: int
    ) -> int:
        """Return the number of new records of the wanted topics in these ranges, counted up to ``enough``."""
        found = 0
        for journalId, begin in start.items():
            counted = self._counted.get(journalId)
            if counted is None or counted.start != begin:
                counted = self._counted[journalId] = _Counted(begin, begin)
            if counted.until < end[journalId] and counted.records < enough - found and journalId in journals:
                self._look(journals[journalId], counted, end[journalId], enough - found)
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
            time.sleep(max(0.0, min(self._next - now, _LOOK_PAUSE)))
            self._next = max(now, self._next) + _LOOK_PAUSE
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
        for journalId, counted in self._counted.items():
            if counted.until == counted.start and counted.deadline is None:
                continue
            if counted.deadline is None and journalId in journals:
                # The query may have been started again since.
                isOld = journals[journalId].offsetAt(int((self._wall() - PATIENCE) * 1_000_000)) > counted.start
                counted.deadline = self._now() + (0 if isOld else PATIENCE)
            if counted.deadline is not None and self._now() >= counted.deadline:
                return True
        return False
