"""Fills a table with messages from before its first batch, while its ingest continues.

Pieces of a journal are added from the latest to the earliest, each in a change that lowers the ledger's first offset.
So the table always has one range of each journal, and a run that was killed is repeated from there.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused, PipelineError
from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
from fleximq.pipeline.files.selection import Selection, Topics
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.batch_commit import exclusive, writing
from fleximq.pipeline.lake.column_changes import addColumns
from fleximq.pipeline.lake.ingest_task import ofTopics, stage, undead
from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
from fleximq.pipeline.lake.sealed_segments import journalsIn, sealedFiles
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.file_names import fileName
from fleximq.pipeline.lake.table.format import checkAllRows
from fleximq.pipeline.lake.table.ledger import Gap, readLedger
from fleximq.pipeline.lake.table.lock import backfillLock
from fleximq.pipeline.lake.table.table_spec import TableSpec, readSpec
from fleximq.pipeline.lake.table_change import TableChange, commitChange
from fleximq.pipeline.lake.task_reports import TaskReports
from fleximq.pipeline.reader.journals import Journals, records
from fleximq.pipeline.reader.source_options import SourceOptions

#: About the bytes of a journal, and the rows of a table, in a piece.
PIECE_BYTES, PIECE_ROWS = 256 << 20, 1_000_000
STAGED = "backfilling"
_ALL = Topics()
#: After an unclean stop, a journal continues its offsets at the next multiple of this.
_LEAP = 1_000_000_000
Batches = Iterator[pa.RecordBatch]


class Piece(NamedTuple):
    """Records of a journal from ``start`` up to before ``end``. ``read`` yields them, ordered by offset within a topic
    and day, and adds missing ranges to its argument.
    """

    start: int
    end: int
    read: Callable[[list[Missing]], Batches]


#: Takes a journal and an offset; returns the last piece that begins before the offset, and ends there or earlier, if
#: any. Raises PipelineError if the source cannot be read.
Source = Callable[[str, int], Piece | None]


class Filled(NamedTuple):
    """A piece that was added to a table: it now begins at the offset ``first`` of ``journal``."""

    journal: str
    first: int
    rows: int
    dead: int


def backfill(
    lake: str,
    spec: TableSpec,
    sources: Sequence[Source],
    lossAllowed: bool,
    only: Topics = _ALL,
    files: LakeFiles = FILES,
) -> Iterator[Filled]:
    """Add records of topics in ``only`` from before a table's first offsets; yield each piece that was added.
    Raises LakeRefused if the table cannot be written, another run fills it, or records are in no source.
    """
    table = f"{lake}/{spec.name}"
    checkAllRows(table, "backfill", files)
    with backfillLock(table, files), writing(table):
        aside = f"{table}/{OWN}/{files.aside(table, STAGED, 'backfill')}"
        with exclusive(table, files):
            # A change that was interrupted is complete now, and needs none of these.
            files.removeTree(aside)
            files.removeFormer(table, STAGED, "backfill")
        files.makeFolder(aside)
        journals = readLedger(table, files).journals
        if not journals:
            raise LakeRefused(f"the table {table} has no batch yet, so it is unknown where it begins: start its ingest")
        for journal, covered in sorted(journals.items()):
            first = covered.first
            while found := [piece for source in sources if (piece := source(journal, first)) is not None]:
                # Of sources with the same end the first one is preferred.
                piece = max(found, key=lambda piece: piece.end)
                gaps = []
                if piece.end < first and first % _LEAP:
                    if not lossAllowed:
                        raise LakeRefused(
                            f"the table {table} cannot be filled before offset {first} of journal {journal}: offsets "
                            f"{piece.end} to {first - 1} are in no source; --allow-data-loss makes a gap of them"
                        )
                    gaps.append(Gap(piece.end, first, "they are in no source of the backfill", True))
                yield _add(lake, spec, journal, piece, gaps, only, files)
                first = piece.start
        files.removeTree(aside)


def _add(
    lake: str, spec: TableSpec, journal: str, piece: Piece, gaps: list[Gap], only: Topics, files: LakeFiles
) -> Filled:
    table = f"{lake}/{spec.name}"
    folder = files.aside(table, STAGED, "backfill")
    while True:
        missing: list[Missing] = []
        batches = (ofTopics(batch, only) for batch in piece.read(missing))
        told = TaskReports.of(stage(lake, [spec], journal, 0, batches, missing, folder, files))
        if not told.fields:
            break
        addColumns(table, told.fields[spec.name], files)
    made = told.staged.get(spec.name, [])
    rows = sum(each.rows for each in made)
    dead = dict(told.dead.get(spec.name, {}))
    gaps = [*gaps, *told.gaps.get(journal, ())]
    change = TableChange(folder, made, (), {journal: piece.start}, {journal: rows}, {journal: gaps}, dead)
    with exclusive(table, files):
        commitChange(table, change, files)
    return Filled(journal, piece.start, rows, sum(dead.values()))


def journalSource(options: SourceOptions) -> Source:
    """Return the journals that options of the source ``fleximq`` name."""
    journals = Journals(options)
    selection = Selection(options.topics)

    def before(journal: str, offset: int) -> Piece | None:
        found = journals.find().get(journal)
        first = offset if found is None else found.bounds().first
        if found is None or first >= offset:
            return None
        # Planned again for each piece, since retention continues.
        plan = journals.partitions(found, first, offset, options, selection)
        start = plan[-1].slice.pieces[0].first if len(plan) > 1 else first

        def read(missing: list[Missing]) -> Batches:
            for part in plan[-1:]:
                yield from records(part, ALL_COLUMNS, selection, options.failOnDataLoss, missing)
            if found.bounds().first > start:
                raise PipelineError(
                    f"retention has removed records of journal {journal} while they were read: run the job again"
                )

        return Piece(start, offset, read)

    return before


def sealedSource(folder: str) -> Source:
    """Return a folder into which ``seal`` writes; raises PipelineError if it cannot be read."""
    journalsIn(folder)

    def before(journal: str, offset: int) -> Piece | None:
        files = [file for file in sealedFiles(folder, journal) if file.first < offset]
        if not files:
            return None
        path, first, nextOffset = files[-1]

        def read(missing: list[Missing]) -> Batches:
            try:
                yield from _within(rowGroups(*os.path.split(path), ""), journal, first, offset)
            except OSError as error:
                raise PipelineError(f"{path} cannot be read: {error}") from error

        return Piece(first, min(nextOffset, offset), read)

    return before


def tableSource(lake: str, name: str, wanted: TableSpec, files: LakeFiles = FILES) -> Source:
    """Return another table of the lake; raises LakeRefused if it lacks topics of the table that is filled."""
    table = f"{lake}/{fileName(name)}"
    checkAllRows(table, "backfill --from", files)
    topics = readSpec(table, files).topics
    # The pattern for all topics leaves out those that begin with $.
    has = all("#" in topics and not each.startswith("$") or each in topics for each in wanted.topics)
    if topics and not (wanted.topics and has):
        raise LakeRefused(
            f"the table {name} has only the topics {', '.join(topics)}, and {wanted.name} has others as well"
        )

    def before(journal: str, offset: int) -> Piece | None:
        had = readLedger(table, files).journals.get(journal)
        if had is None or had.first >= offset:
            return None
        end = min(had.next, offset)
        start = max(had.first, end - max(1, PIECE_ROWS * (had.next - had.first) // max(1, had.rows)))

        def read(missing: list[Missing]) -> Batches:
            missing += [
                Missing(max(gap.first, start), min(gap.next, end), gap.why, gap.lost)
                for gap in had.gaps
                if gap.first < end and gap.next > start
            ]
            if had.expired:
                missing.append(Missing(start, end, f"days of the table {name} have expired", False))
            try:
                for path, topic in sorted(liveFiles(table, files), key=lambda each: os.path.basename(each[0])):
                    if _mayHave(f"{table}/{path}", start, end, files):
                        yield from _within(rowGroups(table, path, topic, files), journal, start, end)
            except OSError as error:
                raise LakeRefused(f"the table {name} changed while it was read: {error}; run the job again") from error

        return Piece(start, end, read)

    return before


def _mayHave(path: str, start: int, end: int, files: LakeFiles) -> bool:
    """Tell by the statistics whether a file may have rows with these offsets."""
    found = pq.read_metadata(files.input(path))
    place = found.schema.to_arrow_schema().get_field_index("offset")
    statistics = [found.row_group(number).column(place).statistics for number in range(found.num_row_groups)]
    return any(each is None or not each.has_min_max or (each.min < end and each.max >= start) for each in statistics)


def _within(groups: Iterator[pa.Table], journal: str, start: int, end: int) -> Batches:
    """Yield the rows of a journal with these offsets, with the columns of the source."""
    for rows in groups:
        offsets = rows.column("offset")
        inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
        rows = rows.filter(pc.and_(inside, pc.equal(rows.column("journal"), journal)))
        if "reason" in rows.column_names:
            rows = undead(rows)
        yield from aligned(rows, schemaOf(ALL_COLUMNS)).combine_chunks().to_batches()
