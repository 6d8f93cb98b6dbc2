"""Adds the records that a table missed while other tables of its ingest went on, as one batch of its own."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from fleximq.pipeline.files.schema import ALL_COLUMNS
from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.batch_commit import BatchCommit
from fleximq.pipeline.lake.column_changes import addColumns
from fleximq.pipeline.lake.ingest_task import stage
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.table_log import BatchRange
from fleximq.pipeline.lake.table.table_spec import TableSpec
from fleximq.pipeline.lake.task_reports import TaskReports
from fleximq.pipeline.reader.journals import Journal, Journals, records
from fleximq.pipeline.reader.offsets import checked, reportLoss
from fleximq.pipeline.reader.source_options import SourceOptions


class CatchUp:
    """Reads missed records from the source of an ingest, without Spark."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._selection = Selection(options.topics)

    def add(self, spec: TableSpec, publishing: BatchCommit, number: int, end: Mapping[str, int]) -> int:
        """Add the records from a table's last batch up to these offsets as the batch of a number that it has missed;
        return how many. Other staged files stay. Raises PipelineError if records are not there any more.
        """
        had = readLedger(publishing.table).journals
        journals = Journals(self._options)
        try:
            found = journals.covering({id: (had[id].next if id in had else until, until) for id, until in end.items()})
            start = {id: had[id].next if id in had else _first(found.get(id), until) for id, until in end.items()}
            while True:
                lines = (
                    self._lines(spec, publishing, journals, found.get(id), id, number, start[id], until)
                    for id, until in end.items()
                )
                told = TaskReports.of(chain.from_iterable(lines))
                if not told.fields:
                    break
                addColumns(publishing.table, told.fields[spec.name])
        finally:
            journals.close()
        staged, batch = told.staged.get(spec.name, []), BatchRange(number, start, end)
        dead, reason = told.dead.get(spec.name, Counter[str]()), told.reasons.get(spec.name, "")
        publishing.publish(batch, staged, told.gaps, not self._options.failOnDataLoss, dead, reason, keepsStaged=True)
        return sum(each.rows for each in staged)

    def _lines(
        self,
        spec: TableSpec,
        publishing: BatchCommit,
        journals: Journals,
        journal: Journal | None,
        id: str,
        number: int,
        start: int,
        end: int,
    ) -> Iterator[str]:
        """Stage the records of a journal between two offsets; yield the report of a task."""
        fail, begin = self._options.failOnDataLoss, end
        if start >= end:
            return
        if journal is None:
            reportLoss(f"journal {id} is not there any more, and with it the offsets {start} to {end - 1}", fail)
        else:
            begin = min(checked(id, start, journal.bounds(), fail), end)
        if begin > start:
            yield json.dumps({"gaps": {id: [(start, begin, "retention has removed them", True)]}})
        missing: list[Missing] = []
        if journal is not None and begin < end:
            parts = journals.partitions(journal, begin, end, self._options, self._selection)
            batches = (records(part, ALL_COLUMNS, self._selection, fail, missing) for part in parts)
            lake = publishing.table.removesuffix(f"/{spec.name}")
            yield from stage(lake, [spec], id, number, chain.from_iterable(batches), missing)


def _first(journal: Journal | None, end: int) -> int:
    """Return where a journal begins that the table has nothing of yet."""
    return end if journal is None else min(journal.bounds().first, end)
