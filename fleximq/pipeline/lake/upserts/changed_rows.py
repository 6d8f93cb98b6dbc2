"""Decodes records into the changes of a table of the latest rows: rows with their keys, removals, and dead letters."""

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.lake.column_changes import addColumns
from fleximq.pipeline.lake.ingest_task import inferredFields, ofTopics, rowDecoder
from fleximq.pipeline.lake.refused_files import deadLetters
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.halving import refusedFor
from fleximq.pipeline.lake.table.table_spec import DEAD, MESSAGE_COLUMNS, TableSpec
from fleximq.pipeline.lake.upserts.bucket_merge import Changes
from fleximq.pipeline.lake.upserts.row_keys import MESSAGE_KEY, keysOf, tombstonesIn


class ChangedRows:
    """Collects the records of one journal. ``taken`` is the number of records, ``bytes`` those of their rows, and
    ``reason`` is that of the first dead letter.
    """

    def __init__(self, table: str, spec: TableSpec, journal: str, files: LakeFiles = FILES) -> None:
        self._table, self._spec, self._journal, self._files = table, spec, journal, files
        self._columns = requiredColumns(table, files)
        self._decode = rowDecoder(spec, self._columns)
        self._keys: list[pa.BinaryArray] = []
        self._rows: list[pa.Table] = []
        self._removals: list[np.ndarray] = []
        self._dead: list[pa.Table] = []
        self.taken = self.bytes = 0
        self.reason = ""

    @property
    def column(self) -> str:
        """The column that has the keys."""
        return self._spec.upsert

    @property
    def schema(self) -> pa.Schema:
        """The schema of the table's files."""
        return self._columns.schema

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records in the order of their offsets; a new field becomes a column of the table."""
        records = ofTopics(batch, self._spec.wanted)
        if not records.num_rows:
            return
        removals = tombstonesIn(records, self._spec.decode)
        self._evolve(records.filter(pc.invert(removals)))
        rows, errors = self._decode(records)
        if self.column in MESSAGE_COLUMNS:
            keys = keysOf(records, self.column)
        else:
            keys = pc.if_else(removals, keysOf(records, MESSAGE_KEY), keysOf(rows, self.column))
        self.taken += records.num_rows
        self.bytes += rows.nbytes
        isFaulty = pc.and_not(errors.is_valid(), removals) if errors is not None else pa.repeat(False, len(keys))
        isDead = pc.or_(isFaulty, keys.is_null())
        if pc.any(isDead).as_py():
            self._bury(records.filter(isDead), rows.filter(isDead), removals.filter(isDead))
            fits = pc.invert(isDead)
            rows, keys, removals = rows.filter(fits), keys.filter(fits), removals.filter(fits)
        self._keys.append(keys)
        self._rows.append(pa.table(rows))
        self._removals.append(removals.to_numpy(zero_copy_only=False))

    def _evolve(self, records: pa.RecordBatch) -> None:
        if not self._spec.isInferred or not records.num_rows:
            return
        found = inferredFields(self._spec, self._columns, records, {})
        if found != self._columns.fields:
            addColumns(self._table, [found], self._files)
            self._columns = requiredColumns(self._table, self._files)
            self._decode = rowDecoder(self._spec, self._columns)

    def _bury(self, records: pa.RecordBatch, rows: pa.RecordBatch, removals: pa.BooleanArray) -> None:
        """Make dead letters of rows: those that do not fit the columns, and those without a key."""
        missing = f"the message has no {self.column}"
        if self.column not in MESSAGE_COLUMNS:
            missing = f"the payload has no single value {self.column!r}, by which rows replace others"
        emptied = "an empty message removes the row of its key, but has none"
        reasons = pc.if_else(removals, emptied, pc.coalesce(rows.column("reason"), pa.scalar(missing)))
        topics = records.column("topic")
        named = pc.if_else(pc.ends_with(topics, DEAD), topics, pc.binary_join_element_wise(topics, DEAD, ""))
        columns = {name: rows.column(name) for name in rows.schema.names} | {"topic": named, "reason": reasons}
        self._dead.append(pa.table(list(columns.values()), schema=rows.schema))
        self.reason = self.reason or reasons[0].as_py()

    def buryRefused(self, refusal: Callable[[pa.Table], str | None]) -> int:
        """Make dead letters of the rows that are refused, and return their number; ``refusal`` returns why some are."""
        rows, keys = (
            self._together(self._rows).combine_chunks(),
            pa.concat_arrays([*self._keys, pa.array([], pa.binary())]),
        )
        removals = np.concatenate([*self._removals, np.zeros(0, bool)])
        guilty, why = refusedFor(np.flatnonzero(~removals).tolist(), lambda some: refusal(rows.take(pa.array(some))))
        if guilty:
            isGuilty = np.zeros(len(removals), bool)
            isGuilty[guilty] = True
            reason = f"the table cannot take it: {why}"
            refusedRows = rows.take(pa.array(guilty)).combine_chunks().to_batches()
            self._dead += [pa.table(deadLetters(each, range(each.num_rows), reason)) for each in refusedRows]
            self.reason = self.reason or reason
            fits = pa.array(~isGuilty)
            self._rows, self._keys, self._removals = [rows.filter(fits)], [keys.filter(fits)], [removals[~isGuilty]]
        return len(guilty)

    def changes(self) -> Changes:
        """Return the latest change of each key."""
        keys = pa.concat_arrays(self._keys) if self._keys else pa.array([], pa.binary())
        removals = np.concatenate([*self._removals, np.zeros(0, bool)])
        return Changes.of(self._journal, keys, self._together(self._rows), removals)

    def dead(self) -> pa.Table:
        """Return the dead letters."""
        return self._together(self._dead)

    def _together(self, parts: Iterable[pa.Table]) -> pa.Table:
        # Columns may have been added since the first ones.
        return pa.concat_tables([self.schema.empty_table(), *(aligned(each, self.schema) for each in parts)])
