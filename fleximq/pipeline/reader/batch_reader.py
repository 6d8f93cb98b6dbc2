"""Reads the present content of journals: ``spark.read.format("fleximq")``.

The source applies a query's filters on topic, offset and timestamp itself, and exactly, so Spark does not repeat them.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.reader.journals import Journal, Journals, SlicePartition, freezeImports, read
from fleximq.pipeline.reader.offsets import EARLIEST, LATEST, Points, StartKind, checked, resolved
from fleximq.pipeline.reader.source_options import SourceOptions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: The names of a range's ends in a selection.
_RANGES = {"offset": ("start", "end"), "timestamp": ("since", "until")}


def pushed(filters: Iterable[Filter], selection: Selection) -> tuple[Selection, list[Filter]]:
    """Return a selection restricted by these filters, and the filters that remain for Spark."""
    rest = []
    for filter in filters:
        narrowed = _pushedFilter(filter, selection)
        if narrowed is None:
            rest.append(filter)
        else:
            selection = narrowed
    return selection, rest


def _pushedFilter(filter: Any, selection: Selection) -> Selection | None:
    attribute: tuple[str, ...] = getattr(filter, "attribute", ())
    column = attribute[0] if len(attribute) == 1 else None
    if isinstance(filter, IsNotNull):
        return selection if column in ("journal", "topic", *_RANGES) else None
    if column == "topic":
        return _narrowedTopics(filter, selection)
    value = _number(column, getattr(filter, "value", None)) if column in _RANGES else None
    return None if value is None else _narrowedRange(filter, selection, value, *_RANGES[str(column)])


def _narrowedTopics(filter: Any, selection: Selection) -> Selection | None:
    topics, value = selection.topics, getattr(filter, "value", None)
    if isinstance(filter, EqualTo | EqualNullSafe) and isinstance(value, str):
        return replace(selection, topics=topics.only([value]))
    if isinstance(filter, In) and all(isinstance(each, str) for each in filter.value):
        return replace(selection, topics=topics.only(filter.value))
    if isinstance(filter, StringStartsWith) and isinstance(value, str):
        return replace(selection, topics=replace(topics, prefixes=(*topics.prefixes, value)))
    return None


def _number(column: str | None, value: Any) -> int | None:
    """Return the number to compare with: an offset, or microseconds since 1970."""
    if column == "offset":
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _narrowedRange(filter: Any, selection: Selection, value: int, low: str, high: str) -> Selection | None:
    changes: dict[str, int] = {}
    if isinstance(filter, EqualTo | EqualNullSafe):
        changes = {low: value, high: value + 1}
    elif isinstance(filter, GreaterThan):
        changes = {low: value + 1}
    elif isinstance(filter, GreaterThanOrEqual):
        changes = {low: value}
    elif isinstance(filter, LessThan):
        changes = {high: value}
    elif isinstance(filter, LessThanOrEqual):
        changes = {high: value + 1}
    else:
        return None
    bounds: dict[str, Any] = {low: max, high: min}
    return replace(selection, **{name: bounds[name](getattr(selection, name), each) for name, each in changes.items()})


class PushDown:
    """The callable in a reader's attribute ``pushFilters``.

    Spark refuses every read of a source with a method ``pushFilters`` of its own while the setting
    ``spark.sql.python.filterPushdown.enabled`` is off, the default. It compares the method's function with that of the
    base class; this object presents the latter, so the source can be read with the setting on or off, and gets filters
    if it is on.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, take: Any) -> None:
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Apply filters, and return those that remain for Spark."""
        rest: Iterable[Filter] = self._take(filters)
        return rest


_log = logging.getLogger("fleximq.pipeline")

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
        """The filter push-down for Spark (see :class:`fleximq.pipeline.reader.batch_reader.PushDown`)."""
        return PushDown(self._pushed)

    def _pushed(self, filters: list[Filter]) -> Iterable[Filter]:
        if not self._options.pushFilters:
            return filters
        self._selection, rest = pushed(filters, self._selection)
        return rest

    def partitions(self) -> Sequence[InputPartition]:
        """Return slices of all journals, balanced by bytes.

        :raises RecordsMissing: a start offset has been removed by retention.
        """
        freezeImports()
        journals = _journalsOf(self._options)
        try:
            found: list[SlicePartition] = []
            for journal in journals.find().values():
                start, end = self._range(journal)
                found += journals.partitions(journal, start, end, self._options, self._selection)
            return found
        finally:
            journals.close()

    def _range(self, journal: Journal) -> tuple[int, int]:
        options = self._options
        point = (options.start or Points(EARLIEST)).of(journal.id)
        start = resolved(point, journal)
        if point.kind is StartKind.OFFSET:
            start = checked(journal.id, start, journal.bounds(), options.failOnDataLoss, _log.warning)
        end = min(resolved((options.end or Points(LATEST)).of(journal.id), journal), journal.end().offset)
        return max(start, self._selection.start), min(end, self._selection.end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one slice."""
        options = self._options
        return read(partition, self._columns, self._selection, options.failOnDataLoss, options.decoding)


def _journalsOf(options: SourceOptions) -> Journals:
    """Return the journals that options name, with the cached lookups of earlier queries.

    A segment without an index has to be scanned completely, which this process then does only once.
    """
    if options.brokers:
        return Journals(options)
    place = tuple(options.paths), threading.get_ident()
    journals = _known.pop(place) if place in _known else Journals(options)
    _known[place] = journals
    if len(_known) > _MAX_KNOWN:
        del _known[next(iter(_known))]
    return journals
