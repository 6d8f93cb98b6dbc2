"""Reads the present content of journals: ``spark.read.format("fleximq")``. A query's filters on topic, offset and
timestamp restrict the selection; this is exact, so Spark does not repeat them.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.reader.journals import Journals, SlicePartition, freezeImports, read
from fleximq.pipeline.reader.offsets import EARLIEST, LATEST, Points, resolved, startOf
from fleximq.pipeline.reader.source_options import SourceOptions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The names of a range's ends in a selection.
_RANGES = {"offset": ("start", "end"), "timestamp": ("since", "until")}
#: For each comparison: added to the value for the range's start, and for its end; None: that end is unchanged.
_BOUNDS: dict[type[Filter], tuple[int | None, int | None]] = {
    datasource.EqualTo: (0, 1),
    datasource.EqualNullSafe: (0, 1),
    datasource.GreaterThan: (1, None),
    datasource.GreaterThanOrEqual: (0, None),
    datasource.LessThan: (None, 0),
    datasource.LessThanOrEqual: (None, 1),
}


class BatchReader(DataSourceReader):
    """Reads from one point to another, both fixed when the query is planned. It is pickled for the tasks."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._selection = Selection(options.topics)

    @property
    def pushFilters(self) -> Any:
        """The filter push-down for Spark. Spark refuses every read of a source with a method of this name while the
        setting ``spark.sql.python.filterPushdown.enabled`` is off, the default. To find out, it compares
        the method's ``__func__`` with that of the base class. This method shows it that one, so that the source can be
        read with the setting on or off.
        """

        def push(filters: list[Filter]) -> Iterable[Filter]:
            if not self._options.pushFilters:
                return filters
            self._selection, rest = pushed(filters, self._selection)
            return rest

        push.__func__ = DataSourceReader.pushFilters  # type: ignore[attr-defined]
        return push

    def partitions(self) -> Sequence[InputPartition]:
        """Return slices of all journals, balanced by bytes; raises RecordsMissing for a removed start offset."""
        freezeImports()
        options, wanted = self._options, self._selection
        found: list[SlicePartition] = []
        with closing(_journalsOf(options)) as journals:
            known = journals.having(options.start)
            checkNamed(options, known)
            for journalId, journal in known.items():
                start = startOf((options.start or Points(EARLIEST)).of(journalId), journal, options.failOnDataLoss)
                end = min(resolved((options.end or Points(LATEST)).of(journalId), journal), journal.end().offset)
                start, end = max(start, wanted.start), min(end, wanted.end)
                found += journals.partitions(journal, start, end, options, wanted)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        return read(partition, self._columns, self._selection, options.failOnDataLoss, options.decoding)


def checkNamed(options: SourceOptions, journals: Iterable[str]) -> None:
    """Check that start and end name no other journals than these; raises OptionRefused."""
    for what, points in (("start", options.start), ("end", options.end)):
        if points is not None:
            points.check(what, journals)


def _journalsOf(options: SourceOptions) -> Journals:
    return Journals(options) if options.brokers else _known(tuple(options.paths), threading.get_ident())


@lru_cache(16)
def _known(paths: tuple[str, ...], thread: int) -> Journals:
    """Return journals, with the lookups of earlier queries: a scan of a segment without an index takes long."""
    return Journals(SourceOptions(paths))


def pushed(filters: Iterable[Filter], selection: Selection) -> tuple[Selection, list[Filter]]:
    """Return a selection restricted by these filters, and the filters that remain for Spark."""
    rest = []
    for predicate in filters:
        narrowed = _pushedFilter(predicate, selection)
        if narrowed is None:
            rest.append(predicate)
        else:
            selection = narrowed
    return selection, rest


def _pushedFilter(predicate: Any, selection: Selection) -> Selection | None:
    attribute: tuple[str, ...] = getattr(predicate, "attribute", ())
    column = attribute[0] if len(attribute) == 1 else ""
    value: Any = getattr(predicate, "value", None)
    if isinstance(predicate, datasource.IsNotNull):
        return selection if column in ("journal", "topic", *_RANGES) else None
    if column == "topic":
        return _narrowedTopics(predicate, selection, value)
    if column == "timestamp":
        isExact = isinstance(value, datetime) and value.tzinfo is not None
        value = (value - _EPOCH) // timedelta(microseconds=1) if isExact else None
    if column not in _RANGES or type(value) is not int or type(predicate) not in _BOUNDS:
        return None
    (low, high), (since, until) = _RANGES[column], _BOUNDS[type(predicate)]
    if since is not None:
        selection = replace(selection, **{low: max(getattr(selection, low), value + since)})
    if until is not None:
        selection = replace(selection, **{high: min(getattr(selection, high), value + until)})
    return selection


def _narrowedTopics(predicate: Any, selection: Selection, value: Any) -> Selection | None:
    topics = selection.topics
    if isinstance(predicate, datasource.EqualTo | datasource.EqualNullSafe) and isinstance(value, str):
        return replace(selection, topics=topics.only([value]))
    if isinstance(predicate, datasource.In) and all(isinstance(each, str) for each in predicate.value):
        return replace(selection, topics=topics.only(predicate.value))
    if isinstance(predicate, datasource.StringStartsWith) and isinstance(value, str):
        return replace(selection, topics=replace(topics, prefixes=(*topics.prefixes, value)))
    return None
