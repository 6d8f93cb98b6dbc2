"""Makes the files of a batch visible: all of them, once, whatever ends the process in between.

Tasks stage files in ``_fleximq/staged``, where no reader looks. Then one record of intent, ``_fleximq/record``, says
which of them go where; from the moment in which it is on disk the batch is in, and whoever comes next finishes it:
renames what is still staged, writes the ledger, removes the record. Before that moment nothing has happened, and
what was staged is rubbish.

A file is renamed, never copied: once moved it cannot come back, even if it was compacted or has expired since. Who
changes a table's files calls :func:`finish` first, under the same lock.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.day_removal import finishExpiry
from fleximq.pipeline.lake.table.file_names import OWN, fileOf, partitionOf
from fleximq.pipeline.lake.table.ledger import LEDGER, Gap, Ledger, readLedger, writeLedger
from fleximq.pipeline.lake.table.lock import changing
from fleximq.pipeline.lake.table.table_log import BatchRange, PlacedFile, StagedFile
from fleximq.pipeline.lake.table_logs import logOf

STAGED = "staged"
RECORD = "record"
_KEYS = {"batch", "start", "end", "rows", "gaps", "files"}


class BatchCommit:
    """What one ingest publishes into one table; it holds the table's lock of a writer meanwhile.

    :param table: the table's folder, made by :meth:`prepare`.
    """

    def __init__(self, table: str, files: Files | None = None) -> None:
        self.table = table
        self._files = files or Files()
        self._staged = f"{table}/{OWN}/{STAGED}"

    def makeFolders(self) -> None:
        """Make the table's folders.

        :raises LakeRefused: they cannot be made.
        """
        try:
            _makeFolders(self._files, self._staged)
        except OSError as error:
            raise cannot(self.table, error) from error

    def prepare(self) -> Ledger:
        """Make the table's folders, finish what was begun, remove what was staged in vain, and return the ledger.

        :raises LakeRefused: the table cannot be written, or is damaged; or it has files and lost its ledger, so that
            their messages would come once more.
        """
        self.makeFolders()
        try:
            with exclusive(self.table, self._files):
                pass
            self.sweep()
        except OSError as error:
            raise cannot(self.table, error) from error
        ledger = readLedger(self.table, self._files)
        if ledger == Ledger() and _hasFiles(self.table):
            raise LakeRefused(
                f"the table {self.table} is damaged: it has files, but {OWN}/{LEDGER}, which says what is in them, is "
                "gone; put it back, or give the table another name"
            )
        return ledger

    def publish(
        self,
        batch: BatchRange,
        staged: Iterable[StagedFile],
        gaps: Mapping[str, Iterable[Gap]],
        lossAllowed: bool = False,
    ) -> bool:
        """Make the files of a batch visible; False if the batch is in already, and its files are rubbish.

        :param gaps: what the journals were found to have lost in the batch.
        :param lossAllowed: a batch that leaves out offsets behind the last one is a gap, and no error.
        :raises LakeRefused: the table cannot be written, or the batch is none that can follow.
        """
        try:
            with exclusive(self.table, self._files):
                ledger = readLedger(self.table, self._files)
                isNew = self._follows(ledger, batch, lossAllowed)
                if isNew:
                    self._intend(ledger, batch, sorted(staged, key=_order), gaps)
                    finish(self.table, self._files)
            self.sweep()
        except OSError as error:
            raise cannot(self.table, error) from error
        return isNew

    def _follows(self, ledger: Ledger, batch: BatchRange, lossAllowed: bool) -> bool:
        """Tell whether a batch is the next one; False if it is the last one again."""
        if ledger.batch >= batch.number:
            if ledger.batch == batch.number and (ledger.start, ledger.end) == (batch.start, batch.end):
                return False
            raise LakeRefused(
                f"the table {self.table} has batch {ledger.batch} up to {_told(ledger.end)} and cannot take batch "
                f"{batch.number} from {_told(batch.start)} to {_told(batch.end)}: the checkpoint is not that of this "
                "table"
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

    def _intend(
        self, ledger: Ledger, batch: BatchRange, staged: Sequence[StagedFile], gaps: Mapping[str, Iterable[Gap]]
    ) -> None:
        """Write down what a batch does; from then on it is in."""
        files = self._files
        placed = [
            PlacedFile(f"{partitionOf(each.topic, each.date)}/{fileOf(each.journal, batch.number, part)}", *each[1:])
            for part, each in enumerate(staged)
        ]
        for folder in dict.fromkeys(os.path.dirname(each.path) for each in placed):
            _makeFolders(files, f"{self.table}/{folder}")
        if staged:
            files.syncFolder(self._staged)
        rows: dict[str, int] = {}
        for each in staged:
            rows[each.journal] = rows.get(each.journal, 0) + each.rows
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
            "files": [[each.name, *to] for each, to in zip(staged, placed, strict=True)],
        }
        replaceFile(files, f"{self.table}/{OWN}", RECORD, json.dumps(record).encode())

    def sweep(self) -> None:
        """Remove what is staged; nothing of it is needed when no batch is being published."""
        for name in self._files.names(self._staged):
            with suppress(FileNotFoundError):
                self._files.remove(f"{self._staged}/{name}")


@contextmanager
def exclusive(table: str, files: Files | None = None) -> Iterator[None]:
    """Hold the table's lock, with every change that was interrupted completed.

    :raises LakeRefused: the table is damaged, or locked for too long by another process.
    :raises OSError: it cannot be written.
    """
    with changing(table, files):
        finish(table, files)
        yield


def finish(table: str, files: Files | None = None) -> None:
    """Finish the batch that a record of intent is there for; nothing happens where there is none.

    The caller holds the table's lock (:func:`fleximq.pipeline.lake.table.lock.changing`).

    :raises LakeRefused: the table is damaged.
    :raises OSError: it cannot be written; the next one finishes it.
    """
    files = files or Files()
    finishExpiry(table, files)
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
        placed = _move(table, files, record["files"])
        log = logOf(table, files)
        if log is not None:
            log.commit(record["batch"], placed)
        gaps = {journal: [Gap(*gap) for gap in found] for journal, found in record["gaps"].items()}
        done = ledger.withBatch(record["batch"], record["start"], record["end"], record["rows"], gaps)
        writeLedger(table, done, files)
    files.remove(f"{own}/{RECORD}")


def _move(table: str, files: Files, wanted: Iterable[Sequence[Any]]) -> list[PlacedFile]:
    """Bring files to their places, as far as they are not there, so that they stay there."""
    placed = []
    for name, *rest in wanted:
        to = PlacedFile(*rest)
        placed.append(to)
        try:
            files.rename(f"{table}/{OWN}/{STAGED}/{name}", f"{table}/{to.path}")
        except FileNotFoundError:
            if not files.exists(f"{table}/{to.path}"):
                raise LakeRefused(f"the table {table} is damaged: its file {to.path} is missing") from None
    for folder in dict.fromkeys(os.path.dirname(to.path) for to in placed):
        files.syncFolder(f"{table}/{folder}")
    return placed


def _hasFiles(table: str) -> bool:
    """Tell whether a table has files of data."""
    return any(
        name.endswith(".parquet")
        for entry in os.scandir(table)
        if entry.is_dir() and entry.name.startswith("topic=")
        for _, _, names in os.walk(entry.path)
        for name in names
    )


def _makeFolders(files: Files, folder: str) -> None:
    """Make a folder and those above it, so that they are there after a power loss too."""
    if files.isFolder(folder):
        return
    parent = os.path.dirname(folder)
    if parent and parent != folder:
        _makeFolders(files, parent)
    with suppress(FileExistsError):
        files.makeFolder(folder)
    files.syncFolder(parent or ".")


def _order(staged: StagedFile) -> tuple[Any, ...]:
    return staged.journal, staged.first, staged.topic, staged.date, staged.name


def _told(offsets: Mapping[str, int]) -> str:
    return ", ".join(f"offset {next} of journal {journal}" for journal, next in offsets.items()) or "nothing"


def cannot(table: str, error: OSError) -> LakeRefused:
    """Return what says in one sentence that a table cannot be written."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return LakeRefused(f"the table {table} cannot be written: {why[:1].lower()}{why[1:]}")
