"""The sources of a backfill: a journal, sealed history, or another table of the lake.

Each gives the records of a journal before an offset as a piece, the latest first.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused, PipelineError
from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.ingest_task import undead
from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
from fleximq.pipeline.lake.sealed_segments import sealedFiles
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.table_spec import TableSpec, readSpec
from fleximq.pipeline.reader.journals import Journals, records
from fleximq.pipeline.reader.source_options import SourceOptions

#: About the bytes of a journal, and the rows of a table, in a piece.
PIECE_BYTES, PIECE_ROWS = 256 << 20, 1_000_000
Batches = Iterator[pa.RecordBatch]


class Piece(NamedTuple):
    """Records of a journal with offsets from ``start`` up to before ``end``. ``read`` yields them, ordered by offset
    within a topic and day, and adds to its argument what is missing.
    """

    start: int
    end: int
    read: Callable[[list[Missing]], Batches]


class BackfillSource(ABC):
    """One source; ``name`` is for sentences."""

    name = ""

    @abstractmethod
    def before(self, journal: str, offset: int) -> Piece | None:
        """Return the last piece of a journal that begins before an offset, and ends there or earlier, if any. Raises
        PipelineError if the source cannot be read.
        """


class JournalSource(BackfillSource):
    """The journals that options of the source ``fleximq`` name."""

    name = "the journal"

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._journals = Journals(options)

    def before(self, journal: str, offset: int) -> Piece | None:
        found = self._journals.find().get(journal)
        first = offset if found is None else found.bounds().first
        if found is None or first >= offset:
            return None
        selection = Selection(self._options.topics)
        # Planned again for each piece, since retention goes on.
        plan = self._journals.partitions(found, first, offset, self._options, selection)
        start = plan[-1].slice.pieces[0].first if len(plan) > 1 else first

        def read(missing: list[Missing]) -> Batches:
            for part in plan[-1:]:
                yield from records(part, ALL_COLUMNS, selection, self._options.failOnDataLoss, missing)
            if found.bounds().first > start:
                raise PipelineError(
                    f"retention has removed records of journal {journal} while they were read: run the job again"
                )

        return Piece(start, offset, read)


class SealedSource(BackfillSource):
    """A folder into which ``seal`` writes."""

    name = "the sealed history"

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def before(self, journal: str, offset: int) -> Piece | None:
        files = [file for file in sealedFiles(self._folder, journal) if file.first < offset]
        if not files:
            return None
        path, first, next = files[-1]
        folder, name = os.path.split(path)

        def read(missing: list[Missing]) -> Batches:
            try:
                yield from _within(rowGroups(folder, name, ""), journal, first, offset)
            except OSError as error:
                raise PipelineError(f"{path} cannot be read: {error}") from error

        return Piece(first, min(next, offset), read)


class TableSource(BackfillSource):
    """Another table of the lake; raises LakeRefused if it lacks topics of the table that is filled."""

    def __init__(self, lake: str, name: str, wanted: TableSpec) -> None:
        self.name = f"the table {name}"
        self._table = f"{lake}/{name}"
        topics = readSpec(self._table).topics
        # The pattern for all topics leaves out those that begin with $.
        has = all("#" in topics and not each.startswith("$") or each in topics for each in wanted.topics)
        if topics and not (wanted.topics and has):
            raise LakeRefused(
                f"the table {name} has only the topics {', '.join(topics)}, and {wanted.name} has others as well"
            )

    def before(self, journal: str, offset: int) -> Piece | None:
        had = readLedger(self._table).journals.get(journal)
        if had is None or had.first >= offset:
            return None
        end = min(had.next, offset)
        rows = max(1, had.rows)
        start = max(had.first, end - max(1, PIECE_ROWS * (had.next - had.first) // rows))

        def read(missing: list[Missing]) -> Batches:
            missing += [
                Missing(max(gap.first, start), min(gap.next, end), gap.why, gap.lost)
                for gap in had.gaps
                if gap.first < end and gap.next > start
            ]
            if had.expired:
                missing.append(Missing(start, end, f"days of {self.name} have expired", False))
            yield from self._rows(journal, start, end)

        return Piece(start, end, read)

    def _rows(self, journal: str, start: int, end: int) -> Batches:
        try:
            for path, topic in sorted(liveFiles(self._table), key=lambda each: os.path.basename(each[0])):
                if self._mayHave(path, journal, start, end):
                    yield from _within(rowGroups(self._table, path, topic), journal, start, end)
        except OSError as error:
            raise LakeRefused(f"{self.name} changed while it was read: {error}; run the job again") from error

    def _mayHave(self, path: str, journal: str, start: int, end: int) -> bool:
        """Tell by the statistics whether a file may have such rows."""
        found = pq.read_metadata(f"{self._table}/{path}")
        place = found.schema.to_arrow_schema().get_field_index("offset")
        return any(
            _overlaps(found.row_group(each).column(place).statistics, start, end)
            for each in range(found.num_row_groups)
        )


def _overlaps(statistics: pq.Statistics | None, start: int, end: int) -> bool:
    return statistics is None or not statistics.has_min_max or (statistics.min < end and statistics.max >= start)


def _within(groups: Iterator[pa.Table], journal: str, start: int, end: int) -> Batches:
    """Yield the rows of a journal with these offsets, with the columns of the source."""
    for rows in groups:
        offsets = rows.column("offset")
        inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
        rows = rows.filter(pc.and_(inside, pc.equal(rows.column("journal"), journal)))
        if "reason" in rows.column_names:
            rows = undead(rows)
        yield from aligned(rows, schemaOf(ALL_COLUMNS)).combine_chunks().to_batches()
