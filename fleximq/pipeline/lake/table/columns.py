"""The columns of a table: those of the source, those of the payload, and the reason of a dead letter.

A payload's fields are columns after the source's. If a field has the name of another column, ignoring case, ``_`` is
appended. Fields are only ever added, so existing files stay valid; the schema with all columns is in
``_common_metadata``, from which Spark takes the schema of the table.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
from fleximq.pipeline.lake.table.file_names import COMMON, OWN
from fleximq.pipeline.payloads import ddl
from fleximq.pipeline.payloads.dialect_payloads import METADATA

#: The columns of each file before the fields of payloads: those of the source, with the journal's code for the content
#: type of the value, and the reason why a dead letter is one.
BASE = schemaOf(ALL_COLUMNS).append(pa.field("reason", pa.string()))
#: Names of columns that are not in the files; a field must not have them either.
_ELSEWHERE = ("date", METADATA.name)
_NAME = "schema"


class TableColumns(NamedTuple):
    """How a table's payloads are decoded, their fields, and whether Identity's metadata have a column."""

    decode: str
    fields: pa.Schema
    metadata: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the fields' columns."""
        taken = {name.lower() for name in (*BASE.names, *_ELSEWHERE)}
        names = []
        for field in self.fields.names:
            name = field
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


def added(table: str, known: pa.Schema, fields: Sequence[pa.Field]) -> pa.Schema:
    """Return the known fields and the new ones of ``fields``; raises LakeRefused if a field has another type."""
    found = {field.name: field for field in known}
    for field in fields:
        had = found.setdefault(field.name, field)
        if had.type != field.type:
            raise LakeRefused(
                f"the table {table} has {field.name} as {ddl.written(pa.schema([had]))} and cannot take it as "
                f"{ddl.written(pa.schema([field]))}: only new columns can be added"
            )
    return pa.schema(found.values())


def readColumns(table: str, files: Files | None = None) -> TableColumns | None:
    """Return the recorded columns of a table, None if it has none; raises LakeRefused if they cannot be read."""
    path = f"{table}/{OWN}/{_NAME}"
    try:
        found = json.loads(readFile(files or Files(), path))
        fields = ddl.parsed(found["fields"]) if found["fields"] else pa.schema([])
        return TableColumns(found["decode"], fields, found["metadata"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LakeRefused(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeRefused(f"{path} is damaged: {error}") from error


def requiredColumns(table: str, files: Files | None = None) -> TableColumns:
    """Return the recorded columns of a table; raises LakeRefused if they are missing or cannot be read."""
    columns = readColumns(table, files)
    if columns is None:
        raise LakeRefused(f"{table} is no table of a lake any more")
    return columns


def writeColumns(table: str, columns: TableColumns, files: Files | None = None) -> None:
    """Record a table's columns, for tasks and for readers; raises OSError if they cannot be written."""
    files = files or Files()
    sink = pa.BufferOutputStream()
    pq.write_metadata(columns.schema, sink)
    # Readers may know a column before a file has it, but not the other way round.
    replaceFile(files, table, COMMON, sink.getvalue().to_pybytes())
    fields = ddl.written(columns.fields) if len(columns.fields) else ""
    found = {"decode": columns.decode, "fields": fields, "metadata": columns.metadata}
    replaceFile(files, f"{table}/{OWN}", _NAME, json.dumps(found).encode())
