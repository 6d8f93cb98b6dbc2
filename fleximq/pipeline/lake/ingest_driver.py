"""Driver side of an ingest: collects the tasks' reports on a batch, and commits it to the tables that lack it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from fleximq.pipeline.errors import CommitRefused, LakeRefused, LeftBehind, PipelineError
from fleximq.pipeline.lake.batch_commit import BEHIND, BatchCommit, exclusive, readBehind, writing
from fleximq.pipeline.lake.column_changes import addColumns, checkNames, columnsOf, writeGiven
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.columns import added, readColumns
from fleximq.pipeline.lake.table.file_names import TOPIC, writeOwn
from fleximq.pipeline.lake.table.format import layoutOf, setFormat
from fleximq.pipeline.lake.table.ledger import Covered, DeadLetters, Ledger, readLedger, writeLedger
from fleximq.pipeline.lake.table.lock import writerLock
from fleximq.pipeline.lake.table.table_log import BatchRange
from fleximq.pipeline.lake.table.table_spec import TableSpec, writeSpec
from fleximq.pipeline.lake.task_reports import TaskReports

#: Adds the records that a table lacks before some offsets as the batch of a number; returns the number of rows.
MissedRecords = Callable[[TableSpec, BatchCommit, int, Mapping[str, int]], int]


@dataclass
class TableIngest:
    """Writes to the tables of a lake; a ``with`` statement holds their writer locks. ``form`` and ``layout`` are for
    :func:`fleximq.pipeline.lake.table.format.setFormat`, ``lossAllowed`` makes missing records gaps. Without
    ``missed``, a table that lacks records of earlier batches is refused.

    If the format of a table refuses a recorded batch, the ingest continues without this table, and tries it again in
    each later batch. ``self.behind`` has the reasons by the names of these tables. If no table is left,
    the error of the first is raised.
    """

    lake: str
    specs: Sequence[TableSpec]
    form: dict[str, Any]
    lossAllowed: bool
    layout: str | None = None
    files: LakeFiles = FILES
    missed: MissedRecords | None = None

    def __post_init__(self) -> None:
        self.behind: dict[str, str] = {}
        #: Tables that others feed from the same source, which :meth:`reached` looks at as well.
        self.beside: Sequence[str] = ()
        self._tables = {spec.name: BatchCommit(f"{self.lake}/{spec.name}", self.files) for spec in self.specs}
        self._locks = ExitStack()

    def __enter__(self) -> "TableIngest":
        for spec in self.specs:
            # A schema that is refused must leave no folder.
            if (had := readColumns(self._tables[spec.name].table, self.files)) is None:
                checkNames(self._tables[spec.name].table, self.form["format"], columnsOf(spec), had)
        with ExitStack() as locks:
            for spec in self.specs:
                publishing = self._tables[spec.name]
                publishing.makeFolders()
                locks.enter_context(writerLock(publishing.table, self.files))
                with writing(publishing.table):
                    setFormat(publishing.table, self.form, self.layout, self.files)
                if why := readBehind(publishing.table, self.files):
                    self.behind[spec.name] = why
            self._onEach(self._prepare)
            self._locks = locks.pop_all()
        return self

    def _prepare(self, spec: TableSpec, publishing: BatchCommit) -> None:
        with writing(publishing.table):
            with exclusive(publishing.table, self.files):
                self._setColumns(spec, publishing.table)
            writeSpec(publishing.table, spec, self.files)
        publishing.prepare()

    def _onEach(self, step: Callable[[TableSpec, BatchCommit], None]) -> None:
        """Do a step for each table; continue without a table that cannot catch up, or with a format that refuses it."""
        refused: list[LeftBehind | CommitRefused] = []
        for spec in self.specs:
            publishing = self._tables[spec.name]
            try:
                step(spec, publishing)
            except (LeftBehind, CommitRefused) as error:
                refused.append(error)
                self.behind[spec.name] = str(error)
                with writing(publishing.table):
                    writeOwn(publishing.table, BEHIND, [str(error)], self.files)
        if len(refused) == len(self.specs):
            raise refused[0]

    def __exit__(self, *raised: object) -> None:
        self._locks.close()

    def _setColumns(self, spec: TableSpec, table: str) -> None:
        """Record a table's columns; recorded columns remain."""
        had = readColumns(table, self.files)
        if had is None:
            wanted = columnsOf(spec)._replace(byTopic=layoutOf(table, self.files) == TOPIC)
        elif had.decode != spec.decode:
            raise LakeRefused(
                f"the table {table} has payloads as {had.decode} and cannot go on with {spec.decode}: give it another "
                "name"
            )
        else:
            fields = added(table, had.fields, list(spec.fields), self.files)
            wanted = had._replace(fields=fields, metadata=had.metadata or spec.metadata)
        if had != wanted:
            writeGiven(table, wanted, had, self.files)

    def beginAt(self, offsets: Mapping[str, int]) -> list[str]:
        """Record that tables without a batch begin at these offsets, those of the checkpoint; return their names."""
        late = [
            name
            for name, publishing in self._tables.items()
            if name not in self.behind and readLedger(publishing.table, self.files) == Ledger()
        ]
        for name in late:
            table = self._tables[name].table
            with writing(table), exclusive(table, self.files):
                begin = {journal: Covered(nextOffset, nextOffset) for journal, nextOffset in offsets.items()}
                writeLedger(table, Ledger(journals=begin), self.files)
        return late

    def deadLetters(self) -> dict[str, int]:
        """Return the number of dead letters of each journal in all tables."""
        found: Counter[str] = Counter()
        for publishing in self._tables.values():
            for journal, covered in readLedger(publishing.table, self.files).journals.items():
                found[journal] += covered.dead
        return dict(found)

    def evolve(self, reports: TaskReports) -> bool:
        """Add the columns that tasks found; True if there were any, and the batch must be staged again."""
        evolved = False
        for name, found in reports.fields.items():
            # publish() fails for this table too, and continues without it.
            with suppress(CommitRefused):
                addColumns(self._tables[name].table, found, self.files)
                evolved = True
        return evolved

    def catchUp(self, number: int, start: Mapping[str, int]) -> int:
        """Add the records that tables lack before a batch that begins at these offsets; return the number of rows."""
        rows = 0

        def step(spec: TableSpec, publishing: BatchCommit) -> None:
            nonlocal rows
            rows += self._catchUp(spec, publishing, number, start)

        self._onEach(step)
        return rows

    def publish(self, number: int, reports: TaskReports) -> int:
        """Commit a batch to all tables and return its rows, 0 if it was committed before; raises LakeRefused."""
        rows = 0
        batch = BatchRange(number, reports.start, reports.end)

        def step(spec: TableSpec, publishing: BatchCommit) -> None:
            nonlocal rows
            staged = reports.staged.get(spec.name, [])
            try:
                rows += self._catchUp(spec, publishing, number, batch.start)
                if spec.name in reports.fields:
                    raise LeftBehind(f"the table {publishing.table} gets this batch later: its columns came too late")
            except (LeftBehind, CommitRefused):
                publishing.discard(staged)
                raise
            dead, reason = reports.dead.get(spec.name, Counter[str]()), reports.reasons.get(spec.name, "")
            if publishing.publish(batch, staged, reports.gaps, self.lossAllowed, dead, reason):
                rows += sum(each.rows for each in staged)

        self._onEach(step)
        return rows

    def _catchUp(self, spec: TableSpec, publishing: BatchCommit, number: int, start: Mapping[str, int]) -> int:
        """Add the records that a table lacks before a batch; return the number of rows. Raises LeftBehind, and
        LakeRefused.
        """
        table, rows = publishing.table, 0
        if spec.name in self.behind:
            with writing(table), exclusive(table, self.files):
                self._setColumns(spec, table)
        if self.missed is not None and readLedger(table, self.files).lacks(number, start):
            try:
                rows = self.missed(spec, publishing, number - 1, start)
            except PipelineError as error:
                why = str(error).replace("the option failOnDataLoss=false", "--allow-data-loss")
                raise LeftBehind(f"the table {table} has missed messages, which cannot be added: {why}") from error
        if self.behind.pop(spec.name, None) is not None:
            with writing(table), suppress(FileNotFoundError):
                self.files.removeOwn(table, BEHIND)
        return rows

    def reachedTogether(self) -> tuple[int, dict[str, int]]:
        """Return the number of the last batch of any table, -1 before the first, and up to where one of the tables has
        each journal: the others catch up.
        """
        ledgers = [readLedger(publishing.table, self.files) for publishing in self._tables.values()]
        offsets: dict[str, int] = {}
        for ledger in ledgers:
            for journalId, covered in ledger.journals.items():
                offsets[journalId] = max(offsets.get(journalId, 0), covered.next)
        return max(ledger.batch for ledger in ledgers), offsets

    def reached(self, end: Mapping[str, int]) -> dict[str, int]:
        """Return the offsets up to which all tables have the messages, at most these."""
        tables = [*(publishing.table for publishing in self._tables.values()), *self.beside]
        ledgers = [readLedger(table, self.files).journals for table in tables]
        return {
            journalId: min([nextOffset, *(had[journalId].next for had in ledgers if journalId in had)])
            for journalId, nextOffset in end.items()
        }

    def deadIn(self, number: int) -> Iterator[tuple[str, DeadLetters]]:
        """Yield the dead letters of a batch in each table that has some."""
        for name, publishing in self._tables.items():
            for found in readLedger(publishing.table, self.files).dead[-1:]:
                if found.batch == number:
                    yield name, found
