"""Follows the journals of a source with tables of the latest rows, without Spark.

A table's ledger says how far it has the records of each journal, so there is no checkpoint. A new table begins with the
first record that a journal has.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.files.schema import ALL_COLUMNS
from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.ingest_driver import TableIngest
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.file_names import BY_KEY
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.table_spec import TableSpec, readSpec
from fleximq.pipeline.lake.upserts.state_table import Advance, Piece, StateTable
from fleximq.pipeline.reader.journals import Journal, Journals, records
from fleximq.pipeline.reader.offsets import checked
from fleximq.pipeline.reader.source_options import SourceOptions

#: About the bytes of a journal that are read at once.
SLICE_BYTES = 32 << 20


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
        self._merges: dict[str, StateTable] = {}

    def __enter__(self) -> "StateIngest":
        for spec in self.specs:
            checkKey(f"{self._lake}/{spec.name}", spec, self._files)
        self._tables.__enter__()
        self._merges = {spec.name: StateTable(f"{self._lake}/{spec.name}", spec, self._files) for spec in self.specs}
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
    ) -> Iterator[Piece]:
        """Yield the records of a range in slices; the first names the records that retention has removed."""
        fail = self._options.failOnDataLoss
        begin = min(checked(journalId, start, journal.bounds(), fail), end)
        if begin > start:
            yield Piece((), begin, [Missing(start, begin, "retention has removed them", True)])
        parts = journals.partitions(journal, begin, end, self._options, selection) if begin < end else []
        for part in parts:
            missing: list[Missing] = []
            yield Piece(records(part, ALL_COLUMNS, selection, fail, missing), begin, missing)
        yield Piece((), end, [])


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
