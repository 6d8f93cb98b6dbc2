"""Makes the files of a batch visible all at once and exactly once, even if the process ends in between.

Tasks stage files in ``_fleximq/staged``. A record of intent, ``_fleximq/record``, then names the final path of each:
the batch is committed, and the next process that takes the lock completes it. It renames staged files, never copies
them, so that a file that compaction or expiry has removed does not reappear.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fleximq.errors import systemReason
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.refused_files import Mended
from fleximq.pipeline.lake.staged_files import commitStaged, preparedPlaces
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.file_names import fileOf, partitionOf, readOwn, readRecorded, writeOwn
from fleximq.pipeline.lake.table.format import dataFolder, layoutOf
from fleximq.pipeline.lake.table.ledger import LEDGER, NONE, Counts, Gap, Gaps, Ledger, readLedger, writeLedger
from fleximq.pipeline.lake.table.lock import changeLock, undisturbed
from fleximq.pipeline.lake.table.table_log import BatchRange, TableFile, TableLog
from fleximq.pipeline.lake.table_change import INTENT, REMOVAL, finishChange, finishRemoval

STAGED = "staged"
RECORD = "record"
#: The file with the reason why the ingest continues without a table.
BEHIND = "behind"
_KEYS = {"batch", "start", "end", "rows", "gaps", "files"}


class BatchCommit:
    """Commits the batches of one ingest to one table, while the ingest holds the table's writer lock."""

    def __init__(self, table: str, files: LakeFiles = FILES) -> None:
        self.table = table
        self._files = files

    @property
    def _folder(self) -> str:
        """The name of the folder of staged files."""
        return self._files.aside(self.table, STAGED, "writer")

    @property
    def _staged(self) -> str:
        return f"{self.table}/{OWN}/{self._folder}"

    def makeFolders(self) -> None:
        """Create the table's folders; raises LakeRefused if they cannot be created."""
        with writing(self.table):
            self._files.makeFolders(self._staged)

    def prepare(self) -> Ledger:
        """Create the folders, complete an interrupted change, delete staged files, and return the ledger. Raises
        LakeRefused also if there are files but no ledger: messages would be ingested twice.
        """
        self.makeFolders()
        with writing(self.table):
            undisturbed(self._finish)
            self._files.removeFormer(self.table, STAGED, "writer")
            self.removeStaged()
        ledger = readLedger(self.table, self._files)
        if ledger == Ledger() and any(
            "=" in path.partition("/")[0] and path.endswith(".parquet") for path in self._files.visible(self.table)
        ):
            raise LakeRefused(
                f"the table {self.table} is damaged: it has files, but {OWN}/{LEDGER}, the record of their contents, "
                "is gone; put it back, or give the table another name"
            )
        return ledger

    def _finish(self) -> None:
        with exclusive(self.table, self._files):
            pass

    def publish(
        self,
        batch: BatchRange,
        staged: Iterable[TableFile],
        gaps: Gaps,
        lossAllowed: bool = False,
        dead: Counts = NONE,
        reason: str = "",
        keepsStaged: bool = False,
    ) -> bool:
        """Make the files of a batch visible; False if it is already committed and its files are rubbish. Raises
        LakeRefused if the table cannot be written, or the batch does not follow the last one.

        :param gaps: the records that the journals had lost; ``lossAllowed``: skipped offsets are recorded as a gap
            instead of an error.
        :param dead: the number of dead letters by journal, and the reason of the first.
        :param keepsStaged: other staged files belong to the next batch and stay.
        """
        placed, isNew = sorted(staged, key=_order), False

        def commit() -> None:
            nonlocal isNew
            with exclusive(self.table, self._files):
                ledger = readLedger(self.table, self._files)
                if not self._follows(ledger, batch, lossAllowed):
                    return
                isNew = True
                told = {journal: list(found) for journal, found in gaps.items()}
                for journal, start in batch.start.items():
                    had = ledger.journals.get(journal)
                    if had is not None and had.next < start:
                        told.setdefault(journal, []).append(Gap(had.next, start, "they were never ingested", True))
                self._writeIntent(batch, placed, gaps=told, dead=dict(dead), reason=reason)
                finish(self.table, self._files)

        with writing(self.table):
            # A repeated attempt finds the batch committed if its record of intent was written before.
            undisturbed(commit)
            if not keepsStaged:
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

    def _writeIntent(self, batch: BatchRange, staged: list[TableFile], **more: object) -> None:
        layout, within = layoutOf(self.table, self._files), dataFolder(self.table, self._files)
        rows: Counter[str] = Counter()
        placed = []
        for part, each in enumerate(staged):
            folder = partitionOf(each.topic, each.date, layout)
            placed.append(each._replace(path=f"{within}{folder}/{fileOf(each.journal, batch.number, part)}"))
            rows[each.journal] += each.rows
        folder = self._folder
        moves = preparedPlaces(self.table, folder, staged, placed, self._files)
        offsets = {"start": dict(batch.start), "end": dict(batch.end)}
        record = {"batch": batch.number, **offsets, "rows": rows, **more, "folder": folder, "files": moves}
        writeOwn(self.table, RECORD, record, self._files)

    def discard(self, staged: Iterable[TableFile]) -> None:
        """Delete the staged files of a batch that is not published."""
        for each in staged:
            with suppress(FileNotFoundError):
                self._files.remove(f"{self._staged}/{each.path}")

    def removeStaged(self) -> None:
        """Delete all staged files; call it only while no batch is being committed."""
        for name in self._files.names(self._staged):
            with suppress(FileNotFoundError):
                self._files.remove(f"{self._staged}/{name}")


