"""Stages files again that a table's log refuses: without the columns that the log cannot have, and with the refused
rows as dead letters. The value of each row stays.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused, RowsRefused
from fleximq.pipeline.lake.live_files import rowGroups
from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.column_names import distinct
from fleximq.pipeline.lake.table.columns import BASE, requiredColumns, writeColumns
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.file_names import BY_KEY
from fleximq.pipeline.lake.table.format import dataFolder, formatOf, layoutOf
from fleximq.pipeline.lake.table.halving import refusedFor
from fleximq.pipeline.lake.table.parquet_writer import StagingWriter, deadIn, spansOf
from fleximq.pipeline.lake.table.table_log import TableFile, TableLog
from fleximq.pipeline.lake.table.table_spec import DEAD

#: The folder of files that are only offered to the log as a trial.
_ASIDE = "trial"


class Mended(NamedTuple):
    """The moves of a mended record of intent, and the dead letters to add to it, with the reason of the first."""

    moves: list[list[Any]]
    dead: Mapping[str, int]
    reason: str


def dropColumns(table: str, log: TableLog, files: LakeFiles) -> list[str]:
    """Remove columns from a table's own schema that its log cannot have; return their names."""
    columns = requiredColumns(table, files)
    found = distinct(formatOf(table, files)["format"], columns, log.columns())
    if found.leftOut:
        writeColumns(table, found.columns, files)
    return found.leftOut


def withoutRefused(
    table: str, log: TableLog, folder: str, moves: Sequence[Sequence[Any]], files: LakeFiles
) -> Mended | None:
    """Replace the moves of refused files, which are at their final paths, by those of new files in ``folder`` with the
    same rows; None if no file or column is refused. Raises LakeRefused if the cause is in no row, and RowsRefused for a
    table of the latest rows.
    """
    dropped = dropColumns(table, log, files)
    kept, dead, reason = [], Counter[str](), ""
    for move in moves:
        placed = TableFile(*move[1:])
        why = log.refusal(placed)
        if why is None:
            kept.append(list(move))
            continue
        if layoutOf(table, files) == BY_KEY:
            # The file is without the older rows of the keys, which have to stay.
            raise RowsRefused(f"the table {table} cannot have {placed.path}: {why}")
        apart = _Apart(table, log, placed, files)
        kept += apart.staged(folder)
        dead.update(apart.dead)
        reason = reason or apart.reason
    isSame = not dropped and kept == [list(move) for move in moves]
    return None if isSame else Mended(kept, dead, reason)


class _Apart:
    """One refused file. ``dead`` are its new dead letters by journal, with the ``reason`` of the first."""

    def __init__(self, table: str, log: TableLog, file: TableFile, files: LakeFiles) -> None:
        self._table, self._log, self._file, self._files = table, log, file, files
        self._schema = requiredColumns(table, files).schema
        self._layout, self._within = layoutOf(table, files), dataFolder(table, files)
        self._aside = f"{table}/{OWN}/{_ASIDE}"
        self._batch = spansOf(pq.read_metadata(files.input(f"{table}/{file.path}")).metadata)[1][0].batch
        self.dead = Counter[str]()
        self.reason = ""

    def staged(self, folder: str) -> list[list[Any]]:
        """Stage the rows again, and return the moves of the new files."""
        writer = self._writer(f"{self._table}/{OWN}/{folder}")
        try:
            for group in rowGroups(self._table, self._file.path, self._file.topic, self._files):
                for rows in aligned(group, self._schema).combine_chunks().to_batches():
                    writer.add(self._mended(rows))
        finally:
            self._files.removeTree(self._aside)
        return [[each.path, *each.placed(self._layout, self._within)] for each in writer.close()]

    def _writer(self, folder: str) -> StagingWriter:
        return StagingWriter(folder, self._schema, self._file.journal, self._batch, self._layout, self._files)

    def _mended(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of which the refused ones are dead letters."""
        if (found := self._refusal(deadLetters(rows.slice(0, 1), [0], ""))) is not None:
            raise LakeRefused(f"the table {self._table} cannot have {self._file.path}: {found}")
        guilty, why = refusedFor(range(rows.num_rows), lambda some: self._refusal(rows.slice(some[0], len(some))))
        if not guilty:
            return rows
        self.reason = self.reason or f"the table cannot take it: {why}"
        made = deadLetters(rows, guilty, self.reason)
        self.dead.update(deadIn(made))
        self.dead.subtract(deadIn(rows))
        return made

    def _refusal(self, rows: pa.RecordBatch) -> str | None:
        """Return why the log refuses a file with these rows, None if it takes it."""
        folder = f"{OWN}/{_ASIDE}/date={self._file.date}"
        self._files.makeFolders(f"{self._table}/{folder}")
        writer = self._writer(f"{self._table}/{folder}")
        writer.add(rows)
        made = [each._replace(path=f"{folder}/{each.path}") for each in writer.close()]
        found = [why for each in made if (why := self._log.refusal(each)) is not None]
        writer.abandon()
        return found[0] if found else None


def deadLetters(rows: pa.RecordBatch, places: Sequence[int], reason: str) -> pa.RecordBatch:
    """Return rows of which those at some places are dead letters."""
    isDead = np.zeros(rows.num_rows, bool)
    isDead[list(places)] = True
    dead = pa.array(isDead)
    columns = {name: rows.column(name) for name in rows.schema.names}
    for name in rows.schema.names[len(BASE) :]:
        columns[name] = pc.if_else(dead, pa.nulls(rows.num_rows, columns[name].type), columns[name])
    topic = columns["topic"]
    named = pc.if_else(pc.ends_with(topic, DEAD), topic, pc.binary_join_element_wise(topic, pa.scalar(DEAD), ""))
    columns |= {
        "topic": pc.if_else(dead, named, topic),
        "reason": pc.if_else(dead, pa.scalar(reason), columns["reason"]),
    }
    return pa.record_batch(list(columns.values()), schema=rows.schema)
