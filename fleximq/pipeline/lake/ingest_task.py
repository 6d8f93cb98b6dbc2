"""Task side of an ingest: the records of a slice become staged files of each table. No row passes through Java.

A task reports in lines of JSON: staged files, missing records, and columns of payloads that the table lacks. If any
column is lacking, it stages no file: the driver adds them and repeats the batch.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.files.selection import Topics
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.batch_commit import STAGED, writing
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.column_names import distinct
from fleximq.pipeline.lake.table.columns import BASE, TableColumns, requiredColumns
from fleximq.pipeline.lake.table.format import formatOf, layoutOf
from fleximq.pipeline.lake.table.parquet_writer import StagingWriter
from fleximq.pipeline.lake.table.table_spec import DEAD, TableSpec
from fleximq.pipeline.payloads import ddl
from fleximq.pipeline.payloads.schema_formats import REGISTRY
from fleximq.pipeline.payloads.schema_inference import inferred, roomy, unionSchema

#: The number of payloads of a batch from which columns are inferred; of larger batches an evenly spread sample.
SAMPLE = 5000
_DECODED = ("value", "dialect", "content")
#: Maximum number of names to report that become no columns, and of their characters.
_MOST, _SHOWN = 20, 80


def stage(
    lake: str,
    specs: Sequence[TableSpec],
    journal: str,
    number: int,
    batches: Iterable[pa.RecordBatch],
    missing: Sequence[Missing],
    folder: str | None = None,
    files: LakeFiles = FILES,
) -> Iterator[str]:
    """Stage records of the source in ``folder`` of each table's own, by default that of its ingest; yield the report,
    at the end with ``missing``.
    """
    stages = [_Stage(lake, spec, journal, number, folder, files) for spec in specs]
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


def ofTopics(batch: pa.RecordBatch, wanted: Topics) -> pa.RecordBatch:
    """Return the records of some topics."""
    if wanted.all:
        return batch
    topics = batch.column("topic").dictionary_encode()
    those = np.array([name in wanted for name in topics.dictionary.to_pylist()], bool)
    if those.all():
        return batch
    return batch.filter(pa.array(those[topics.indices.to_numpy()]))


def inferredFields(spec: TableSpec, columns: TableColumns, rows: pa.RecordBatch, leftOut: dict[str, None]) -> pa.Schema:
    """Return a table's fields with those that payloads of a sample have in addition; add to ``leftOut`` the names that
    become no columns.
    """
    isRegistered = spec.decode == REGISTRY
    # A schema is looked up for each payload, which is quick.
    if rows.num_rows > SAMPLE and not isRegistered:
        rows = rows.take(pa.array(np.linspace(0, rows.num_rows - 1, SAMPLE).astype(np.int64)))
    values, dialects, contents = (rows.column(name) for name in _DECODED)
    known = columns.fields if len(columns.fields) else None
    widen = known is None
    found = inferred(spec.decode, values, known, spec.identity, dialects, contents, widen, leftOut, spec.definition)
    return found if isRegistered else roomy(found, known, spec.wholeFields)


#: Returns records with all columns of a table, and the reasons of dead letters, None if there are none.
RowDecoder = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, pa.StringArray | None]]


def rowDecoder(spec: TableSpec, columns: TableColumns) -> RowDecoder:
    """Return a function that adds the columns of a table: the fields of payloads, and the reason of a dead letter."""
    schema, decoder = columns.schema, spec.decoder(columns)

    def decode(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.StringArray | None]:
        found: dict[str, Any] = {name: rows.column(name) for name in BASE.names if name != "reason"}
        found["reason"], errors = pa.nulls(rows.num_rows, pa.string()), None
        made: list[pa.Array] = []
        if decoder is not None:
            decoded = decoder.decode(*(rows.column(name) for name in _DECODED))
            made, errors = decoded.columns.flatten(), decoded.errors
            made = made[len(made) - (len(schema) - len(BASE)) :]
        if errors is not None:
            # A dead letter's own topic stays.
            isDead = pc.and_(errors.is_valid(), pc.invert(pc.ends_with(found["topic"], DEAD)))
            named = pc.binary_join_element_wise(found["topic"], pa.scalar(DEAD), "")
            found |= {"reason": errors, "topic": pc.if_else(isDead, named, found["topic"])}
        # The decoder's columns have the order of the table's, metadata last.
        return pa.record_batch([*(found[name] for name in BASE.names), *made], schema=schema), errors

    return decode


class _Stage:
    """The staging of one table."""

    def __init__(
        self, lake: str, spec: TableSpec, journal: str, number: int, folder: str | None, files: LakeFiles
    ) -> None:
        self._spec = spec
        self._table = f"{lake}/{spec.name}"
        self._columns = known = requiredColumns(self._table, files)
        self._decode = rowDecoder(spec, known)
        self._found = known.fields
        self._format: str = formatOf(self._table, files)["format"]
        self._leftOut: dict[str, None] = {}
        self._journal = journal
        self._dead = 0
        self._reason = ""
        aside = f"{self._table}/{OWN}/{folder or files.aside(self._table, STAGED, 'writer')}"
        self._writer = StagingWriter(aside, known.schema, journal, number, layoutOf(self._table, files), files)

    def add(self, batch: pa.RecordBatch) -> None:
        rows = ofTopics(batch, self._spec.wanted)
        if not rows.num_rows:
            return
        if self._spec.isInferred:
            self._infer(rows)
            if not self._isKnown:
                return
        with writing(self._table):
            decoded, errors = self._decode(rows)
            if errors is not None:
                self._dead += len(errors) - errors.null_count
                self._reason = self._reason or errors.drop_null()[0].as_py()
            self._writer.add(decoded)

    @property
    def _isKnown(self) -> bool:
        return bool(self._found == self._columns.fields)

    def _infer(self, rows: pa.RecordBatch) -> None:
        """Find columns of payloads that the table lacks."""
        found = inferredFields(self._spec, self._columns, rows, self._leftOut)
        if found != self._columns.fields:
            wanted = self._columns._replace(fields=unionSchema(self._found, found))
            taken = distinct(self._format, wanted, self._columns.schema)
            self._found = taken.columns.fields
            self._leftOut |= dict.fromkeys(taken.leftOut)

    def end(self) -> Iterator[str]:
        """Complete the files and yield them, or else the missing columns."""
        if self._leftOut:
            yield json.dumps(
                {"table": self._spec.name, "leftOut": [name[:_SHOWN] for name in islice(self._leftOut, _MOST)]}
            )
        if not self._isKnown:
            self._writer.abandon()
            yield json.dumps({"table": self._spec.name, "fields": ddl.written(self._found)})
            return
        with writing(self._table):
            found = self._writer.close()
        for each in found:
            yield json.dumps({"table": self._spec.name, "staged": each})
        if self._dead:
            yield json.dumps({"table": self._spec.name, "dead": [self._journal, self._dead, self._reason]})

    def abandon(self) -> None:
        self._writer.abandon()


def undead(rows: pa.Table) -> pa.Table:
    """Return rows of a table with the topics to which dead letters were published."""
    own = pc.replace_substring_regex(rows.column("topic"), f"{DEAD}$", "")
    place = rows.schema.get_field_index("topic")
    return rows.set_column(place, "topic", pc.if_else(rows.column("reason").is_valid(), own, rows.column("topic")))
