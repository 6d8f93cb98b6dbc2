"""Task side of an ingest: the records of a slice become staged files of each table. No row passes through Java.

A task reports to the driver in lines of JSON: the staged files, missing records, and columns of payloads that the table
lacks. If a table needs more columns, it stages no file: the driver adds the columns and repeats the batch.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.batch_commit import STAGED, writing
from fleximq.pipeline.lake.table.columns import BASE, TableColumns, readColumns
from fleximq.pipeline.lake.table.file_names import OWN
from fleximq.pipeline.lake.table.parquet_writer import StagingWriter
from fleximq.pipeline.lake.table.table_spec import DEAD, TableSpec
from fleximq.pipeline.payloads import ddl
from fleximq.pipeline.payloads.schema_inference import inferred, unionSchema

#: The number of payloads of a batch from which columns are inferred; of larger batches an evenly spread sample.
SAMPLE = 5000
_DECODED = ("value", "dialect", "content")


def stage(
    lake: str,
    specs: Sequence[TableSpec],
    journal: str,
    number: int,
    batches: Iterable[pa.RecordBatch],
    missing: Sequence[Missing],
) -> Iterator[str]:
    """Stage records of a micro-batch, which have the columns of the source and ``content``, and yield the report;
    raises LakeRefused if a file cannot be written. ``missing`` is read after the last batch.
    """
    stages = [_Stage(lake, spec, journal, number) for spec in specs]
    try:
        for batch in batches:
            for each in stages:
                each.add(batch)
        for each in stages:
            yield from each.end()
    except BaseException:
        for each in stages:
            each.abandon()
        raise
    if missing:
        yield json.dumps({"gaps": {journal: [(each.first, each.next, each.why, each.lost) for each in missing]}})


class _Stage:
    """The staging of one table."""

    def __init__(self, lake: str, spec: TableSpec, journal: str, number: int) -> None:
        self._spec = spec
        self._table = f"{lake}/{spec.name}"
        known = readColumns(self._table)
        if known is None:
            raise LakeRefused(f"{self._table} is no table of a lake any more")
        self._columns: TableColumns = known
        self._schema = known.schema
        self._decoder = spec.decoder(known)
        self._found = known.fields
        self._writer = StagingWriter(f"{self._table}/{OWN}/{STAGED}", self._schema, journal, number)

    def add(self, batch: pa.RecordBatch) -> None:
        rows = self._wanted(batch)
        if not rows.num_rows:
            return
        if self._spec.isInferred:
            self._infer(rows)
            if not self._isKnown:
                return
        with writing(self._table):
            self._writer.add(self._decoded(rows))

    @property
    def _isKnown(self) -> bool:
        return bool(self._found == self._columns.fields)

    def _wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._spec.wanted.all:
            return batch
        topics = batch.column("topic").dictionary_encode()
        those = np.array([name in self._spec.wanted for name in topics.dictionary.to_pylist()], bool)
        if those.all():
            return batch
        return batch.filter(pa.array(those[topics.indices.to_numpy()]))

    def _infer(self, rows: pa.RecordBatch) -> None:
        """Find columns of payloads that the table lacks."""
        if rows.num_rows > SAMPLE:
            rows = rows.take(pa.array(np.linspace(0, rows.num_rows - 1, SAMPLE).astype(np.int64)))
        values, dialects, contents = (rows.column(name) for name in _DECODED)
        known = self._columns.fields if len(self._columns.fields) else None
        found = inferred(self._spec.decode, values, known, self._spec.identity, dialects, contents, known is None)
        if found != self._columns.fields:
            self._found = unionSchema(self._found, found)

    def _decoded(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with all columns of the table; payloads that do not fit become dead letters."""
        number = rows.num_rows
        columns: dict[str, Any] = {name: rows.column(name) for name in BASE.names if name != "reason"}
        if self._decoder is None:
            made: list[pa.Array] = []
            columns["reason"] = pa.nulls(number, pa.string())
        else:
            found = self._decoder.decode(*(rows.column(name) for name in _DECODED))
            made = found.columns.flatten()
            made = made[len(made) - (len(self._schema) - len(BASE)) :]
            columns["reason"] = pa.nulls(number, pa.string()) if found.errors is None else found.errors
            if found.errors is not None:
                columns["topic"] = _dead(columns["topic"], found.errors)
        arrays = [columns[name] for name in BASE.names]
        # The decoder's columns have the order of the table's, metadata last.
        return pa.record_batch([*arrays, *made], schema=self._schema)

    def end(self) -> Iterator[str]:
        """Complete the files and yield them, or else the missing columns."""
        if not self._isKnown:
            self._writer.abandon()
            yield json.dumps({"table": self._spec.name, "fields": ddl.written(self._found)})
            return
        with writing(self._table):
            found = self._writer.close()
        for each in found:
            yield json.dumps({"table": self._spec.name, "staged": each})

    def abandon(self) -> None:
        self._writer.abandon()


def _dead(topics: pa.Array, reasons: pa.Array) -> pa.Array:
    """Return the topics, with the dead-letter topic where a reason is given; a dead letter's own topic stays."""
    isDead = pc.and_(reasons.is_valid(), pc.invert(pc.ends_with(topics, DEAD)))
    return pc.if_else(isDead, pc.binary_join_element_wise(topics, pa.scalar(DEAD), ""), topics)
