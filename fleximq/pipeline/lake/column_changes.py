"""Adds columns to a table during its ingest: those that tasks found in payloads, and those that a user names."""

from collections.abc import Iterable
from functools import reduce

import pyarrow as pa

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.batch_commit import exclusive, writing
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.column_names import distinct
from fleximq.pipeline.lake.table.columns import TableColumns, added, requiredColumns, writeColumns
from fleximq.pipeline.lake.table.format import formatOf
from fleximq.pipeline.lake.table.lock import undisturbed
from fleximq.pipeline.lake.table.table_spec import TableSpec
from fleximq.pipeline.payloads.schema_inference import unionSchema


def addColumns(table: str, found: Iterable[pa.Schema], files: LakeFiles = FILES) -> None:
    """Add columns that tasks found to those that a table has; recorded types stay."""
    new = reduce(unionSchema, found)

    def add() -> None:
        with exclusive(table, files):
            had = requiredColumns(table, files)
            fields = unionSchema(had.fields, new, widen=False)
            # Two tasks may have found columns with one name.
            taken = distinct(formatOf(table, files)["format"], had._replace(fields=fields), had.schema)
            writeColumns(table, taken.columns, files)

    with writing(table):
        undisturbed(add)


def widenColumns(table: str, fields: pa.Schema, files: LakeFiles = FILES) -> None:
    """Add columns to those that a table has, and widen others; raises LakeRefused if the table's format cannot."""
    with writing(table), exclusive(table, files):
        had = requiredColumns(table, files)
        writeGiven(table, had._replace(fields=added(table, had.fields, list(fields), files)), had, files)


def writeGiven(table: str, columns: TableColumns, had: TableColumns | None, files: LakeFiles) -> None:
    """Record columns that a user named; raises LakeRefused as :func:`checkNames`."""
    checkNames(table, formatOf(table, files)["format"], columns, had)
    writeColumns(table, columns, files)


def columnsOf(spec: TableSpec) -> TableColumns:
    """Return the columns of a new table."""
    return TableColumns(spec.decode, spec.fields, spec.metadata)


def checkNames(table: str, tableFormat: str, columns: TableColumns, had: TableColumns | None) -> None:
    """Raise LakeRefused if the format could not tell new columns apart from others by their names."""
    taken = distinct(tableFormat, columns, () if had is None else had.schema)
    if taken.leftOut:
        raise LakeRefused(
            f"the table {table} cannot have the column {taken.leftOut[0]!r}: Iceberg has this name for a field in "
            "another column; give one of them another name"
        )
