"""The format of a table: plain Parquet files, or files that a log of Delta Lake or Iceberg names."""

import json
from typing import Any

from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.file_names import OWN

PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
FORMATS = (PARQUET, DELTA, ICEBERG)
_NAME = "format"


def formatOf(table: str, files: Files | None = None) -> dict[str, Any]:
    """Return a table's format as ``format``, with its options; Parquet if none is recorded. Raises LakeRefused."""
    path = f"{table}/{OWN}/{_NAME}"
    try:
        found = json.loads(readFile(files or Files(), path))
    except FileNotFoundError:
        return {"format": PARQUET}
    except (OSError, ValueError) as error:
        raise LakeRefused(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict) or found.get("format") not in FORMATS:
        raise LakeRefused(f"{path} names a format that this FlexiMQ does not know")
    return found


def setFormat(table: str, wanted: dict[str, Any], files: Files | None = None) -> None:
    """Record the format of a new table, or check that an existing one has it. Raises LakeRefused, and OSError."""
    files = files or Files()
    if files.exists(f"{table}/{OWN}/{_NAME}") or files.exists(f"{table}/{OWN}/ledger"):
        had = formatOf(table, files)
        if had != wanted:
            raise LakeRefused(f"the table {table} is of format {had['format']} and cannot become {wanted['format']}")
        return
    replaceFile(files, f"{table}/{OWN}", _NAME, json.dumps(wanted).encode())
