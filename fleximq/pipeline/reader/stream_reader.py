"""Streams records from journals: ``spark.readStream.format("fleximq")``. The offsets of the stream are the next offset
of each journal. One that appears later, where ``path`` is a glob, is read from its first record on. A stream of some
topics stays at its offsets while only other topics get messages.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource
from pyspark.sql.streaming.datasource import ReadLimit

from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.lag.reporter import StreamProgress
from fleximq.pipeline.reader.journals import Journal, Journals, Ranges, SlicePartition, read
from fleximq.pipeline.reader.new_records import NewRecords
from fleximq.pipeline.reader.offsets import LATEST, Offsets, Points, batchEnd, checked, ordered, reportLoss, startOf
from fleximq.pipeline.reader.source_options import SourceOptions

#: Seconds between two reports to the consumer group without a micro-batch between them.
_REPORT_PAUSE = 1.0


class StreamReader(DataSourceStreamReader, datasource.SupportsTriggerAvailableNow):
    """Lives in a process of the driver for the whole query, and in each task for its slice."""

    #: Whether a micro-batch may be left out if it would have no rows.
    leavesOutEmpty = True

    def __init__(self, options: SourceOptions, columns: Sequence[str], now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._options = options
        self._columns = tuple(columns)
        self._selection = Selection(options.topics)
        self._target: Offsets | None = None
        self._progress: StreamProgress | None = None
        self._open()

    def _open(self) -> None:
        self._journals = Journals(self._options)
        self._new = NewRecords(self._journals, self._options, self._now)
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
        return ordered({id: startOf(points.of(id), journal, fail) for id, journal in journals.items()})

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
        begin = {id: start[id] if start.get(id, -1) >= 0 else journals[id].bounds().first for id in {*start, *journals}}
        ends = self._target if self._target is not None else _ends(journals)
        # After a power loss a journal without a broker can end before an offset that was read; a copy may lag.
        end = {id: max(offset, ends.get(id, offset)) for id, offset in begin.items()}
        for id in begin.keys() - journals.keys():
            reportLoss(f"journal {id} was read before and is not there any more", self._options.failOnDataLoss)
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
        for id, until in sorted(end.items()):
            journal = journals.get(id)
            begin = start.get(id, 0)
            if begin >= until:
                continue
            if journal is None:
                # A batch that a restart repeats is planned here first; without its rows it must not count as processed.
                gone = f"journal {id} is not there any more, and with it the offsets {begin} to {until - 1}"
                reportLoss(gone, self._options.failOnDataLoss)
                continue
            if id in start:
                wanted = min(self._new.begin(id, begin), until)
                begin = checked(id, wanted, journal.bounds(), self._options.failOnDataLoss)
                if self._progress is not None:
                    self._progress.countLost(id, wanted, begin)
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
    return {id: (start.get(id, 0), until) for id, until in end.items()}


def _ends(journals: Mapping[str, Journal]) -> Offsets:
    return {id: journal.end().offset for id, journal in journals.items()}
