"""Decodes the payloads of a table again with its present columns: dead letters and older rows get the values that fit
now. Only files with different rows are replaced, so a run that was killed can be repeated.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
from fleximq.pipeline.lake.file_rewriting import FileRewriting, Replacement, rewriting
from fleximq.pipeline.lake.ingest_task import RowDecoder, rowDecoder, undead
from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.format import checkAllRows
from fleximq.pipeline.lake.table.parquet_writer import deadIn
from fleximq.pipeline.lake.table.table_spec import TableSpec
from fleximq.pipeline.payloads.decoder import WITH_FIELDS

STAGED = "redecoding"


class Redecoded(NamedTuple):
    """The result so far: files looked at and replaced; recovered and remaining dead letters."""

    files: int
    replaced: int
    back: int
    dead: int


def redecode(table: str, spec: TableSpec, files: LakeFiles = FILES) -> Iterator[Redecoded]:
    """Replace the files of a table with payloads that decode to other rows now; yield the progress after each file."""
    checkAllRows(table, "redecode", files)
    seen = back = dead = 0
    with rewriting(table, STAGED, files) as rewritten:
        # Other formats have no columns that could be mended.
        live = liveFiles(table, files) if spec.decode in WITH_FIELDS else []
        # In this order: a file has no column that was not recorded before it.
        decode, schema = rowDecoder(spec, columns := requiredColumns(table, files)), columns.schema
        for path, topic in live:
            try:
                found, left = _decodedAgain(rewritten, path, topic, decode, schema, files)
            except FileNotFoundError:
                # It has expired in the meantime.
                continue
            seen, dead = seen + 1, dead + left
            if found is not None:
                back -= found.dead.total()
                rewritten.replace(found)
            yield Redecoded(seen, rewritten.replaced, back, dead)
    yield Redecoded(seen, rewritten.replaced, back, dead)


def _decodedAgain(
    rewritten: FileRewriting, path: str, topic: str, decode: RowDecoder, schema: pa.Schema, files: LakeFiles
) -> tuple[Replacement | None, int]:
    """Return a file's replacement, None if its rows stay as they are, and the number of dead letters among its rows."""
    table, identity = rewritten.table, rewritten.identity(path)
    left, isSame = 0, True
    for rows in rowGroups(table, path, topic, files):
        before, again = _again(rows, decode, schema)
        left += again.num_rows - again.column("reason").null_count
        isSame = isSame and again.equals(before)
    if isSame:
        return None, left
    dead: Counter[str] = Counter()
    number = 0

    def decoded() -> Iterator[pa.RecordBatch]:
        nonlocal number
        for rows in rowGroups(table, path, topic, files):
            before, again = _again(rows, decode, schema)
            dead.update(deadIn(again))
            dead.subtract(deadIn(before))
            number += rows.num_rows
            yield again

    made = rewritten.stage(decoded(), schema)
    if sum(each.rows for each in made) != number:
        raise LakeRefused(f"the table {table} has a file that changed while it was read: {path}")
    return Replacement({path: identity}, made, dead), left


def _again(rows: pa.Table, decode: RowDecoder, schema: pa.Schema) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return rows with all columns of a table as they are, and decoded again."""
    (before,) = aligned(rows, schema).combine_chunks().to_batches()
    (own,) = aligned(undead(rows), schemaOf(ALL_COLUMNS)).combine_chunks().to_batches()
    again, errors = decode(own)
    if errors is None:
        return before, again
    # A row that fitted the columns of its time must not become a dead letter by a later column.
    fitted = pc.and_(errors.is_valid(), before.column("reason").is_null())
    kept = [pc.if_else(fitted, old, new) for old, new in zip(before.columns, again.columns, strict=True)]
    return before, pa.record_batch(kept, schema=schema)
