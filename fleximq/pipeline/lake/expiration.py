"""Finds the days of a table that are older than has to be kept, and takes them out."""

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.batch_commit import cannot, exclusive
from fleximq.pipeline.lake.compaction import partitionsOf
from fleximq.pipeline.lake.day_removal import RemovedDay, expire
from fleximq.pipeline.lake.table.file_merge import MergePart, partsOf
from fleximq.pipeline.lake.table.file_names import partitionOf
from fleximq.pipeline.lake.table.table_log import TableLog
from fleximq.pipeline.lake.table_logs import logOf
from fleximq.values.patterns import anyOf

#: A pattern of topics, or None for all others, and for how many seconds they are kept.
Rule = tuple[str | None, float]
_DATE = "date="


def agedOut(table: str, rules: Sequence[Rule], now: float, files: Files | None = None) -> list[RemovedDay]:
    """Take out of a table the days all of which is older than the rules keep; return what has gone.

    :param rules: the first one with a pattern that matches counts, or else the last one without; a topic for which
        there is none is kept.
    :param now: in seconds since 1970.
    :raises LakeRefused: the table is damaged, or cannot be written.
    """
    files = files or Files()
    log = logOf(table, files)
    try:
        with exclusive(table, files):
            if log is not None:
                leaving = _agedOutOfLog(table, log, rules, now, files)
            else:
                leaving = [
                    found for each in partitionsOf(table) if (found := _leaving(table, each, rules, now)) is not None
                ]
                if leaving:
                    expire(table, leaving, files)
        if log is not None:
            log.cleanUp(now, files, partial(exclusive, table, files))
        return leaving
    except OSError as error:
        raise cannot(table, error) from error


def topicsOf(table: str) -> set[str]:
    """Return the topics of which a table has a day.

    :raises LakeRefused: the table is damaged, or cannot be read.
    """
    log = logOf(table)
    if log is not None:
        return {topic for topic, _ in log.days()}
    ofFolders: dict[str, str] = {}
    for partition in partitionsOf(table):
        # Every day of a topic has its whole name, of which the folder's may be only the beginning.
        ofFolders.setdefault(os.path.dirname(partition), partition)
    found: set[str] = set()
    for partition in ofFolders.values():
        with suppress(FileNotFoundError):  # it is compacted just now, or has expired
            found.update(part.topic for part in _partsOf(table, partition)[:1])
    return found


def _partsOf(table: str, partition: str) -> list[MergePart]:
    try:
        return partsOf(f"{table}/{partition}")
    except (KeyError, ValueError) as error:
        raise LakeRefused(f"the table {table} has a file that is none of its own in {partition}: {error}") from error


def _agedOutOfLog(table: str, log: TableLog, rules: Sequence[Rule], now: float, files: Files) -> list[RemovedDay]:
    days = []
    for topic, name in log.days():
        seconds = _kept(topic, rules)
        if seconds is not None and _age(name, now) >= seconds:
            days.append((topic, name))
    leaving = []
    if days:
        rows = log.rows(days)
        leaving = [RemovedDay(partitionOf(*day), rows[day]) for day in days]
        expire(table, leaving, files, days)
    return leaving


def _age(day: str, now: float) -> float:
    """Return for how many seconds a day (``YYYY-MM-DD``) has been over.

    :raises ValueError: it is none.
    """
    begun = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    return now - (begun + timedelta(days=1)).timestamp()


def _leaving(table: str, partition: str, rules: Sequence[Rule], now: float) -> RemovedDay | None:
    name = os.path.basename(partition)
    try:
        age = _age(name.removeprefix(_DATE), now)
    except ValueError:
        raise LakeRefused(f"the table {table} has a folder that is none of its own: {partition}") from None
    # Most are young, and need not be looked into.
    if all(age < seconds for _, seconds in rules):
        return None
    parts = _partsOf(table, partition)
    seconds = _kept(parts[0].topic, rules)
    return RemovedDay(partition, _rows(parts)) if seconds is not None and age >= seconds else None


def _kept(topic: str, rules: Sequence[Rule]) -> float | None:
    """Return for how many seconds a topic is kept; None: for ever."""
    for pattern, seconds in rules:
        if pattern is not None and anyOf([pattern])(topic):
            return seconds
    others = [seconds for pattern, seconds in rules if pattern is None]
    return others[-1] if others else None


def _rows(parts: Sequence[MergePart]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for part in parts:
        for span in part.spans:
            rows[span.journal] = rows.get(span.journal, 0) + span.rows
    return rows
