"""Reads the present content of journals: ``spark.read.format("fleximq")``."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.reader.journals import Journal, Journals, SlicePartition, freezeImports, read
from fleximq.pipeline.reader.offsets import EARLIEST, LATEST, Points, resolved, startOf
from fleximq.pipeline.reader.push_down import PushDown, pushed
from fleximq.pipeline.reader.source_options import SourceOptions

#: Maximum number of paths with cached journals.
_MAX_KNOWN = 16
_known: dict[tuple[tuple[str, ...], int], Journals] = {}


class BatchReader(DataSourceReader):
    """Reads from one point to another, both fixed when the query is planned. It is pickled for the tasks."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._selection = Selection(options.topics)

    @property
    def pushFilters(self) -> Any:
        """The filter push-down for Spark (see :class:`PushDown`)."""
        return PushDown(self._pushed)

    def _pushed(self, filters: list[Filter]) -> Iterable[Filter]:
        if not self._options.pushFilters:
            return filters
        self._selection, rest = pushed(filters, self._selection)
        return rest

    def partitions(self) -> Sequence[InputPartition]:
        """Return slices of all journals, balanced by bytes; raises RecordsMissing for a removed start offset."""
        freezeImports()
        journals = _journalsOf(self._options)
        try:
            found: list[SlicePartition] = []
            known = journals.having(self._options.start)
            checkNamed(self._options, known)
            for journal in known.values():
                start, end = self._range(journal)
                found += journals.partitions(journal, start, end, self._options, self._selection)
            return found
        finally:
            journals.close()

    def _range(self, journal: Journal) -> tuple[int, int]:
        options = self._options
        start = startOf((options.start or Points(EARLIEST)).of(journal.id), journal, options.failOnDataLoss)
        end = min(resolved((options.end or Points(LATEST)).of(journal.id), journal), journal.end().offset)
        return max(start, self._selection.start), min(end, self._selection.end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        return read(partition, self._columns, self._selection, options.failOnDataLoss, options.decoding)


def checkNamed(options: SourceOptions, journals: Iterable[str]) -> None:
    """Check that start and end name no other journals than these; raises OptionRefused."""
    for what, points in (("start", options.start), ("end", options.end)):
        if points is not None:
            points.check(what, journals)


def _journalsOf(options: SourceOptions) -> Journals:
    """Return the journals that options name, with the lookups of earlier queries: a segment without an index has to be
    scanned completely, which this process then does only once.
    """
    if options.brokers:
        return Journals(options)
    place = tuple(options.paths), threading.get_ident()
    journals = _known.pop(place) if place in _known else Journals(options)
    _known[place] = journals
    if len(_known) > _MAX_KNOWN:
        del _known[next(iter(_known))]
    return journals
