"""Adds the records that a table lacks to it as one batch, after its ingest has continued with other tables only."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain

from fleximq.pipeline.files.schema import ALL_COLUMNS
from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.batch_commit import BatchCommit
from fleximq.pipeline.lake.column_changes import addColumns
from fleximq.pipeline.lake.ingest_task import stage
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.table_log import BatchRange
from fleximq.pipeline.lake.table.table_spec import TableSpec
from fleximq.pipeline.lake.task_reports import TaskReports
from fleximq.pipeline.reader.journals import Journal, Journals, records
from fleximq.pipeline.reader.offsets import checked, reportLoss
from fleximq.pipeline.reader.source_options import SourceOptions


class CatchUp:
    """Reads the records that a table lacks from the source of its ingest, without Spark."""

    def __init__(self, options: SourceOptions, files: LakeFiles = FILES) -> None:
        self._files = files
        self._options = options
        self._selection = Selection(options.topics)

    def add(self, spec: TableSpec, publishing: BatchCommit, number: int, end: Mapping[str, int]) -> int:
        """Add the records after a table's last batch and before these offsets as the batch of this number; return the
        number of rows. Other staged files stay. Raises PipelineError if the source has lost records.
        """
        had = {
            journalId: covered.next for journalId, covered in readLedger(publishing.table, self._files).journals.items()
        }
        with closing(Journals(self._options)) as journals:
            found = journals.covering(
                {journalId: (had.get(journalId, until), until) for journalId, until in end.items()}
            )
            start = {
                journalId: had[journalId] if journalId in had else _first(found.get(journalId), until)
                for journalId, until in end.items()
            }
            batch = BatchRange(number, start, end)
            while True:
                lines = (
                    self._lines(spec, publishing.table, batch, journalId, journals, found.get(journalId))
                    for journalId in end
                )
                told = TaskReports.of(chain.from_iterable(lines))
                if not told.fields:
                    break
                addColumns(publishing.table, told.fields[spec.name], self._files)
        staged = told.staged.get(spec.name, [])
        dead, reason = told.dead.get(spec.name, Counter[str]()), told.reasons.get(spec.name, "")
        publishing.publish(batch, staged, told.gaps, not self._options.failOnDataLoss, dead, reason, keepsStaged=True)
        return sum(each.rows for each in staged)

    def _lines(
        self,
        spec: TableSpec,
        table: str,
        batch: BatchRange,
        journalId: str,
        journals: Journals,
        journal: Journal | None,
    ) -> Iterator[str]:
        """Stage a batch's records of a journal, None if the source does not have it; yield the lines of a report."""
        start, end = batch.start[journalId], batch.end[journalId]
        fail, begin = self._options.failOnDataLoss, end
        if start >= end:
            return
        if journal is None:
            reportLoss(f"journal {journalId} is not there any more, and with it the offsets {start} to {end - 1}", fail)
        else:
            begin = min(checked(journalId, start, journal.bounds(), fail), end)
        if begin > start:
            yield json.dumps({"gaps": {journalId: [(start, begin, "retention has removed them", True)]}})
        missing: list[Missing] = []
        if journal is not None and begin < end:
            parts = journals.partitions(journal, begin, end, self._options, self._selection)
            rows = chain.from_iterable(records(part, ALL_COLUMNS, self._selection, fail, missing) for part in parts)
            yield from stage(os.path.dirname(table), [spec], journalId, batch.number, rows, missing, files=self._files)


def _first(journal: Journal | None, end: int) -> int:
    """Return the first offset of a journal that is new to the table, at most ``end``."""
    return end if journal is None else min(journal.bounds().first, end)
