"""Compacts an Iceberg table: a snapshot replaces small files by merged ones.

Under the table's lock, merged files are moved under new names into the folder of the replaced ones, and a snapshot is
committed. If the process ends before, the moved files are rubbish that no snapshot names.
"""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.iceberg import snapshots
from fleximq.pipeline.lake.iceberg.data_files import dataFilesOf
from fleximq.pipeline.lake.locations import icebergLocation
from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from fleximq.pipeline.lake.table.columns import recordedSchema
from fleximq.pipeline.lake.table.file_merge import MergePart, dueGroups, merge, partOf
from fleximq.pipeline.lake.table.file_names import fileName, pathIn
from fleximq.pipeline.lake.table.table_log import Compacted, CompactionGoal, Exclusive

#: Maximum number of partitions for one snapshot.
MAX_PARTITIONS = 100


class MergedFiles(NamedTuple):
    """A merge that waits for its snapshot: the names of the replaced files of ``folder``, and of the merged ones."""

    folder: str
    gone: tuple[str, ...]
    made: tuple[str, ...]


def compactIceberg(
    table: str, goal: CompactionGoal, aside: str, files: LakeFiles, now: float, exclusive: Exclusive
) -> Iterator[Compacted]:
    """Merge the small files of a table in the folder ``aside``; yield the result for each partition that changed."""
    with snapshots.icebergErrors(table):
        files.removeTree(aside)
        try:
            files.makeFolders(aside)
            waiting: list[MergedFiles] = []
            found = snapshots.openTable(table, files)
            if found is not None:
                _check(table, found)
            home = snapshots.localPath(found.location()) if found is not None else table
            paths = sorted(each.path for each in snapshots.liveOf(found)) if found is not None else []
            for folder, live in groupby(paths, os.path.dirname):
                pathIn(home, os.path.relpath(folder, home))
                merged = _mergeFolder(folder, list(live), goal, aside, now, recordedSchema(table, files), files)
                if merged.gone:
                    waiting.append(merged)
                if len(waiting) >= MAX_PARTITIONS:
                    yield from _commit(table, waiting, aside, files, exclusive)
                    waiting = []
            yield from _commit(table, waiting, aside, files, exclusive)
        finally:
            files.removeTree(aside)


def _check(table: str, found: Table) -> None:
    if snapshots.rowsAreDeleted(found):
        raise LakeRefused(
            f"the table {table} has rows that another engine has deleted one by one: compact the table with that engine"
        )


def _mergeFolder(
    folder: str,
    live: Sequence[str],
    goal: CompactionGoal,
    aside: str,
    now: float,
    schema: pa.Schema | None,
    files: LakeFiles,
) -> MergedFiles:
    """Merge the small files of a folder, none if it is skipped."""
    parts: list[MergePart] = []
    for path in live:
        # A file of another writer has no metadata of ours, and stays unchanged.
        with suppress(KeyError):
            parts.append(partOf(path, 0, files))
    made = []
    groups = dueGroups(parts, goal, now - max(files.state(path).changed for path in live))
    for group in groups:
        made.append(f"{fileName(group[0].spans[0].journal)}-{uuid.uuid4().hex}.parquet")
        merge(folder, group, f"{aside}/{made[-1]}", schema, files)
    return MergedFiles(folder, tuple(part.name for group in groups for part in group), tuple(made))


def _commit(
    table: str, waiting: Sequence[MergedFiles], aside: str, files: LakeFiles, exclusive: Exclusive
) -> list[Compacted]:
    """Replace files by the merged ones in one snapshot, where all replaced files are still live."""
    if not waiting:
        return []
    moved: dict[str, MergedFiles] = {}
    fit: list[MergedFiles] = []

    def wanted(found: Table) -> tuple[list[DataFile], list[DataFile]]:
        _check(table, found)
        live = {each.path: each.file for each in snapshots.liveOf(found)}
        fit[:] = [each for each in waiting if all(f"{each.folder}/{name}" in live for name in each.gone)]
        gone, made = [], []
        for each in fit:
            for name in each.made:
                path = f"{each.folder}/{name}"
                if path not in moved:
                    files.rename(f"{aside}/{name}", path)
                    moved[path] = each
            files.syncFolder(each.folder)
            before = [live[f"{each.folder}/{name}"] for name in each.gone]
            paths = (icebergLocation(f"{each.folder}/{name}") for name in each.made)
            after = dataFilesOf(found, paths, files)
            if sum(file.record_count for file in before) != sum(file.record_count for file in after):
                raise LakeRefused(f"the table {table} has files with other numbers of rows than it says: {each.folder}")
            gone += before
            made += after
        return gone, made

    with exclusive():
        # Files may have columns that no batch has added to the table yet.
        snapshots.tableWithColumns(table, files)
        try:
            isDone = snapshots.replaceFiles(table, wanted, files)
        except (CommitFailedException, ValidationException, LakeRefused):
            # These errors mean that the snapshot was not committed; after any other it may have been.
            for path in moved:
                files.remove(path)
            raise
        for path, each in moved.items():
            if not isDone or each not in fit:
                files.remove(path)
    return [Compacted(os.path.relpath(each.folder, table), len(each.gone), len(each.made)) for each in fit]
