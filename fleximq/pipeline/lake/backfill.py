"""Fills a table with messages from before its first batch, while its ingest continues.

Pieces of a journal are added from the latest to the earliest, each in one change that lowers the first offset of the
table's ledger. So the table always has one range of each journal, and a run that was killed is repeated from there.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.files.selection import Topics
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.backfill_sources import BackfillSource, Piece
from fleximq.pipeline.lake.batch_commit import exclusive, writing
from fleximq.pipeline.lake.ingest_driver import TaskReports, addColumns
from fleximq.pipeline.lake.ingest_task import ofTopics, stage
from fleximq.pipeline.lake.table.file_names import OWN
from fleximq.pipeline.lake.table.ledger import Gap, readLedger
from fleximq.pipeline.lake.table.lock import backfillLock
from fleximq.pipeline.lake.table.table_spec import TableSpec
from fleximq.pipeline.lake.table_change import TableChange, commitChange

STAGED = "backfilling"
_ALL = Topics()
#: After an unclean stop, a journal continues its offsets at the next multiple of this.
_LEAP = 1_000_000_000


class Filled(NamedTuple):
    """A piece that was added to a table: it now begins at the offset ``first`` of ``journal``."""

    journal: str
    first: int
    rows: int
    dead: int


def backfill(
    lake: str,
    spec: TableSpec,
    sources: Sequence[BackfillSource],
    lossAllowed: bool,
    only: Topics = _ALL,
    files: Files | None = None,
) -> Iterator[Filled]:
    """Add what the sources have from before a table's first offsets; yield each piece after it was added. Raises
    LakeRefused if the table cannot be written, another run fills it, or records are in no source.

    :param only: a further selection of topics.
    """
    files = files or Files()
    table = f"{lake}/{spec.name}"
    aside = f"{table}/{OWN}/{STAGED}"
    with backfillLock(table, files), writing(table):
        with exclusive(table, files):
            # A change that was interrupted is complete now, and needs none of these.
            shutil.rmtree(aside, ignore_errors=True)
        files.makeFolder(aside)
        journals = readLedger(table, files).journals
        if not journals:
            raise LakeRefused(f"the table {table} has no batch yet, so it is unknown where it begins: start its ingest")
        for journal, covered in sorted(journals.items()):
            first = covered.first
            while found := [piece for each in sources if (piece := each.before(journal, first)) is not None]:
                # Of sources with the same end the first one is preferred.
                piece = max(found, key=lambda piece: piece.end)
                gaps = _hole(table, journal, piece.end, first, lossAllowed)
                yield _add(lake, spec, journal, piece, gaps, only, files)
                first = piece.start
        shutil.rmtree(aside)


def _hole(table: str, journal: str, end: int, first: int, lossAllowed: bool) -> list[Gap]:
    """Return the gap between a piece and the table, if any."""
    if end >= first or first % _LEAP == 0:
        return []
    if not lossAllowed:
        raise LakeRefused(
            f"the table {table} cannot be filled before offset {first} of journal {journal}: offsets {end} to "
            f"{first - 1} are in no source; --allow-data-loss makes a gap of them"
        )
    return [Gap(end, first, "they are in no source of the backfill", True)]


def _add(lake: str, spec: TableSpec, journal: str, piece: Piece, gaps: list[Gap], only: Topics, files: Files) -> Filled:
    table = f"{lake}/{spec.name}"
    while True:
        missing: list[Missing] = []
        batches = (ofTopics(batch, only) for batch in piece.read(missing))
        told = TaskReports.of(stage(lake, [spec], journal, 0, batches, missing, STAGED))
        if not told.fields:
            break
        addColumns(table, told.fields[spec.name], files)
    made = told.staged.get(spec.name, [])
    rows = sum(each.rows for each in made)
    dead: Mapping[str, int] = told.dead.get(spec.name, {})
    gaps = [*gaps, *told.gaps.get(journal, ())]
    change = TableChange(STAGED, made, (), {journal: piece.start}, {journal: rows}, {journal: gaps}, dead)
    with exclusive(table, files):
        commitChange(table, change, files)
    return Filled(journal, piece.start, rows, sum(dead.values()))
