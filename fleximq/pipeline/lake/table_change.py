"""Changes a table during its ingest, exactly once: adds files or replaces some, or removes expired days.

As for a batch, a record of intent in ``_fleximq`` names the files or folders and the new ledger's numbers; the next
process that takes the table's lock completes it. Files and folders leave the view before others appear, folders by one
rename each, so readers see no row twice, and a removed day either whole or not at all. Functions raise LakeRefused if
the table is damaged, and OSError.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fleximq.pipeline.errors import LakeRefused, RowsRefused
from fleximq.pipeline.lake.live_files import logOf
from fleximq.pipeline.lake.refused_files import Mended
from fleximq.pipeline.lake.staged_files import commitStaged, preparedPlaces
from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.file_names import pathIn, readOwn, writeOwn
from fleximq.pipeline.lake.table.format import PARQUET, dataFolder, formatOf, layoutOf
from fleximq.pipeline.lake.table.ledger import Gap, readLedger, writeLedger
from fleximq.pipeline.lake.table.table_log import TableFile, TableLog

#: The records of a change and of a removal, and the folder of removed days until they are deleted.
INTENT, REMOVAL, EXPIRED = "change", "expiry", "expired"


class TableChange(NamedTuple):
    """``made`` files are staged in ``folder`` of the table's own one, and replace those of ``gone``, paths within the
    table. The others are the arguments of :meth:`fleximq.pipeline.lake.table.ledger.Ledger.withChange`.
    """

    folder: str
    made: Sequence[TableFile]
    gone: Sequence[str] = ()
    first: Mapping[str, int] = {}
    rows: Mapping[str, int] = {}
    gaps: Mapping[str, Sequence[Gap]] = {}
    dead: Mapping[str, int] = {}
    expired: Mapping[str, int] = {}
    reached: Mapping[str, Sequence[int]] = {}


#: The parts that records of earlier versions lack.
_LATER = ("expired", "reached")


def commitChange(table: str, change: TableChange, files: LakeFiles) -> None:
    """Make a change visible, at the latest by the next change of the table; the caller holds the table's lock. Raises
    RowsRefused if a table of the latest rows cannot take it.
    """
    layout, within = layoutOf(table, files), dataFolder(table, files)
    placed = [each.placed(layout, within) for each in change.made]
    record = {
        **change._asdict(),
        "number": readLedger(table, files).changes + 1,
        "made": preparedPlaces(table, change.folder, change.made, placed, files),
    }
    writeOwn(table, INTENT, record, files)
    if (error := finishChange(table, files)) is not None:
        raise error


def finishChange(table: str, files: LakeFiles) -> RowsRefused | None:
    """Complete the change that a record of intent names, if any; the caller holds the table's lock. If a table of the
    latest rows cannot take it, undo it and return the error: the ingest makes another one.
    """

    def read(record: Any) -> tuple[dict[str, Any], int, TableChange]:
        known = {name: record[name] for name in TableChange._fields if name in record or name not in _LATER}
        return record, record["number"], TableChange(**known)

    intent = readOwn(table, INTENT, read, files)
    if intent is None:
        return None
    record, number, change = intent
    dead = Counter(change.dead)

    def mend(mended: Mended) -> None:
        dead.update(mended.dead)
        writeOwn(table, INTENT, {**record, "made": mended.moves, "dead": dead}, files)

    ledger = readLedger(table, files)
    if ledger.changes < number:
        if formatOf(table, files)["format"] == PARQUET:
            _remove(table, change.gone, files)

        def commit(log: TableLog, placed: list[TableFile]) -> None:
            log.change(number, change.gone, placed)

        try:
            commitStaged(table, change.folder, change.made, commit, mend, files)
        except RowsRefused as error:
            files.removeOwn(table, INTENT)
            return error
        gaps = {journal: [Gap(*gap) for gap in found] for journal, found in change.gaps.items()}
        done = ledger.withChange(change.first, change.rows, gaps, dead, change.expired, change.reached)
        writeLedger(table, done, files)
    files.removeOwn(table, INTENT)
    return None


def _remove(table: str, gone: Sequence[str], files: LakeFiles) -> None:
    for path in gone:
        with suppress(FileNotFoundError):
            files.remove(pathIn(table, path))
    for folder in dict.fromkeys(os.path.dirname(path) for path in gone):
        with suppress(OSError):
            files.syncFolder(f"{table}/{folder}")
            files.removeEmpty(f"{table}/{folder}")


class RemovedDay(NamedTuple):
    """A folder that is removed from a table, relative to it, and its number of rows by journal."""

    partition: str
    rows: Mapping[str, int]


def removeDays(
    table: str, leaving: Sequence[RemovedDay], files: LakeFiles, days: Sequence[tuple[str, str]] = ()
) -> None:
    """Remove folders, or ``days`` of topics through a log; their rows were counted since the table was locked."""
    totals = {journal: covered.expired for journal, covered in readLedger(table, files).journals.items()}
    for each in leaving:
        for journal, rows in each.rows.items():
            if journal not in totals:
                raise LakeRefused(f"the table {table} has rows of journal {journal} that its ledger does not know")
            totals[journal] += rows
    folders = [] if days else [each.partition for each in leaving]
    writeOwn(table, REMOVAL, {"partitions": folders, "expired": totals, "days": list(days)}, files)
    finishRemoval(table, files)


def finishRemoval(table: str, files: LakeFiles) -> None:
    """Complete the removal that a record of intent names, if any; the caller holds the table's lock."""
    intent = readOwn(table, REMOVAL, lambda found: (found["partitions"], found["expired"], found["days"]), files)
    if intent is None:
        return
    partitions, totals, days = intent
    own = f"{table}/{OWN}"
    if not files.exists(f"{own}/{EXPIRED}"):
        files.makeFolder(f"{own}/{EXPIRED}")
    for number, partition in enumerate(partitions):
        with suppress(FileNotFoundError):
            files.rename(pathIn(table, partition), f"{own}/{EXPIRED}/{number}")
        with suppress(FileNotFoundError):
            files.syncFolder(os.path.dirname(f"{table}/{partition}"))
    files.syncFolder(f"{own}/{EXPIRED}")
    if days and (log := logOf(table, files)) is not None:
        log.deleteDays(days)
    ledger = readLedger(table, files)
    # The record has totals, so that no row is counted twice.
    rows = {journal: total - ledger.journals[journal].expired for journal, total in totals.items()}
    if any(rows.values()):
        writeLedger(table, ledger.withExpired(rows), files)
    # A later removal must not find a folder of this name.
    files.removeTree(f"{own}/{EXPIRED}")
    files.removeOwn(table, REMOVAL)
    files.syncFolder(own)
    for topic in {os.path.dirname(partition) for partition in partitions}:
        with suppress(OSError):
            os.rmdir(f"{table}/{topic}")