@contextmanager
def exclusive(table: str, files: LakeFiles = FILES) -> Iterator[None]:
    """Hold the table's lock, with every interrupted change completed; raises LakeRefused and OSError."""
    with changeLock(table, files):
        finish(table, files)
        yield


def pending(table: str, files: LakeFiles = FILES) -> list[str]:
    """Return the names of the steps that are recorded, but not complete."""
    names = {RECORD: "a batch", INTENT: "a change", REMOVAL: "an expiry"}
    return [words for name, words in names.items() if files.hasOwn(table, name)]


def readBehind(table: str, files: LakeFiles = FILES) -> str:
    """Return why the ingest continues without a table, an empty text if it does not; raises LakeRefused."""
    return readRecorded(table, BEHIND, lambda found: str(found[0]), files) or ""


def finish(table: str, files: LakeFiles = FILES) -> None:
    """Complete all recorded intents; the caller holds the table's lock. Raises LakeRefused for damage, and OSError."""
    finishRemoval(table, files)
    finishChange(table, files)
    # A record may be damaged so that it is null.
    found = readOwn(table, RECORD, lambda record: [record], files)
    if found is None:
        return
    (record,) = found
    if not isinstance(record, dict) or not _KEYS <= record.keys():
        raise LakeRefused(f"{table}/{OWN}/{RECORD} is damaged: it has not all that it should have")
    ledger = readLedger(table, files)
    if ledger.batch < record["batch"]:

        def commit(log: TableLog, placed: list[TableFile]) -> None:
            if placed:
                log.commit(record["batch"], placed)

        def mend(mended: Mended) -> None:
            dead = Counter(record.get("dead", {})) + Counter(mended.dead)
            reason = record.get("reason") or mended.reason
            record.update(files=mended.moves, dead=dead, reason=reason)
            writeOwn(table, RECORD, record, files)

        commitStaged(table, record.get("folder", STAGED), record["files"], commit, mend, files)
        gaps = {journal: [Gap(*gap) for gap in found] for journal, found in record["gaps"].items()}
        # A record of the version before has no dead letters.
        dead = record.get("dead", {}), record.get("reason", "")
        done = ledger.withBatch(record["batch"], record["start"], record["end"], record["rows"], gaps, *dead)
        writeLedger(table, done, files)
    files.removeOwn(table, RECORD)


def _order(staged: TableFile) -> tuple[Any, ...]:
    return staged.journal, staged.first, staged.topic, staged.date, staged.path


def _formatted(offsets: Counts) -> str:
    return (
        ", ".join(f"offset {nextOffset} of journal {journal}" for journal, nextOffset in offsets.items()) or "nothing"
    )


@contextmanager
def writing(table: str) -> Iterator[None]:
    """Turn an OSError of the block into a LakeRefused with the sentence that the table cannot be written."""
    try:
        yield
    except OSError as error:
        # PyArrow's own text also has the path and the number of the error.
        plain = OSError(error.errno, os.strerror(error.errno)) if error.errno else error
        raise LakeRefused(f"the table {table} cannot be written: {systemReason(plain)}") from error
