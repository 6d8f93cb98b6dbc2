"""A read of journals as they are now: ``spark.read.format("fleximq")``."""

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.reader.journals import Journal, Journals, SlicePartition, read
from fleximq.pipeline.reader.long_lived import settle
from fleximq.pipeline.reader.offsets import EARLIEST, LATEST, Kind, Points, checked, resolved
from fleximq.pipeline.reader.pushdown import Push, pushed
from fleximq.pipeline.reader.source_options import SourceOptions

_log = logging.getLogger("fleximq.pipeline")

#: Of so many paths is kept what was found out of their journals.
_KEPT = 16
_known: dict[tuple[tuple[str, ...], int], Journals] = {}


class BatchReader(DataSourceReader):
    """Reads from one point to another, both fixed when the query is planned. It travels to the tasks."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._wanted = Selection(options.topics)

    @property
    def pushFilters(self) -> Any:
        """Where Spark offers filters (see :class:`fleximq.pipeline.reader.pushdown.Push`)."""
        return Push(self._pushed)

    def _pushed(self, filters: list[Filter]) -> Iterable[Filter]:
        if not self._options.pushFilters:
            return filters
        self._wanted, rest = pushed(filters, self._wanted)
        return rest

    def partitions(self) -> Sequence[InputPartition]:
        """Return slices of all journals, balanced by bytes.

        :raises RecordsMissing: an offset was named that is not kept.
        """
        settle()
        journals = _journalsOf(self._options)
        try:
            found: list[SlicePartition] = []
            for journal in journals.find().values():
                start, end = self._range(journal)
                found += journals.partitions(journal, start, end, self._options, self._wanted)
            return found
        finally:
            journals.close()

    def _range(self, journal: Journal) -> tuple[int, int]:
        options = self._options
        point = (options.start or Points(EARLIEST)).of(journal.id)
        start = resolved(point, journal)
        if point.kind is Kind.OFFSET:
            start = checked(journal.id, start, journal.bounds(), options.failOnDataLoss, _log.warning)
        end = min(resolved((options.end or Points(LATEST)).of(journal.id), journal), journal.end().offset)
        return max(start, self._wanted.start), min(end, self._wanted.end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one slice."""
        options = self._options
        return read(partition, self._columns, self._wanted, options.failOnDataLoss, options.decoding)


def _journalsOf(options: SourceOptions) -> Journals:
    """Return the journals that options name: those in folders with what queries planned before have found out of them.

    Where a segment has no index yet, that takes a look at all of it, which the same process need not do again.
    """
    if options.brokers:
        return Journals(options)
    place = tuple(options.paths), threading.get_ident()
    journals = _known.pop(place) if place in _known else Journals(options)
    _known[place] = journals
    if len(_known) > _KEPT:
        del _known[next(iter(_known))]
    return journals
