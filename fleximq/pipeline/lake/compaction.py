"""Compacts the partitions of a table while readers and an ingest continue.

Merged files of a Delta table replace the others in its log. Those of a plain table are written to a folder aside, to
which, under the table's lock, links to all remaining files are added; it is exchanged with the partition's in one step
(``renameat2``, Linux only). If the process is killed, the folder aside remains, and the next compaction deletes it.
"""

import ctypes
import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from threading import Event

import pyarrow.parquet as pq

from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.batch_commit import exclusive, writing
from fleximq.pipeline.lake.file_rewriting import Replacement, rewriting
from fleximq.pipeline.lake.live_files import logOf
from fleximq.pipeline.lake.meanwhile import meanwhile, whyFailed
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.columns import recordedSchema
from fleximq.pipeline.lake.table.file_merge import MergePart, dueGroups, lastListed, merge, partOf, partsOf
from fleximq.pipeline.lake.table.file_names import BY_KEY, dateIn
from fleximq.pipeline.lake.table.format import layoutOf
from fleximq.pipeline.lake.table.lock import compactorLock
from fleximq.pipeline.lake.table.parquet_writer import spansOf
from fleximq.pipeline.lake.table.table_log import Compacted, CompactionGoal, TableFile, TableLog

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_ASIDE = "compacting"


