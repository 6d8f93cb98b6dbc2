"""Follows the journals of a source with tables of the latest rows, without Spark.

A table's ledger says how far it has the records of each journal; the next ones are read up to ``CHANGE_BYTES``, merged
and committed in one change of the table's log, with the ledger. So a process that is killed at any moment repeats
nothing and misses nothing, and needs no checkpoint. A new table begins with the first record that a journal has.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.files.schema import ALL_COLUMNS
from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.batch_commit import exclusive, writing
from fleximq.pipeline.lake.ingest_driver import TableIngest
from fleximq.pipeline.lake.live_files import liveFiles
from fleximq.pipeline.lake.storage.lake_files import FILES, OWN, LakeFiles
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.file_names import BY_KEY
from fleximq.pipeline.lake.table.ledger import Gap, readLedger, writeLedger
from fleximq.pipeline.lake.table.table_spec import TableSpec, readSpec
from fleximq.pipeline.lake.table_change import TableChange, commitChange
from fleximq.pipeline.lake.upserts.bucket_merge import BucketMerge
from fleximq.pipeline.lake.upserts.buckets import Buckets
from fleximq.pipeline.lake.upserts.changed_rows import ChangedRows
from fleximq.pipeline.reader.journals import Journal, Journals, records
from fleximq.pipeline.reader.offsets import checked
from fleximq.pipeline.reader.source_options import SourceOptions

#: About the most bytes of changed rows in one change; they are in memory.
CHANGE_BYTES = 256 << 20
#: About the bytes of a journal that are read at once.
SLICE_BYTES = 32 << 20
#: A file with dead letters that is smaller is written again with the next ones.
DEAD_BYTES = 4 << 20
#: The folder of staged files.
STAGED = "upserting"


@dataclass(frozen=True, slots=True)
class Advance:
    """What a change has taken: numbers of records and dead letters, the reason of the first, and the offset reached."""

    records: int
    dead: int
    reason: str
    next: int


class StateIngest:
    """Feeds tables of the latest rows; a ``with`` statement holds their writer locks."""

    def __init__(
        self,
        lake: str,
        specs: Sequence[TableSpec],
        form: dict[str, Any],
        options: SourceOptions,
        files: LakeFiles = FILES,
    ) -> None:
        self.specs = specs
        self._lake, self._files = lake, files
        self._options = replace(options, partitionBytes=SLICE_BYTES)
        self._tables = TableIngest(lake, specs, form, not options.failOnDataLoss, BY_KEY, files)
        self._merges: dict[str, _StateTable] = {}

    def __enter__(self) -> "StateIngest":
        for spec in self.specs:
            checkKey(f"{self._lake}/{spec.name}", spec, self._files)
        self._tables.__enter__()
        self._merges = {spec.name: _StateTable(f"{self._lake}/{spec.name}", spec, self._files) for spec in self.specs}
        return self

    def __exit__(self, *raised: object) -> None:
        self._tables.__exit__(*raised)

    def advance(self, spec: TableSpec, isEnding: Callable[[], bool] = lambda: False) -> Iterator[Advance]:
        """Take the records that the journals have now; yield each change. Raises PipelineError."""
        table, selection = self._merges[spec.name], Selection(self._options.topics)
        with closing(Journals(self._options)) as journals:
            ends = {journalId: journal.bounds().next for journalId, journal in journals.find().items()}
            had = {
                journalId: covered.next for journalId, covered in readLedger(table.table, self._files).journals.items()
            }
            ranges = {journalId: (had.get(journalId, 0), end) for journalId, end in ends.items()}
            for journalId, journal in journals.covering(ranges).items():
                if journalId not in ends or isEnding():
                    continue
                first = journal.bounds().first
                start = had.get(journalId, min(first, ends[journalId]))
                if start < ends[journalId]:
                    pieces = self._pieces(journals, journal, journalId, start, ends[journalId], selection)
                    yield from table.take(journalId, start, pieces, isEnding)

    def _pieces(
        self, journals: Journals, journal: Journal, journalId: str, start: int, end: int, selection: Selection
    ) -> "Iterator[_Piece]":
        """Yield the records of a range in slices; the first also has what retention has removed before them."""
        fail = self._options.failOnDataLoss
        begin = min(checked(journalId, start, journal.bounds(), fail), end)
        if begin > start:
            yield _Piece((), begin, [Missing(start, begin, "retention has removed them", True)])
        parts = journals.partitions(journal, begin, end, self._options, selection) if begin < end else []
        for part in parts:
            missing: list[Missing] = []
            yield _Piece(records(part, ALL_COLUMNS, selection, fail, missing), begin, missing)
        yield _Piece((), end, [])


@dataclass(frozen=True, slots=True)
class _Piece:
    """Records, after which all before the offset ``end`` are known; ``missing`` is known after them."""

    batches: Iterable[Any]
    end: int
    missing: list[Missing]


class _StateTable:
    """One table, and its buckets."""

    def __init__(self, table: str, spec: TableSpec, files: LakeFiles) -> None:
        self.table = table
        self._spec, self._files = spec, files
        self._folder = f"{table}/{OWN}/{STAGED}"
        self._buckets = Buckets(table, files)
        with writing(table):
            # What a recorded change needed was moved when the table was entered.
            files.removeTree(self._folder)
            files.makeFolders(self._folder)

    def take(
        self, journal: str, start: int, pieces: "Iterable[_Piece]", isEnding: Callable[[], bool]
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
                change = self._staged(journal, start, end, changed, gaps)
                with exclusive(self.table, self._files):
                    self._record(change)
        except BaseException:
            self._removeStaged()
            raise
        dead = change.dead.get(journal, 0)
        return Advance(changed.taken, dead, changed.reason, end)

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
            STAGED,
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


def checkKey(table: str, spec: TableSpec, files: LakeFiles = FILES) -> None:
    """Raise LakeRefused if a table has rows that replaced others by another key."""
    if not files.hasOwn(table, "table"):
        return
    had = readSpec(table, files).upsert
    if had and had != spec.upsert:
        raise LakeRefused(
            f"the table {os.path.basename(table)} has upsert({had}) and cannot go on with upsert({spec.upsert}): give "
            "it another name"
        )
