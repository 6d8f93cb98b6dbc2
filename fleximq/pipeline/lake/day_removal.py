"""Removes expired days of topics from a table.

First a record of intent, ``_fleximq/expiry``, names the folders and the total of removed rows; if the process ends, the
next one completes it. Folders leave the table by a rename, so a reader sees either all of a day or none of it, and the
ledger counts the removed rows. Files are deleted last.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.file_names import OWN
from fleximq.pipeline.lake.table.ledger import readLedger, writeLedger
from fleximq.pipeline.lake.table_logs import logOf

INTENT, EXPIRED = "expiry", "expired"


class RemovedDay(NamedTuple):
    """A folder that is removed from a table, relative to it, and its number of rows by journal."""

    partition: str
    rows: Mapping[str, int]


def removeDays(
    table: str, leaving: Sequence[RemovedDay], files: Files | None = None, days: Sequence[tuple[str, str]] = ()
) -> None:
    """Remove folders from a plain table, or topics with their days from a table with a log. The caller has held the
    table's lock (:func:`fleximq.pipeline.lake.batch_commit.exclusive`) since before the rows were counted. Raises as
    :func:`finishRemoval`.
    """
    files = files or Files()
    journals = readLedger(table, files).journals
    totals = {journal: covered.expired for journal, covered in journals.items()}
    for each in leaving:
        for journal, rows in each.rows.items():
            if journal not in totals:
                raise LakeRefused(f"the table {table} has rows of journal {journal} that its ledger does not know")
            totals[journal] += rows
    folders = [] if days else [each.partition for each in leaving]
    intent = {"partitions": folders, "expired": totals, "days": list(days)}
    replaceFile(files, f"{table}/{OWN}", INTENT, json.dumps(intent).encode())
    finishRemoval(table, files)


def finishRemoval(table: str, files: Files) -> None:
    """Complete the removal that a record of intent names, if any. The caller holds the table's lock. Raises LakeRefused
    if the table is damaged, OSError if it cannot be written: the next process completes it.
    """
    own = f"{table}/{OWN}"
    try:
        intent = json.loads(readFile(files, f"{own}/{INTENT}"))
        partitions, totals, days = intent["partitions"], intent["expired"], intent["days"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as error:
        raise LakeRefused(f"{own}/{INTENT} is damaged: {error}") from error
    if not files.exists(f"{own}/{EXPIRED}"):
        files.makeFolder(f"{own}/{EXPIRED}")
    for number, partition in enumerate(partitions):
        with suppress(FileNotFoundError):
            files.rename(f"{table}/{partition}", f"{own}/{EXPIRED}/{number}")
        with suppress(FileNotFoundError):
            files.syncFolder(os.path.dirname(f"{table}/{partition}"))
    files.syncFolder(f"{own}/{EXPIRED}")
    if days and (log := logOf(table, files)) is not None:
        log.deleteDays(days)
    ledger = readLedger(table, files)
    rows = {journal: total - ledger.journals[journal].expired for journal, total in totals.items()}
    if any(rows.values()):
        writeLedger(table, ledger.withExpired(rows), files)
    # A later removal must not find a folder of this name.
    shutil.rmtree(f"{own}/{EXPIRED}")
    files.remove(f"{own}/{INTENT}")
    files.syncFolder(own)
    for topic in {os.path.dirname(partition) for partition in partitions}:
        with suppress(OSError):
            os.rmdir(f"{table}/{topic}")
