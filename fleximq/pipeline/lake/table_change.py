"""Adds files to a table beside its ingest, or replaces some, exactly once: the commit of ``redecode`` and ``backfill``.

As for a batch, a record of intent in ``_fleximq/change`` names the new files, the files that they replace and the new
ledger's numbers; the next process that takes the table's lock completes it, unless the ledger's number of changes shows
that it is complete. Files are removed from the view before others appear, so readers see no row twice.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.file_names import OWN, partitionOf
from fleximq.pipeline.lake.table.format import layoutOf
from fleximq.pipeline.lake.table.ledger import Gap, readLedger, writeLedger
from fleximq.pipeline.lake.table.table_log import TableFile
from fleximq.pipeline.lake.table_logs import logOf

INTENT = "change"


class TableChange(NamedTuple):
    """A change: ``made`` files are staged in ``folder`` of the table's own one, and replace those of ``gone``, paths
    within the table. The others are the arguments of :meth:`fleximq.pipeline.lake.table.ledger.Ledger.withChange`.
    """

    folder: str
    made: Sequence[TableFile]
    gone: Sequence[str] = ()
    first: Mapping[str, int] = {}
    rows: Mapping[str, int] = {}
    gaps: Mapping[str, Sequence[Gap]] = {}
    dead: Mapping[str, int] = {}
    expired: Mapping[str, int] = {}


def commitChange(table: str, change: TableChange, files: Files) -> None:
    """Make a change visible. The caller holds the table's lock. Raises LakeRefused or OSError; if the record of intent
    was written, the next change of the table completes it.
    """
    placed = []
    layout = layoutOf(table, files)
    for each in change.made:
        folder = partitionOf(each.topic, each.date, layout)
        makeFolders(files, f"{table}/{folder}")
        # Staged names are unique, so no later batch or change has them.
        placed.append(each._replace(path=f"{folder}/{each.journal}-{each.path}"))
    if change.made:
        files.syncFolder(f"{table}/{OWN}/{change.folder}")
    record = {
        **change._asdict(),
        "number": readLedger(table, files).changes + 1,
        "made": [[each.path, *to] for each, to in zip(change.made, placed, strict=True)],
    }
    replaceFile(files, f"{table}/{OWN}", INTENT, json.dumps(record).encode())
    finishChange(table, files)


def finishChange(table: str, files: Files) -> None:
    """Complete the change that a record of intent names, if any. The caller holds the table's lock. Raises LakeRefused
    if the table is damaged, OSError if it cannot be written: the next process completes it.
    """
    own = f"{table}/{OWN}"
    try:
        record = json.loads(readFile(files, f"{own}/{INTENT}"))
        # A record of the version before has no expired rows.
        change = TableChange(**{name: record[name] for name in TableChange._fields if name != "expired"})
        change = change._replace(expired=record.get("expired", {}))
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as error:
        raise LakeRefused(f"{own}/{INTENT} is damaged: {error}") from error
    ledger = readLedger(table, files)
    log = logOf(table, files)
    if ledger.changes < record["number"]:
        if log is None:
            _remove(table, change.gone, files)
        placed = moveStaged(table, files, change.folder, record["made"])
        if log is not None:
            log.change(record["number"], change.gone, placed)
        gaps = {journal: [Gap(*gap) for gap in found] for journal, found in change.gaps.items()}
        writeLedger(table, ledger.withChange(change.first, change.rows, gaps, change.dead, change.expired), files)
    files.remove(f"{own}/{INTENT}")


def _remove(table: str, gone: Sequence[str], files: Files) -> None:
    for path in gone:
        with suppress(FileNotFoundError):
            files.remove(f"{table}/{path}")
    for folder in dict.fromkeys(os.path.dirname(path) for path in gone):
        with suppress(OSError):
            files.syncFolder(f"{table}/{folder}")
            os.removedirs(f"{table}/{folder}")


def moveStaged(table: str, files: Files, folder: str, wanted: Iterable[Sequence[Any]]) -> list[TableFile]:
    """Move staged files to their final paths durably; idempotent. Each is a staged name, and a file as it is placed."""
    placed = []
    for name, *rest in wanted:
        to = TableFile(*rest)
        placed.append(to)
        try:
            makeFolders(files, os.path.dirname(f"{table}/{to.path}"))
            files.rename(f"{table}/{OWN}/{folder}/{name}", f"{table}/{to.path}")
        except FileNotFoundError:
            if not files.exists(f"{table}/{to.path}"):
                raise LakeRefused(f"the table {table} is damaged: its file {to.path} is missing") from None
    for each in dict.fromkeys(os.path.dirname(to.path) for to in placed):
        files.syncFolder(f"{table}/{each}")
    return placed


def makeFolders(files: Files, folder: str) -> None:
    """Create a folder and its parents durably."""
    if files.isFolder(folder):
        return
    parent = os.path.dirname(folder)
    if parent and parent != folder:
        makeFolders(files, parent)
    with suppress(FileExistsError):
        files.makeFolder(folder)
    files.syncFolder(parent or ".")
