"""Restricts a selection by a query's filters on topic, offset and timestamp; exact, so Spark does not repeat them."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from fleximq.pipeline.files.selection import Selection

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: The names of a range's ends in a selection.
_RANGES = {"offset": ("start", "end"), "timestamp": ("since", "until")}
#: For each comparison: added to the value for the range's start, and for its end; None: that end is unchanged.
_BOUNDS: dict[type[Filter], tuple[int | None, int | None]] = {
    EqualTo: (0, 1),
    EqualNullSafe: (0, 1),
    GreaterThan: (1, None),
    GreaterThanOrEqual: (0, None),
    LessThan: (None, 0),
    LessThanOrEqual: (None, 1),
}


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
    if column == "offset":
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _narrowedRange(filter: Any, selection: Selection, value: int, low: str, high: str) -> Selection | None:
    since, until = _BOUNDS.get(type(filter), (None, None))
    if since is not None:
        selection = replace(selection, **{low: max(getattr(selection, low), value + since)})
    if until is not None:
        selection = replace(selection, **{high: min(getattr(selection, high), value + until)})
    return selection if type(filter) in _BOUNDS else None


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
        rest: Iterable[Filter] = self._take(filters)
        return rest
