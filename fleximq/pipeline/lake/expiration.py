"""Removes the rows of a table that are past their retention: days of topics, or by rewriting files by day."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.batch_commit import exclusive, writing
from fleximq.pipeline.lake.compaction import partitionsOf, partsIn
from fleximq.pipeline.lake.file_rewriting import FileRewriting, Replacement, rewriting
from fleximq.pipeline.lake.live_files import liveFiles, logOf, rowGroups
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.file_names import BY_KEY, DATE, NAMED, dateIn, partitionOf
from fleximq.pipeline.lake.table.format import layoutOf
from fleximq.pipeline.lake.table.parquet_writer import deadIn, rowsByJournal, rowsIn
from fleximq.pipeline.lake.table.table_log import TableLog
from fleximq.pipeline.lake.table_change import RemovedDay, TableChange, commitChange, removeDays
from fleximq.values.patterns import anyOf

#: A pattern of topics, or None for all others, and their retention in seconds.
Rule = tuple[str | None, float]
_DATE = "date="
_ASIDE = "expiring"
#: Seconds to wait for another run that rewrites files.
_WAIT = 600.0
_DAY = 86_400.0


def expireDays(table: str, rules: Sequence[Rule], now: float, files: LakeFiles = FILES) -> list[RemovedDay]:
    """Remove the days that lie completely before the retention of their topic; return them. The first matching pattern
    counts, else the last rule without one; other topics never expire. ``now`` is in seconds since 1970.
    """
    log = logOf(table, files)
    with writing(table):
        layout = layoutOf(table, files)
        if layout == BY_KEY:
            removed = []  # rows leave it by messages that remove their keys
        elif layout == DATE:
            removed = _expireRows(table, rules, now, files)
        else:
            with exclusive(table, files):
                removed = _expireDays(table, log, rules, now, files)
        if log is not None:
            log.cleanUp(now, files, partial(exclusive, table, files))
    return removed


def topicsOf(table: str, files: LakeFiles = FILES) -> set[str]:
    """Return the topics of a table; raises LakeRefused if the table is damaged, or cannot be read."""
    if layoutOf(table, files) in (DATE, BY_KEY):
        return {topic for path, _ in liveFiles(table, files) for topic in _topicsIn(f"{table}/{path}", files)}
    log = logOf(table, files)
    if log is not None:
        return {file.topic for file in log.files()}
    ofFolders: dict[str, str] = {}
    for partition in partitionsOf(table, files):
        # Each file of a topic has its full name; the folder's name may be truncated.
        ofFolders.setdefault(os.path.dirname(partition), partition)
    found: set[str] = set()
    for partition in ofFolders.values():
        with suppress(FileNotFoundError):  # it is being compacted, or has expired
            found.update(part.topic for part in partsIn(table, partition, files)[:1])
    return found


def _topicsIn(path: str, files: LakeFiles) -> set[str]:
    with suppress(FileNotFoundError):  # it is being compacted, or has expired
        return set(pc.unique(pq.ParquetFile(files.input(path)).read(["topic"]).column("topic")).to_pylist())
    return set()


def _expireRows(table: str, rules: Sequence[Rule], now: float, files: LakeFiles) -> list[RemovedDay]:
    removed: dict[str, Counter[str]] = {}
    with rewriting(table, _ASIDE, files, _WAIT) as rewritten:
        live = liveFiles(table, files)
        # In this order: a file has no column that was not recorded before it.
        schema = requiredColumns(table, files).schema
        for path, _ in live:
            age = _age(dateIn(path), now)
            if all(age < seconds for _, seconds in rules):
                continue
            with suppress(FileNotFoundError):  # it was compacted, or has expired, in the meantime
                topics = _topicsIn(f"{table}/{path}", files)
                leaving = [each for each in topics if _isOver(each, age, rules)]
                if leaving:
                    found = _without(rewritten, path, leaving, schema, files)
                    rewritten.replace(found)
                    removed.setdefault(os.path.dirname(path), Counter()).update(found.expired)
    return [RemovedDay(folder, rows) for folder, rows in removed.items()]


def _without(
    rewritten: FileRewriting, path: str, topics: Sequence[str], schema: pa.Schema, files: LakeFiles
) -> Replacement:
    """Return the replacement of a file that leaves these topics out."""
    gone = {path: rewritten.identity(path)}
    expired, dead = Counter[str](), Counter[str]()

    def kept() -> Iterator[pa.RecordBatch]:
        for each in rowGroups(rewritten.table, path, "", files):
            rows = aligned(each, schema)
            stays = pc.invert(pc.is_in(rows.column("topic"), pa.array(topics)))
            leaving = rows.filter(pc.invert(stays))
            expired.update(rowsIn(leaving))
            dead.subtract(deadIn(leaving))
            yield from rows.filter(stays).combine_chunks().to_batches()

    made = rewritten.stage(kept(), schema)
    return Replacement(gone, made, dead, expired)


def _expireDays(
    table: str, log: TableLog | None, rules: Sequence[Rule], now: float, files: LakeFiles
) -> list[RemovedDay]:
    """Remove the days of topics, each of which has files of its own."""
    days: dict[tuple[str, str], list[str]] = {}
    if log is None:
        leaving = [
            found
            for each in partitionsOf(table, files)
            if (found := _expired(table, each, rules, now, files)) is not None
        ]
    else:
        for path, topic, day in log.files():
            days.setdefault((topic, day), []).append(f"{table}/{path}")
        days = {each: paths for each, paths in days.items() if _isOver(each[0], _age(each[1], now), rules)}
        leaving = [RemovedDay(partitionOf(*each, NAMED), rowsByJournal(days[each], files)) for each in sorted(days)]
    if leaving and files.store(table) is not None:
        # A folder may get new files in the meantime: only these leave.
        gone = [path for paths in days.values() for path in paths]
        gone = [path.removeprefix(f"{table}/") for path in gone] or [
            f"{each.partition}/{name}" for each in leaving for name in files.listed(f"{table}/{each.partition}")
        ]
        expired = sum((Counter(each.rows) for each in leaving), Counter[str]())
        commitChange(table, TableChange("", (), gone, expired=expired), files)
    elif leaving:
        removeDays(table, leaving, files, sorted(days))
    return leaving


def _age(day: str, now: float) -> float:
    """Return how many seconds ago a day (``YYYY-MM-DD``) ended; raises ValueError if the text is no day."""
    begun = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    return now - begun.timestamp() - _DAY


def _expired(table: str, partition: str, rules: Sequence[Rule], now: float, files: LakeFiles) -> RemovedDay | None:
    name = os.path.basename(partition)
    try:
        age = _age(name.removeprefix(_DATE), now)
    except ValueError:
        raise LakeRefused(f"the table {table} has a folder of another origin: {partition}") from None
    # Skip reading the files of young days, which are most of them.
    if all(age < seconds for _, seconds in rules):
        return None
    parts = partsIn(table, partition, files)
    if not _isOver(parts[0].topic, age, rules):
        return None
    rows: Counter[str] = Counter()
    for span in (span for part in parts for span in part.spans):
        rows[span.journal] += span.rows
    return RemovedDay(partition, rows)


def _isOver(topic: str, age: float, rules: Sequence[Rule]) -> bool:
    """Tell whether rows of this age, in seconds, are past the retention of their topic."""
    for pattern, seconds in rules:
        if pattern is not None and anyOf([pattern])(topic):
            return age >= seconds
    others = [seconds for pattern, seconds in rules if pattern is None]
    return bool(others) and age >= others[-1]
