"""Moves the staged files that a record of intent names to their final paths, and commits them to the table's log.

If the log refuses some of them for good, the record is mended: columns that the log cannot have are left out, and rows
that it cannot take become dead letters.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from fleximq.pipeline.errors import CommitRefused, LakeRefused, RowsRefused
from fleximq.pipeline.lake.live_files import logOf
from fleximq.pipeline.lake.refused_files import Mended, withoutRefused
from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.file_names import pathIn
from fleximq.pipeline.lake.table.table_log import TableFile, TableLog


def commitStaged(
    table: str,
    folder: str,
    moves: Sequence[Sequence[Any]],
    commit: Callable[[TableLog, list[TableFile]], None],
    record: Callable[[Mended], None],
    files: LakeFiles,
) -> None:
    """Move the staged files of a record of intent, and commit them to the table's log, if it has one; idempotent. If
    files are mended before, ``record`` is called to change the record. Raises CommitRefused if the log refuses them,
    and RowsRefused, without the files, for a table of the latest rows.
    """
    log = logOf(table, files)
    placed = moveStaged(table, files, folder, moves)
    if log is None:
        return
    try:
        commit(log, placed)
        return
    except LakeRefused as error:
        why = error
    try:
        mended = withoutRefused(table, log, folder, moves, files)
        if mended is None:
            raise why
        record(mended)
        for path in {move[1] for move in moves} - {move[1] for move in mended.moves}:
            with suppress(FileNotFoundError):
                files.remove(pathIn(table, path))
        commit(log, moveStaged(table, files, folder, mended.moves))
    except RowsRefused:
        for each in placed:
            with suppress(FileNotFoundError):
                files.remove(pathIn(table, each.path))
        raise
    except LakeRefused as error:
        raise CommitRefused.of(table, error) from error


def preparedPlaces(
    table: str, folder: str, staged: Sequence[TableFile], placed: Sequence[TableFile], files: LakeFiles
) -> list[list[Any]]:
    """Create the folders of placed files, and sync that of the staged ones; return the moves for :func:`moveStaged`."""
    for place in dict.fromkeys(os.path.dirname(each.path) for each in placed):
        files.makeFolders(f"{table}/{place}")
    if staged:
        files.syncFolder(f"{table}/{OWN}/{folder}")
    return [[each.path, *to] for each, to in zip(staged, placed, strict=True)]


def moveStaged(table: str, files: LakeFiles, folder: str, wanted: Iterable[Sequence[Any]]) -> list[TableFile]:
    """Move staged files to their final paths durably; idempotent. Each is a staged name, and a file as it is placed."""
    placed = []
    for name, *rest in wanted:
        to = TableFile(*rest)
        placed.append(to)
        path = pathIn(table, to.path)
        try:
            files.makeFolders(os.path.dirname(path))
            files.rename(pathIn(table, f"{OWN}/{folder}/{name}"), path)
        except FileNotFoundError:
            if not files.exists(path):
                raise LakeRefused(f"the table {table} is damaged: its file {to.path} is missing") from None
    for each in dict.fromkeys(os.path.dirname(to.path) for to in placed):
        files.syncFolder(f"{table}/{each}")
    return placed
