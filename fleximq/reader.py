"""Reads the journal of a broker as Arrow record batches, without Spark, Java or Twisted.

    from fleximq.reader import read

    for batch in read("/var/lib/fleximq", topics="sensors.#", columns=["topic", "value"]):
        print(batch.num_rows)

polars, DuckDB and pandas take the result as it is (docs/reference/reader.rst). Needs the extra ``reader`` (pyarrow,
numpy). The folder is read in place, also while its broker writes, without changes or locks.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from fleximq.errors import JournalError
from fleximq.pipeline.files.journal_files import JournalFiles, OffsetBounds, readSlice
from fleximq.pipeline.files.schema import ALL_COLUMNS, COLUMNS, schemaOf
from fleximq.pipeline.files.selection import FOREVER, NEVER, Selection, Topics
from fleximq.pipeline.files.slice_reader import Missing

__all__ = ["COLUMNS", "JournalError", "Missing", "bounds", "read"]

#: One folder, or those of the nodes of a cluster.
Folders = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds(folder: Folders) -> OffsetBounds:
    """Return ``first`` and ``next`` of a journal: the first retained offset, and that of the next record.

    :raises JournalError: the folder holds no journal, or cannot be read.
    """
    try:
        return _journal(folder).bounds()
    except OSError as error:
        raise JournalError(f"{folder} cannot be read: {error}") from error


def read(
    folder: Folders,
    *,
    topics: str | Sequence[str] = (),
    columns: Sequence[str] = COLUMNS,
    start: int | None = None,
    end: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    on_missing: Callable[[Missing], object] | None = None,
) -> pa.RecordBatchReader:
    """Return the records of a journal, ordered by offset, in batches of about 4 MiB that are read as they are taken.

    Other records are not read: segments without these topics, offsets or times are not opened, and columns that are
    not named are not decoded. The records that exist at the time of the call are read, not later ones.

    :param folder: the folder of the broker's option ``--journal``; or those of a cluster's nodes, of which the one with
        the most records is read.
    :param topics: a topic or a pattern, e.g. ``sensors.#``, or several; by default all topics.
    :param columns: names of columns (docs/reference/pipeline.rst, "What a row is"), in the order of the result.
    :param start: the first offset; the first retained one without.
    :param end: the offset to stop before.
    :param since: the first time, with a time zone.
    :param until: the time to stop before, with a time zone.
    :param on_missing: called with the offsets of records that are damaged, or were removed while they were being read;
        by default they raise JournalError.
    :raises JournalError: the folder holds no journal or cannot be read, or retention has removed ``start``.
    :raises ValueError: a column does not exist, or a time has no time zone.
    """
    wanted = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in wanted:
        if name not in ALL_COLUMNS:
            raise ValueError(f"there is no column {name!r}, only {', '.join(ALL_COLUMNS)}")
    patterns = (topics,) if isinstance(topics, str) else tuple(topics)
    selection = Selection(
        Topics(levels=patterns),
        since=NEVER if since is None else _microseconds("since", since),
        until=FOREVER if until is None else _microseconds("until", until),
    )
    try:
        journal = _journal(folder)
        first, nextOffset = journal.bounds()
        if start is not None and start < first:
            _report(Missing(start, min(first, nextOffset), "retention has removed them", lost=False), on_missing)
        slices = journal.slices(
            max(start or 0, first),
            nextOffset if end is None else min(end, nextOffset),
            selection.topics,
            since=selection.since,
        )
    except OSError as error:
        raise JournalError(f"{folder} cannot be read: {error}") from error

    def batches() -> Iterator[pa.RecordBatch]:
        for part in slices:
            yield from readSlice(part, wanted, selection, lambda missing: _report(missing, on_missing))

    return pa.RecordBatchReader.from_batches(schemaOf(wanted), batches())


def _journal(folder: Folders) -> JournalFiles:
    """Return the journal of the folder with the most records; folders that cannot be read are passed over."""
    if isinstance(folder, str | os.PathLike):
        return JournalFiles(os.fspath(folder))
    found, errors = [], [JournalError("no folder is given")]
    for each in folder:
        try:
            found.append(JournalFiles(os.fspath(each)))
        except JournalError as error:
            errors.append(error)
    if not found:
        raise errors[-1]
    if len({each.id for each in found}) > 1:
        raise JournalError(f"{' and '.join(each.path for each in found)} hold different journals")
    return max(found, key=lambda each: each.end().offset)


def _report(missing: Missing, on_missing: Callable[[Missing], object] | None) -> None:
    if on_missing is None:
        raise JournalError(f"{missing}; on_missing=FUNCTION reads on")
    on_missing(missing)


def _microseconds(name: str, time: datetime) -> int:
    if time.tzinfo is None:
        raise ValueError(f"{name} is {time}, but must have a time zone, e.g. datetime(..., tzinfo=UTC)")
    return (time - _EPOCH) // timedelta(microseconds=1)
