"""Makes the files of a batch visible all at once and exactly once, even if the process ends in between.

Tasks stage files in ``_fleximq/staged``, which readers ignore. Then a record of intent, ``_fleximq/record``, names the
final path of each. Once that record is on disk, the batch is committed: the next process that takes the lock completes
it by renaming the remaining staged files, writing the ledger and removing the record. Without the record, staged files
are rubbish.

A staged file is renamed, not copied: repeating :func:`finish` cannot bring back a file that compaction or expiry has
removed since. Every change of a table's files calls :func:`finish` first, under the same lock.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.day_removal import finishRemoval
from fleximq.pipeline.lake.table.file_names import OWN, fileOf, partitionOf
from fleximq.pipeline.lake.table.format import layoutOf
from fleximq.pipeline.lake.table.ledger import LEDGER, Gap, Ledger, readLedger, writeLedger
from fleximq.pipeline.lake.table.lock import changeLock
from fleximq.pipeline.lake.table.table_log import BatchRange, TableFile
from fleximq.pipeline.lake.table_change import finishChange, makeFolders, moveStaged
from fleximq.pipeline.lake.table_logs import logOf

STAGED = "staged"
RECORD = "record"
_KEYS = {"batch", "start", "end", "rows", "gaps", "files"}


class BatchCommit:
    """Commits the batches of one ingest to one table, while the ingest holds the table's writer lock."""

    def __init__(self, table: str, files: Files | None = None) -> None:
        self.table = table
        self._files = files or Files()
        self._staged = f"{table}/{OWN}/{STAGED}"

    def makeFolders(self) -> None:
        """Create the table's folders; raises LakeRefused if they cannot be created."""
        with writing(self.table):
            makeFolders(self._files, self._staged)

    def prepare(self) -> Ledger:
        """Create the table's folders, complete an interrupted change, delete staged files, and return the ledger.
        Raises LakeRefused if the table cannot be written, or has files but no ledger: its messages would be ingested
        twice.
        """
        self.makeFolders()
        with writing(self.table):
            with exclusive(self.table, self._files):
                pass
            self.removeStaged()
        ledger = readLedger(self.table, self._files)
        if ledger == Ledger() and _hasFiles(self.table):
            raise LakeRefused(
                f"the table {self.table} is damaged: it has files, but {OWN}/{LEDGER}, the record of their contents, "
                "is gone; put it back, or give the table another name"
            )
        return ledger

    def publish(
        self,
        batch: BatchRange,
        staged: Iterable[TableFile],
        gaps: Mapping[str, Iterable[Gap]],
        lossAllowed: bool = False,
        dead: Mapping[str, int] = MappingProxyType({}),
        reason: str = "",
    ) -> bool:
        """Make the files of a batch visible; False if the batch is already committed and its files are rubbish. Raises
        LakeRefused if the table cannot be written, or the batch does not follow the last one.

        :param gaps: records that the journals had lost in the batch.
        :param lossAllowed: whether skipped offsets are recorded as a gap instead of being an error.
        :param dead: the number of dead letters by journal, and the reason of the first.
        """
        with writing(self.table):
            with exclusive(self.table, self._files):
                ledger = readLedger(self.table, self._files)
                isNew = self._follows(ledger, batch, lossAllowed)
                if isNew:
                    self._writeIntent(ledger, batch, sorted(staged, key=_order), gaps, dead, reason)
                    finish(self.table, self._files)
            self.removeStaged()
        return isNew

    def _follows(self, ledger: Ledger, batch: BatchRange, lossAllowed: bool) -> bool:
        """Tell whether a batch is the next one; False if it is the last one repeated."""
        if ledger.batch >= batch.number:
            if ledger.batch == batch.number and (ledger.start, ledger.end) == (batch.start, batch.end):
                return False
            raise LakeRefused(
                f"the table {self.table} has batch {ledger.batch} up to {_formatted(ledger.end)} and cannot take batch "
                f"{batch.number} from {_formatted(batch.start)} to {_formatted(batch.end)}: the checkpoint is not that "
                "of this table"
            )
        for journal, start in batch.start.items():
            had = ledger.journals.get(journal)
            if had is None or had.next == start or (lossAllowed and had.next < start):
                continue
            raise LakeRefused(
                f"the table {self.table} has journal {journal} up to before offset {had.next} and cannot go on at "
                f"{start}: the checkpoint is not that of this table"
            )
        return True

    def _writeIntent(
        self,
        ledger: Ledger,
        batch: BatchRange,
        staged: Sequence[TableFile],
        gaps: Mapping[str, Iterable[Gap]],
        dead: Mapping[str, int],
        reason: str,
    ) -> None:
        files = self._files
        layout = layoutOf(self.table, files)
        placed = [
            TableFile(
                f"{partitionOf(each.topic, each.date, layout)}/{fileOf(each.journal, batch.number, part)}", *each[1:]
            )
            for part, each in enumerate(staged)
        ]
        for folder in dict.fromkeys(os.path.dirname(each.path) for each in placed):
            makeFolders(files, f"{self.table}/{folder}")
        if staged:
            files.syncFolder(self._staged)
        rows: Counter[str] = Counter()
        for each in staged:
            rows[each.journal] += each.rows
        told = {journal: list(found) for journal, found in gaps.items()}
        for journal, start in batch.start.items():
            had = ledger.journals.get(journal)
            if had is not None and had.next < start:
                told.setdefault(journal, []).append(Gap(had.next, start, "they were never ingested", True))
        record = {
            "batch": batch.number,
            "start": dict(batch.start),
            "end": dict(batch.end),
            "rows": rows,
            "gaps": told,
            "dead": dict(dead),
            "reason": reason,
            "files": [[each.path, *to] for each, to in zip(staged, placed, strict=True)],
        }
        replaceFile(files, f"{self.table}/{OWN}", RECORD, json.dumps(record).encode())

    def removeStaged(self) -> None:
        """Delete all staged files; call it only while no batch is being committed."""
        for name in self._files.names(self._staged):
            with suppress(FileNotFoundError):
                self._files.remove(f"{self._staged}/{name}")


