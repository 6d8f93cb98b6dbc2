"""Gives the folders of a table names in ASCII, which every reader finds under every locale.

A plain table is exchanged in one step (``renameat2``, Linux only) with a folder of links to the same files; if the
process ends, the other folder is rubbish. The files of an Iceberg table are written again.
"""

import os
import shutil
from contextlib import suppress

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.batch_commit import exclusive, writing
from fleximq.pipeline.lake.compaction import exchange
from fleximq.pipeline.lake.file_rewriting import Replacement, rewriting
from fleximq.pipeline.lake.live_files import dataFiles, liveFiles, logOf, rowGroups
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.file_names import NAMED, TOPIC, dateIn, partitionOf
from fleximq.pipeline.lake.table.format import DELTA, formatOf, layoutOf, setLayout
from fleximq.pipeline.lake.table.lock import backfillLock, compactorLock, writerLock

_ASIDE = "renaming"


def rename(table: str, files: LakeFiles = FILES) -> int:
    """Give the folders of topics names in ASCII; return the number of files in them, 0 if that is not needed. Raises
    LakeRefused, also if the table is in use, and OSError if the file system cannot exchange folders.
    """
    with writerLock(table, files), backfillLock(table, files), writing(table):
        if formatOf(table, files)["format"] == DELTA:
            raise LakeRefused(
                f"the table {table} is of format delta, whose readers expect the names of topics as folders; "
                f"fleximq-pipeline backfill NEW --from {os.path.basename(table)} fills a new table without them"
            )
        if logOf(table, files) is not None:
            return _renamedInLog(table, files)
        with compactorLock(table, files), exclusive(table, files):
            return _renamed(table, files)


def _renamed(table: str, files: LakeFiles) -> int:
    lake, name = os.path.split(table)
    # A table cannot have this name.
    aside = f"{lake}/.{name}.{_ASIDE}"
    shutil.rmtree(aside, ignore_errors=True)
    if layoutOf(table, files) != NAMED:
        return 0
    number = 0
    try:
        for file in dataFiles(table, files):
            _link(f"{table}/{file.path}", f"{aside}/{partitionOf(file.topic, dateIn(file.path), TOPIC)}")
            number += 1
        for folder, folders, names in os.walk(table):
            # The table's own files, the very locks among them, and others that are no data.
            folders[:] = [each for each in folders if "=" not in each]
            for each in names:
                _link(f"{folder}/{each}", f"{aside}/{os.path.relpath(folder, table)}")
        setLayout(aside, TOPIC, files)
        os.sync()
        exchange(aside, table)
        files.syncFolder(lake)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return number


def _link(path: str, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    os.link(path, f"{folder}/{os.path.basename(path)}")


def _renamedInLog(table: str, files: LakeFiles) -> int:
    with rewriting(table, _ASIDE, files) as rewritten:
        if layoutOf(table, files) == NAMED:
            setLayout(table, TOPIC, files)
        schema = requiredColumns(table, files).schema
        for path, topic in liveFiles(table, files):
            if not path.startswith("topic="):
                continue
            with suppress(FileNotFoundError):  # it has expired in the meantime
                identity = rewritten.identity(path)
                groups = (aligned(rows, schema).combine_chunks() for rows in rowGroups(table, path, topic, files))
                made = rewritten.stage((batch for rows in groups for batch in rows.to_batches()), schema)
                rewritten.replace(Replacement({path: identity}, made))
    return rewritten.replaced
