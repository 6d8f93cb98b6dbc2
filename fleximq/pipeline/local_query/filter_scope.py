"""Finds the offsets, times and topics that a filter of DuckDB may accept, so that other segments are not read.

A filter is an expression of Arrow, which has no public form. But Arrow can say whether a filter skips a file in which
all rows have, for example, an offset below 100. So the bounds are found by bisection, with some hundred questions of
0.1 ms each. If Arrow cannot simplify an expression, more is read than necessary.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from fleximq.pipeline.files.schema import SCHEMA
from fleximq.pipeline.files.selection import FOREVER, NEVER, Selection, Topics

_MOMENT = SCHEMA.field("timestamp").type
#: The times, in microseconds, among which bounds are looked for: up to the year 2255.
_FIRST_TIME, _LAST_TIME = 0, 1 << 53
#: Number of topics for which the answer is cached.
_CACHED = 100_000
_FORMAT = ds.ParquetFileFormat()


def mayAccept(condition: pc.Expression, known: pc.Expression, schema: pa.Schema = SCHEMA) -> bool:
    """Tell whether a row of which ``known`` is true may satisfy a condition on the columns of a table."""
    # The file is never opened.
    file = _FORMAT.make_fragment("", LocalFileSystem(), partition_expression=known)
    return any(True for _ in ds.FileSystemDataset([file], schema, _FORMAT).get_fragments(condition))


def selectionOf(
    condition: pc.Expression | None, topics: Topics, first: int, nextOffset: int, schema: pa.Schema = SCHEMA
) -> Selection:
    """Return the records among ``topics`` and offsets up to before ``nextOffset`` that may satisfy a condition on the
    columns of a table.
    """
    wanted = Selection(topics, first, nextOffset)
    if condition is None:
        return wanted
    named = str(condition)
    if "topic" in named:
        mayBe = lru_cache(_CACHED)(lambda name: mayAccept(condition, ds.field("topic") == name, schema))
        wanted = replace(wanted, topics=replace(topics, accepts=mayBe))
    if "offset" in named:
        start, end = _bounds(
            lambda number: mayAccept(condition, ds.field("offset") < number, schema),
            lambda number: mayAccept(condition, ds.field("offset") >= number, schema),
            first,
            nextOffset,
        )
        wanted = wanted.within(start, end)
    if "timestamp" in named:
        since, until = _bounds(
            lambda number: mayAccept(condition, ds.field("timestamp") < pa.scalar(number, _MOMENT), schema),
            lambda number: mayAccept(condition, ds.field("timestamp") >= pa.scalar(number, _MOMENT), schema),
            _FIRST_TIME,
            _LAST_TIME,
        )
        wanted = replace(
            wanted,
            since=NEVER if since == _FIRST_TIME else since,
            until=FOREVER if until == _LAST_TIME else until,
        )
    return wanted


def _bounds(isBelow: Callable[[int], bool], isAtLeast: Callable[[int], bool], low: int, high: int) -> tuple[int, int]:
    """Return the least number that a column may have, and the number to stop before, within these. The functions tell
    whether it may be below a number, and at least one.
    """
    start, most = low, high
    while start < most:
        middle = (start + most + 1) // 2
        if isBelow(middle):
            most = middle - 1
        else:
            start = middle
    least, end = start, high
    while least < end:
        middle = (least + end) // 2
        if isAtLeast(middle):
            least = middle + 1
        else:
            end = middle
    return start, end