@contextmanager
def exclusive(table: str, files: Files | None = None) -> Iterator[None]:
    """Hold the table's lock, with every interrupted change completed; raises LakeRefused if the table is damaged or
    locked for too long by another process, and OSError.
    """
    with changeLock(table, files):
        finish(table, files)
        yield


def finish(table: str, files: Files | None = None) -> None:
    """Complete the batch that the record of intent names, if any; the caller holds the table's lock. Raises LakeRefused
    if the table is damaged, OSError if it cannot be written: the next call completes it.
    """
    files = files or Files()
    finishRemoval(table, files)
    finishChange(table, files)
    own = f"{table}/{OWN}"
    try:
        record = json.loads(readFile(files, f"{own}/{RECORD}"))
    except FileNotFoundError:
        return
    except ValueError as error:
        raise LakeRefused(f"{own}/{RECORD} is damaged: {error}") from error
    if not isinstance(record, dict) or not _KEYS <= record.keys():
        raise LakeRefused(f"{own}/{RECORD} is damaged: it has not all that it should have")
    ledger = readLedger(table, files)
    if ledger.batch < record["batch"]:
        placed = moveStaged(table, files, STAGED, record["files"])
        log = logOf(table, files)
        if log is not None:
            log.commit(record["batch"], placed)
        gaps = {journal: [Gap(*gap) for gap in found] for journal, found in record["gaps"].items()}
        # A record of the version before has no dead letters.
        dead = record.get("dead", {}), record.get("reason", "")
        done = ledger.withBatch(record["batch"], record["start"], record["end"], record["rows"], gaps, *dead)
        writeLedger(table, done, files)
    files.remove(f"{own}/{RECORD}")


def _hasFiles(table: str) -> bool:
    return any(
        name.endswith(".parquet")
        for entry in os.scandir(table)
        if entry.is_dir() and "=" in entry.name
        for _, _, names in os.walk(entry.path)
        for name in names
    )


def _order(staged: TableFile) -> tuple[Any, ...]:
    return staged.journal, staged.first, staged.topic, staged.date, staged.path


def _formatted(offsets: Mapping[str, int]) -> str:
    return ", ".join(f"offset {next} of journal {journal}" for journal, next in offsets.items()) or "nothing"


@contextmanager
def writing(table: str) -> Iterator[None]:
    """Turn an OSError of the block into a LakeRefused whose sentence says that the table cannot be written."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise LakeRefused(f"the table {table} cannot be written: {why[:1].lower()}{why[1:]}") from error
