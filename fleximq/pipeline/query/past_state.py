"""The rows of a table of the latest rows as they were at an offset: from a table of the lake with all changes.

A version of the table itself is the state at the end of some merge only; the changes have the state at every offset.
"""

import os
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.files.selection import FOREVER
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.columns import recordedSchema
from fleximq.pipeline.lake.table.file_names import tableNames
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.table_spec import DEAD, MESSAGE_COLUMNS, TableSpec, readSpec
from fleximq.pipeline.lake.upserts.row_keys import JSON, MESSAGE_KEY, NOTHING, NULL, NULLS, keysIn
from fleximq.pipeline.payloads.dialect_payloads import KIND, MESSAGEPACK

_PLACE = "fleximq_place"


def stateAt(table: str, offset: int, opened: Callable[[str], DataFrame], files: LakeFiles = FILES) -> DataFrame:
    """Return the rows before an offset of each journal, without dead letters; ``opened`` returns the rows of another
    table. Raises LakeRefused if no table of the lake has all changes up to there.
    """
    spec, schema = readSpec(table, files), recordedSchema(table, files)
    rows = opened(changesOf(table, spec, offset, files)).where(F.col("offset") < offset)
    isRemoval = _removals(spec)
    own = F.regexp_replace(spec.upsert, f"{DEAD}$", "") if spec.upsert == "topic" else F.col(_quoted(spec.upsert))
    # The text of a number or time by Spark would be another one than that by which the table replaces rows.
    key = arrow_udf(_keys, "binary", ArrowUDFType.SCALAR)(own)
    if spec.upsert not in MESSAGE_COLUMNS:
        key = F.when(isRemoval, F.col(MESSAGE_KEY)).otherwise(key)
    changes = rows.where(key.isNotNull() & (F.col("reason").isNull() | isRemoval))
    latest = Window.partitionBy("journal", key).orderBy(F.col("offset").desc())
    found = changes.withColumn(_PLACE, F.row_number().over(latest)).where((F.col(_PLACE) == 1) & ~isRemoval)
    # The present columns; a table of changes has no others, except for that of its folders.
    names = [name for name in schema.names if name in found.columns] if schema is not None else found.columns
    return found.select(*map(_quoted, names))


def changesOf(table: str, spec: TableSpec, offset: int, files: LakeFiles = FILES) -> str:
    """Return the name of a table of the same lake that has all changes before an offset; raises LakeRefused."""
    lake, name = os.path.split(table)
    schema, journals = recordedSchema(table, files), readLedger(table, files).journals
    for other in tableNames(lake, files):
        beside = f"{lake}/{other}"
        try:
            found, columns = readSpec(beside, files), recordedSchema(beside, files)
        except LakeRefused:
            continue
        isSame = found.decode == spec.decode and (not found.topics or found.topics == spec.topics)
        if found.upsert or not isSame or columns is None or schema is None:
            continue
        if spec.upsert in schema.names and (
            spec.upsert not in columns.names or columns.field(spec.upsert).type != schema.field(spec.upsert).type
        ):
            continue
        had = readLedger(beside, files).journals
        if all(
            journal in had
            and had[journal].first <= covered.first
            and had[journal].next >= min(offset, covered.next)
            and not had[journal].expired
            and set(had[journal].gaps) <= set(covered.gaps)
            for journal, covered in journals.items()
        ):
            return other
    upTo = "now" if offset >= FOREVER else f"offset {offset}"
    raise LakeRefused(
        f"no table of the lake has all changes of the table {name} up to {upTo}: ingest one with the same topics and "
        f"format, --table 'changes={','.join(spec.topics) or '#'}:{spec.decode}', and with the same type of the key"
    )


def _keys(values: pa.Array) -> pa.Array:
    return keysIn(values)


def _removals(spec: TableSpec) -> Column:
    """Tell which rows remove the row of their key, as :func:`~.upserts.row_keys.tombstonesIn` does."""
    value, isPacked = F.col("value"), F.lit(True)
    if spec.decode != "messagepack":
        isPacked = F.col("content").bitwiseAND(F.lit(KIND)) == F.lit(MESSAGEPACK)
    found = value.isNull() | (F.length(value) == 0) | (isPacked & value.isin(*map(F.lit, map(bytearray, NOTHING))))
    if spec.decode not in JSON:
        return found
    trimmed = F.regexp_replace(value.cast("string"), "^[ \t\r\n]+|[ \t\r\n]+$", "")
    isNull = ~isPacked & (F.length(value) <= 32) & trimmed.isin("", NULL.decode())
    return found | isNull | (isPacked & value.isin(*map(F.lit, map(bytearray, NULLS))))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
