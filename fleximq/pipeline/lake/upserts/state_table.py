"""One table of the latest rows: merges changes with its buckets, and commits the result with the ledger.

A change of the table's log and of the ledger has one record of intent, so after a kill at any moment each record is
merged exactly once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused, RowsRefused
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.batch_commit import exclusive, writing
from fleximq.pipeline.lake.live_files import liveFiles, logOf
from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.ledger import Gap, readLedger, writeLedger
from fleximq.pipeline.lake.table.lock import undisturbed
from fleximq.pipeline.lake.table.table_spec import TableSpec
from fleximq.pipeline.lake.table_change import TableChange, commitChange
from fleximq.pipeline.lake.upserts.bucket_merge import BucketMerge
from fleximq.pipeline.lake.upserts.buckets import Buckets
from fleximq.pipeline.lake.upserts.changed_rows import ChangedRows

#: About the most bytes of changed rows in one change; they are in memory.
CHANGE_BYTES = 256 << 20
#: A file with dead letters that is smaller is written again with the next ones.
DEAD_BYTES = 4 << 20
#: The folder of staged files.
STAGED = "upserting"


@dataclass(frozen=True, slots=True)
class Advance:
    """The result of a change: numbers of records and dead letters, the reason of the first, and the offset reached."""

    records: int
    dead: int
    reason: str
    next: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Records; after the last one, all before the offset ``end`` have been read, and ``missing`` is complete."""

    batches: Iterable[Any]
    end: int
    missing: list[Missing]


class StateTable:
    """One table, and its buckets."""

    def __init__(self, table: str, spec: TableSpec, files: LakeFiles) -> None:
        self.table = table
        self._spec, self._files = spec, files
        self._staging = files.aside(table, STAGED, "writer")
        self._folder = f"{table}/{OWN}/{self._staging}"
        self._buckets = Buckets(table, files)
        with writing(table):
            # The files of a recorded change were moved when the table was entered.
            files.removeTree(self._folder)
            files.removeFormer(table, STAGED, "writer")
            files.makeFolders(self._folder)

    def take(
        self, journal: str, start: int, pieces: Iterable[Piece], isEnding: Callable[[], bool]
    ) -> Iterator[Advance]:
        """Merge and commit pieces of a journal, several at once unless they are large; yield each change."""
        changed, gaps = ChangedRows(self.table, self._spec, journal, self._files), list[Gap]()
        end = start
        for piece in pieces:
            end = max(end, piece.end)
            for batch in piece.batches:
                changed.add(batch)
                end = max(end, pc.max(batch.column("offset")).as_py() + 1)
            gaps += [Gap(each.first, each.next, each.why, each.lost) for each in piece.missing]
            end = max([end, *(gap.next for gap in gaps)])
            if changed.bytes >= CHANGE_BYTES:
                yield self._commit(journal, start, end, changed, gaps)
                changed, gaps, start = ChangedRows(self.table, self._spec, journal, self._files), [], end
            if isEnding():
                break
        if end > start:
            yield self._commit(journal, start, end, changed, gaps)

    def _commit(self, journal: str, start: int, end: int, changed: ChangedRows, gaps: list[Gap]) -> Advance:
        try:
            with writing(self.table):
                try:
                    dead = self._change(journal, start, end, changed, gaps)
                except RowsRefused:
                    if not changed.buryRefused(partial(self._refusal, journal, changed.schema)):
                        raise
                    dead = self._change(journal, start, end, changed, gaps)
        except BaseException:
            self._removeStaged()
            raise
        return Advance(changed.taken, dead, changed.reason, end)

    def _change(self, journal: str, start: int, end: int, changed: ChangedRows, gaps: list[Gap]) -> int:
        """Make one change and return the number of its dead letters; raises RowsRefused without a change."""
        change = self._staged(journal, start, end, changed, gaps)
        isRepeated = False

        def record() -> None:
            nonlocal isRepeated
            with exclusive(self.table, self._files):
                had = readLedger(self.table, self._files).journals.get(journal)
                # The lock completes a former attempt that was recorded.
                if not isRepeated or had is None or had.next != end:
                    isRepeated = True
                    self._record(change)

        undisturbed(record)
        return change.dead.get(journal, 0)

    def _refusal(self, journal: str, schema: pa.Schema, rows: pa.Table) -> str | None:
        """Return why the table's log refuses rows, None if it takes them."""
        log = logOf(self.table, self._files)
        file = BucketMerge(self.table, self._folder, "", schema, 0, self._files).stage(rows, journal, None)
        try:
            return None if log is None else log.refusal(file._replace(path=f"{OWN}/{self._staging}/{file.path}"))
        finally:
            self._files.remove(f"{self._folder}/{file.path}")

    def _record(self, change: TableChange) -> None:
        ledger = readLedger(self.table, self._files)
        for journal, (start, _) in change.reached.items():
            had = ledger.journals.get(journal)
            if had is not None and had.next != start:
                raise LakeRefused(
                    f"the table {self.table} has journal {journal} up to before offset {had.next} already"
                )
        if change.made or change.gone:
            commitChange(self.table, change, self._files)
        else:
            # No row changes, so neither does the table's log.
            done = ledger.withChange({}, change.rows, change.gaps, change.dead, change.expired, change.reached)
            writeLedger(self.table, done, self._files)

    def _staged(self, journal: str, start: int, end: int, changed: ChangedRows, gaps: list[Gap]) -> TableChange:
        """Merge changes with the buckets of the table as it is now, in staged files."""
        with exclusive(self.table, self._files):
            self._buckets.update(path for path, _ in liveFiles(self.table, self._files))
        number = readLedger(self.table, self._files).changes + 1
        merge = BucketMerge(self.table, self._folder, self._spec.upsert, changed.schema, number, self._files)
        gone, made, grown = merge.merge(changed.changes(), self._buckets.of(journal))
        dead = changed.dead()
        if dead.num_rows:
            gone, made = [*gone], [*made]
            rows = dead
            for each in [each for each in self._buckets.dead(journal) if each.bytes < DEAD_BYTES][:1]:
                earlier = aligned(pq.ParquetFile(self._files.input(f"{self.table}/{each.path}")).read(), changed.schema)
                rows = type(rows).from_batches([*earlier.to_batches(), *rows.to_batches()], changed.schema)
                gone.append(each.path)
            made.append(merge.stage(rows, journal, None))
        return TableChange(
            self._staging,
            made,
            gone,
            rows={journal: changed.taken},
            expired={journal: changed.taken - grown - dead.num_rows},
            gaps={journal: gaps} if gaps else {},
            dead=Counter({journal: dead.num_rows} if dead.num_rows else {}),
            reached={journal: (start, end)},
        )

    def _removeStaged(self) -> None:
        """Delete staged files, unless a record of intent needs them."""
        with suppress(LakeRefused, OSError), exclusive(self.table, self._files):
            for name in self._files.names(self._folder):
                self._files.remove(f"{self._folder}/{name}")