def exchange(one: str, other: str) -> None:
    """Exchange two names of one file system; raises OSError, with ``ENOTSUP`` if that is not supported."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOTSUP, "this system cannot exchange folders")
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        raise OSError(errno.ENOTSUP, "this file system cannot exchange folders")
    raise OSError(number, os.strerror(number), one)


def partitionsOf(table: str, files: LakeFiles = FILES) -> list[str]:
    """Return the folders of a table that have files, relative to the table."""
    return [folder for folder in dict.fromkeys(map(os.path.dirname, files.visible(table))) if folder]


def partsIn(table: str, partition: str, files: LakeFiles = FILES) -> list[MergePart]:
    """Return the files of a partition; raises LakeRefused if one was not written by this pipeline."""
    try:
        return partsOf(f"{table}/{partition}", files)
    except (KeyError, ValueError) as error:
        raise LakeRefused(f"the table {table} has a file of another origin in {partition}: {error}") from error


def compact(
    table: str, goal: CompactionGoal, files: LakeFiles = FILES, now: float | None = None
) -> Iterator[Compacted]:
    """Compact the partitions of a table; yield each result. ``now`` is in seconds since 1970. Raises LakeRefused."""
    now = time.time() if now is None else now
    log = logOf(table, files)
    if log is not None and layoutOf(table, files) == BY_KEY:
        # Each change of a table of the latest rows writes files of their final size.
        log.cleanUp(now, files, partial(exclusive, table, files))
        return
    if log is not None:
        with compactorLock(table, files):
            aside = f"{table}/{OWN}/{files.aside(table, _ASIDE, 'compactor')}"
            own = log.compact(goal, aside, files, now, partial(exclusive, table, files))
            yield from own or ()
        if own is None:  # this format leaves merging to the log of its table
            yield from _rewritten(table, log, goal, files, now)
        return
    if files.store(table) is not None:
        yield from _rewritten(table, None, goal, files, now)
        return
    aside = f"{table}/{OWN}/{_ASIDE}"
    with compactorLock(table, files), writing(table):
        try:
            shutil.rmtree(aside, ignore_errors=True)
            for partition in partitionsOf(table, files):
                found = _compacted(table, partition, goal, files, aside, now)
                if found is not None:
                    yield found
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _age(parts: Sequence[MergePart], now: float) -> float:
    return now - max((part.changed for part in parts), default=now)


def _rewritten(
    table: str, log: TableLog | None, goal: CompactionGoal, files: LakeFiles, now: float
) -> Iterator[Compacted]:
    paths = sorted(each.path for each in log.files()) if log is not None else list(files.visible(table))
    # In this order: a file has no column that was not recorded before it.
    schema = recordedSchema(table, files)
    with rewriting(table, _ASIDE, files) as rewritten:
        for partition, found in groupby(paths, os.path.dirname):
            parts: list[MergePart] = []
            for path in found:
                # A file of another writer has no metadata of ours, and stays; others have left in the meantime.
                with suppress(KeyError, FileNotFoundError):
                    parts.append(partOf(f"{table}/{path}", 0, files))
            groups = dueGroups(parts, goal, _age(parts, now))
            for group in groups:
                name = f"{uuid.uuid4().hex}.parquet"
                path = f"{rewritten.folder}/{name}"
                size = merge(f"{table}/{partition}", group, path, schema, files)
                _, (span,) = spansOf(pq.read_metadata(files.input(path)).metadata)
                made = TableFile(name, group[0].topic, dateIn(partition), *span[:4], size)
                rewritten.replace(Replacement({f"{partition}/{part.name}": part.identity for part in group}, [made]))
            if groups and log is None:
                # Readers of folders miss rows only for the moment of one partition.
                rewritten.commit()
            if groups:
                yield Compacted(partition, sum(map(len, groups)), len(groups))
    if log is not None:
        log.cleanUp(now, files, partial(exclusive, table, files))


def _compacted(
    table: str, partition: str, goal: CompactionGoal, files: LakeFiles, aside: str, now: float
) -> Compacted | None:
    folder = f"{table}/{partition}"
    try:
        parts = partsIn(table, partition, files)
    except FileNotFoundError:
        # It has expired in the meantime.
        return None
    groups = dueGroups(parts, goal, _age(parts, now))
    if not groups:
        return None
    schema = recordedSchema(table, files)
    os.makedirs(aside)
    try:
        for group in groups:
            merge(folder, group, f"{aside}/{lastListed(group).name}", schema, files, keepsName=True)
        with exclusive(table, files):
            if not _exchanged(folder, aside, groups, files):
                return None
    finally:
        # Before the exchange it has the merged files, after it the files that they replaced.
        shutil.rmtree(aside, ignore_errors=True)
    return Compacted(partition, sum(map(len, groups)), len(groups))


def _exchanged(folder: str, aside: str, groups: Sequence[Sequence[MergePart]], files: LakeFiles) -> bool:
    """Replace the files of a partition; False, or OSError, if it is unchanged."""
    gone = {part.name: part for group in groups for part in group}
    try:
        with os.scandir(folder) as entries:
            there = {entry.name: str(entry.inode()) for entry in entries}
    except FileNotFoundError:
        return False
    order = {name: place for place, name in enumerate(there)}
    if any(there.get(name) != part.identity for name, part in gone.items()):
        return False
    if any(order[lastListed(group).name] < order[part.name] for group in groups for part in group):
        return False
    for name in there:
        if name not in gone:
            os.link(f"{folder}/{name}", f"{aside}/{name}")
    files.syncFolder(aside)
    exchange(aside, folder)
    files.syncFolder(os.path.dirname(folder))
    files.syncFolder(os.path.dirname(aside))
    return True


@contextmanager
def compacting(tables: Sequence[str], seconds: float, run: JobRun, goal: CompactionGoal) -> Iterator[None]:
    """Compact the tables of an ingest every so many seconds, in a thread, for the length of a ``with`` block."""

    def repeat(ending: Event) -> None:
        while not ending.wait(seconds):
            for table in tables:
                name = os.path.basename(table)
                before = after = 0
                try:
                    for done in compact(table, goal):
                        before, after = before + done.before, after + done.after
                        if ending.is_set():
                            break
                    if before:
                        run.writeLine(f"table {name}: {before} files became {after}")
                except Exception as error:
                    # Even after an error of a library the ingest continues, and the next time may be better.
                    run.writeLine(f"table {name} is not compacted this time: {whyFailed(error)}")

    with meanwhile("compaction", repeat):
        yield
