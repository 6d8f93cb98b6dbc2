"""Streams records from journals: ``spark.readStream.format("fleximq")``.

The offsets of the stream are the next offset of each journal. A journal that appears later, where ``path`` is a glob,
is read from its first record on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.lag.reporter import StreamProgress
from fleximq.pipeline.reader.journals import Journals, SlicePartition, read
from fleximq.pipeline.reader.offsets import LATEST, Offsets, Points, batchEnd, checked, ordered, reportLoss, startOf
from fleximq.pipeline.reader.source_options import SourceOptions


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of the driver for the whole query, and in each task for its slice."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._selection = Selection(options.topics)
        self._journals = Journals(options)
        self._target: Offsets | None = None
        self._progress: StreamProgress | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_journals": Journals(self._options), "_target": None, "_progress": None}

    def initialOffset(self) -> Offsets:
        """Return the start of a new query; raises RecordsMissing if a named offset was removed by retention."""
        points, fail = self._options.start or Points(LATEST), self._options.failOnDataLoss
        journals = self._journals.find()
        points.check("start", journals)
        return ordered({id: startOf(points.of(id), journal, fail) for id, journal in journals.items()})

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit from the options; :meth:`latestOffset` applies a second one."""
        if self._options.maxRecords is not None:
            return ReadMaxRows(self._options.maxRecords)
        if self._options.maxBytes is not None:
            return ReadMaxBytes(self._options.maxBytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Offsets:
        return self._ends()

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> Offsets:
        """Return the end of the next micro-batch; raises RecordsMissing if a journal of the stream is gone."""
        self._reportProgress(start)
        journals = self._journals.find()
        begin = {journal: start.get(journal, -1) for journal in {*start, *journals}}
        for journal, offset in begin.items():
            if offset < 0:
                begin[journal] = journals[journal].bounds().first
        ends = self._target if self._target is not None else self._ends()
        # After a power loss a journal without a broker can end before an offset that was read.
        end = {journal: max(offset, begin[journal]) for journal, offset in ends.items() if journal in begin}
        for journal in begin:
            if journal not in journals:
                reportLoss(f"journal {journal} was read before and is not there any more", self._options.failOnDataLoss)
        records, size = self._limits(limit)
        return batchEnd(
            begin,
            {journal: end.get(journal, offset) for journal, offset in begin.items()},
            records,
            size,
            lambda journal, *span: journals[journal].advance(*span),
        )

    def _reportProgress(self, start: Mapping[str, int]) -> None:
        """Report the group's progress: Spark asks for the next batch when all before is processed."""
        if self._options.group is not None:
            if self._progress is None:
                self._progress = StreamProgress(self._options.group, self._options.told)
            self._progress.report(start)

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self._options.maxBytes
        if isinstance(limit, ReadMaxBytes):
            return None, limit.max_bytes
        return None, None

    def _ends(self) -> Offsets:
        return {id: journal.end().offset for id, journal in self._journals.find().items()}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        """Return slices between two offsets, balanced by bytes; raises RecordsMissing if some records are gone."""
        journals = self._journals.find()
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
                begin = checked(id, begin, journal.bounds(), self._options.failOnDataLoss)
                if self._progress is not None:
                    self._progress.countLost(id, start[id], begin)
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
