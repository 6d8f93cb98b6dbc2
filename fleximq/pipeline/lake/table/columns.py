"""The columns of a table: those of the source, those of the payload, and the reason of a dead letter.

A field with the name of another column, ignoring case, gets ``_`` appended. Fields are only added, or widened as far as
readers can read older files so. ``_common_metadata`` has the schema, from which Spark takes that of the table.
"""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.file_names import COMMON, KEY, readRecorded, writeOwn
from fleximq.pipeline.lake.table.format import DELTA, formatOf
from fleximq.pipeline.payloads import ddl
from fleximq.pipeline.payloads.dialect_payloads import METADATA

#: The columns of each file before the fields of payloads: those of the source, with the code of the content type, and
#: the reason why a dead letter is one.
BASE = schemaOf(ALL_COLUMNS).append(pa.field("reason", pa.string()))
#: Names of columns that are not in the files; a field must not have them either.
_ELSEWHERE = ("date", METADATA.name)
_NAME = "schema"


class TableColumns(NamedTuple):
    """How a table's payloads are decoded, their fields, and whether Identity's metadata have a column. ``byTopic``:
    readers derive the column ``fleximq_topic`` from folders, which hides one of the files.
    """

    decode: str
    fields: pa.Schema
    metadata: bool = False
    byTopic: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the fields' columns."""
        taken = {name.lower() for name in (*BASE.names, *_ELSEWHERE, *([KEY] if self.byTopic else []))}
        names = []
        for name in self.fields.names:
            while name.lower() in taken:
                name += "_"
            taken.add(name.lower())
            names.append(name)
        return names

    @property
    def schema(self) -> pa.Schema:
        """The schema of the table's files."""
        added = [pa.field(name, field.type) for name, field in zip(self.names, self.fields, strict=True)]
        return pa.schema([*BASE, *added, *([METADATA] if self.metadata else [])])


def added(table: str, known: pa.Schema, fields: Iterable[pa.Field], files: LakeFiles = FILES) -> pa.Schema:
    """Return the known fields, some of them widened, and new ones; raises LakeRefused if the table cannot take them."""
    found = {field.name: field for field in known}
    isDelta = formatOf(table, files)["format"] == DELTA
    for field in fields:
        had = found.setdefault(field.name, field)
        wider = _wider(had.type, field.type)
        if wider is None or (isDelta and wider != had.type):
            why = (
                "deltalake changes no column's type"
                if isDelta
                else "only whole numbers become wider up to BIGINT, FLOAT becomes DOUBLE, and DECIMAL gets more digits"
            )
            raise LakeRefused(
                f"the table {table} has {ddl.written(pa.schema([had]))} and cannot take "
                f"{ddl.written(pa.schema([field]))}: {why}; a new table with this schema can be filled by "
                f"fleximq-pipeline backfill NEW --from {os.path.basename(table)}"
            )
        found[field.name] = field.with_type(wider)
    return pa.schema(found.values())


def _wider(had: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    """Return the wider type if Spark, Arrow and Iceberg read values of the former type in it, else None."""
    if had == wanted:
        return had
    if pa.types.is_struct(had) and pa.types.is_struct(wanted):
        fields = {field.name: field for field in had}
        for field in wanted:
            wider = _wider(fields.setdefault(field.name, field).type, field.type)
            if wider is None:
                return None
            fields[field.name] = field.with_type(wider)
        return pa.struct(fields.values())
    if pa.types.is_list(had) and pa.types.is_list(wanted):
        inner = _wider(had.value_type, wanted.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_decimal(had) and pa.types.is_decimal(wanted):
        return wanted if had.scale == wanted.scale and had.precision < wanted.precision else None
    if pa.types.is_integer(had) and pa.types.is_integer(wanted):
        return wanted if had.bit_width < wanted.bit_width else None
    return wanted if (had, wanted) == (pa.float32(), pa.float64()) else None


def readColumns(table: str, files: LakeFiles = FILES) -> TableColumns | None:
    """Return the recorded columns of a table, None if it has none; raises LakeRefused if they cannot be read."""

    def read(found: Any) -> TableColumns:
        fields = ddl.parsed(found["fields"], twins=True) if found["fields"] else pa.schema([])
        # Tables of the version before keep their names.
        return TableColumns(found["decode"], fields, found["metadata"], found.get("byTopic", False))

    return readRecorded(table, _NAME, read, files)


def recordedSchema(table: str, files: LakeFiles = FILES) -> pa.Schema | None:
    """Return the schema of the table's files, None if it has no recorded columns; raises LakeRefused."""
    columns = readColumns(table, files)
    return None if columns is None else columns.schema


def requiredColumns(table: str, files: LakeFiles = FILES) -> TableColumns:
    """Return the recorded columns of a table; raises LakeRefused if they are missing or cannot be read."""
    columns = readColumns(table, files)
    if columns is None:
        raise LakeRefused(f"{table} is no table of a lake any more")
    return columns


def writeColumns(table: str, columns: TableColumns, files: LakeFiles = FILES) -> None:
    """Record a table's columns, for tasks and for readers; raises OSError if they cannot be written."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(columns.schema, sink)
    # Readers may know a column before a file has it, but not the other way round.
    files.replace(table, COMMON, sink.getvalue().to_pybytes())
    fields = ddl.written(columns.fields) if len(columns.fields) else ""
    writeOwn(table, _NAME, {**columns._asdict(), "fields": fields}, files)
