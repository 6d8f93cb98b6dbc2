"""Small files of an Iceberg table become large ones: one snapshot takes the old ones out and brings the new ones in.

What is joined is written aside, in ``_fleximq/compacting``. Then, under the table's lock, it is moved beside the files
that it was joined from, whose names it does not take, and a snapshot is committed; so a batch of ingest comes before or
after. Whatever ends the process before that, the table has its old files, and what was moved is rubbish that no
snapshot names.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.iceberg.iceberg_catalog import tableWithColumns
from fleximq.pipeline.lake.iceberg.snapshots import LiveFile, change, liveOf, opened, rowsAreDeleted, told
from fleximq.pipeline.lake.table.columns import readColumns
from fleximq.pipeline.lake.table.file_merge import MergePart, groupsOf, join, partOf
from fleximq.pipeline.lake.table.table_log import Compacted, CompactionGoal, Exclusive

#: So many partitions become one snapshot, at most.
PORTION = 100


class MergedFiles(NamedTuple):
    """What waits for a partition, ``folder``: the names of files, and those aside that have all their rows."""

    folder: str
    gone: tuple[str, ...]
    made: tuple[str, ...]


def compactIceberg(
    table: str, goal: CompactionGoal, aside: str, files: Files, now: float, exclusive: Exclusive
) -> Iterator[Compacted]:
    """Join the small files of a table; yield what became of each partition. Old snapshots go after a week.

    :param aside: a folder for what is joined, which only this run uses.
    :raises LakeRefused: it cannot be done.
    """
    with told(table):
        shutil.rmtree(aside, ignore_errors=True)
        try:
            os.makedirs(aside)
            waiting: list[MergedFiles] = []
            for folder, live in _partitions(table):
                joined = _joined(table, folder, live, goal, aside, files, now)
                if joined is not None:
                    waiting.append(joined)
                if len(waiting) >= PORTION:
                    yield from _published(table, waiting, aside, files, exclusive)
                    waiting = []
            yield from _published(table, waiting, aside, files, exclusive)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _partitions(table: str) -> list[tuple[str, list[LiveFile]]]:
    """Return the folders of a table with the files that its current snapshot has in them.

    :raises LakeRefused: somebody else says of rows that they do not count, and what is joined would have them again.
    """
    found = opened(table)
    if found is None:
        return []
    _check(table, found)
    live = sorted(liveOf(found), key=lambda each: each.path)
    return [(folder, list(each)) for folder, each in groupby(live, lambda each: os.path.dirname(each.path))]


def _check(table: str, found: Table) -> None:
    if rowsAreDeleted(found):
        raise LakeRefused(
            f"the table {table} has rows that another engine has deleted one by one: let it join the files"
        )


def _joined(
    table: str, folder: str, live: Sequence[LiveFile], goal: CompactionGoal, aside: str, files: Files, now: float
) -> MergedFiles | None:
    """Write aside what the small files of a folder have; None if it is left alone."""
    parts: list[MergePart] = []
    for place, each in enumerate(live):
        # One that somebody else has written says nothing of itself, and stays as it is.
        with suppress(KeyError):
            parts.append(partOf(each.path, place))
    groups = groupsOf(parts, goal.target)
    gone = tuple(part.name for group in groups for part in group)
    changed = max((os.stat(each.path).st_mtime for each in live), default=now)
    if goal.rests(len(gone), now - changed):
        return None
    columns = readColumns(table, files)
    made = []
    for group in groups:
        name = f"{group[0].spans[0].journal}-{uuid.uuid4().hex}.parquet"
        join(folder, group, f"{aside}/{name}", None if columns is None else columns.schema)
        made.append(name)
    return MergedFiles(folder, gone, tuple(made))


def _published(
    table: str, waiting: Sequence[MergedFiles], aside: str, files: Files, exclusive: Exclusive
) -> list[Compacted]:
    """Let what was joined take the place of the files that it was joined from, where all of those are still there."""
    if not waiting:
        return []
    moved: dict[str, MergedFiles] = {}
    fit: list[MergedFiles] = []

    def wanted(found: Table) -> tuple[list[DataFile], list[DataFile]]:
        _check(table, found)
        live = {each.path: each.file for each in liveOf(found)}
        fit[:] = [each for each in waiting if all(f"{each.folder}/{name}" in live for name in each.gone)]
        gone, made = [], []
        for each in fit:
            _move(each, aside, files, moved)
            before = [live[f"{each.folder}/{name}"] for name in each.gone]
            after = _asFiles(found, [f"{each.folder}/{name}" for name in each.made])
            if sum(file.record_count for file in before) != sum(file.record_count for file in after):
                raise LakeRefused(f"the table {table} has files with other numbers of rows than it says: {each.folder}")
            gone += before
            made += after
        return gone, made

    with exclusive():
        # Files may have columns that no batch has added to the table yet.
        tableWithColumns(table)
        try:
            isDone = change(table, wanted)
        except (CommitFailedException, ValidationException, LakeRefused):
            # Nothing of it was committed; after any other error that is not known.
            _remove(moved, files)
            raise
        kept = {path: each for path, each in moved.items() if not isDone or each not in fit}
        _remove(kept, files)
    return [Compacted(os.path.relpath(each.folder, table), len(each.gone), len(each.made)) for each in fit]


def _move(joined: MergedFiles, aside: str, files: Files, moved: dict[str, MergedFiles]) -> None:
    """Bring what was joined to its folder, unless it is there, so that it stays there."""
    for name in joined.made:
        path = f"{joined.folder}/{name}"
        if path not in moved:
            files.rename(f"{aside}/{name}", path)
            moved[path] = joined
    files.syncFolder(joined.folder)


def _remove(moved: dict[str, MergedFiles], files: Files) -> None:
    for path in moved:
        files.remove(path)


def _asFiles(found: Table, paths: Sequence[str]) -> list[DataFile]:
    return list(parquet_files_to_data_files(found.io, found.metadata, (f"file://{path}" for path in paths)))
