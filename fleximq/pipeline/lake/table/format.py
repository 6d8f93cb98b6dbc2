"""Which format a table has: Parquet files as such, or files that the log of Delta Lake or of Iceberg names too."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.file_names import OWN

PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
FORMATS = (PARQUET, DELTA, ICEBERG)
_NAME = "format"


def formatOf(table: str, files: Files | None = None) -> dict[str, Any]:
    """Return a table's format as ``format``, and what else belongs to it; Parquet where nothing is said.

    :raises LakeRefused: it cannot be read.
    """
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
    """Let a new table have a format, or see that it has it.

    :raises LakeRefused: it has another one, or has files already.
    :raises OSError: it cannot be written.
    """
    files = files or Files()
    if files.exists(f"{table}/{OWN}/{_NAME}") or files.exists(f"{table}/{OWN}/ledger"):
        had = formatOf(table, files)
        if had != wanted:
            raise LakeRefused(f"the table {table} is of format {had['format']} and cannot become {wanted['format']}")
        return
    replaceFile(files, f"{table}/{OWN}", _NAME, json.dumps(wanted).encode())


@contextmanager
def needing(table: str, extra: str) -> Iterator[None]:
    """Let what is imported meanwhile belong to an extra, which a table of this format needs.

    :raises LakeRefused: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise LakeRefused(
            f"the table {table} needs the extra {extra}: pip install 'fleximq[{extra}]' ({error})"
        ) from error
