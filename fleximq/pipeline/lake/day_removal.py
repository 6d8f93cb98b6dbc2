"""What is older than it has to be kept goes out of a table: a day of a topic at a time.

First a record of intent, ``_fleximq/expiry``, names the folders and how many rows will then have gone in all; whoever
comes next finishes it. Folders leave the table by a rename, so a reader sees all of a day or nothing, and the ledger
counts what is gone. Only then is anything deleted.
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
    """A folder that leaves a table, within it, and how many rows of each journal go with it."""

    partition: str
    rows: Mapping[str, int]


def expire(
    table: str, leaving: Sequence[RemovedDay], files: Files | None = None, days: Sequence[tuple[str, str]] = ()
) -> None:
    """Take folders out of a table; of a table with a log, topics with their days.

    The caller holds the table's lock (:func:`fleximq.pipeline.lake.table.lock.changing`) and has finished what was
    begun
    (:func:`fleximq.pipeline.lake.batch_commit.finish`); what was counted is still so.

    :raises LakeRefused: the table is damaged.
    :raises OSError: it cannot be written; the next one finishes it.
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
    finishExpiry(table, files)


def finishExpiry(table: str, files: Files) -> None:
    """Finish what a record of intent says; nothing happens where there is none. The caller holds the table's lock.

    :raises LakeRefused: the table is damaged.
    :raises OSError: it cannot be written; the next one finishes it.
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
    # No folder of this name may be taken for one of the next intent.
    shutil.rmtree(f"{own}/{EXPIRED}")
    files.remove(f"{own}/{INTENT}")
    files.syncFolder(own)
    for topic in {os.path.dirname(partition) for partition in partitions}:
        with suppress(OSError):
            os.rmdir(f"{table}/{topic}")
