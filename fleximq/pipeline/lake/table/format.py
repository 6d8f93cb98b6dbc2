"""Which format a table has: Parquet files as such, or files that the log of Delta Lake or of Iceberg names too."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from fleximq.journal.files.file_system import Files, putWhole, readWhole
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.file_names import OWN

if TYPE_CHECKING:
    from fleximq.pipeline.lake.batch_commit import Placed

PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
FORMATS = (PARQUET, DELTA, ICEBERG)
_NAME = "format"


class Committer(Protocol):
    """What else has to be told of files before they count: the log of a table format."""

    def commit(self, batch: int, files: "Sequence[Placed]") -> None:
        """Add the files of a batch, which are in their places, unless this batch was added before."""


def formatOf(table: str, files: Files | None = None) -> dict[str, Any]:
    """Return a table's format as ``format``, and what else belongs to it; Parquet where nothing is said.

    :raises LakeRefused: it cannot be read.
    """
    path = f"{table}/{OWN}/{_NAME}"
    try:
        found = json.loads(readWhole(files or Files(), path))
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
    putWhole(files, f"{table}/{OWN}", _NAME, json.dumps(wanted).encode())


def committerOf(table: str, files: Files | None = None) -> Committer | None:
    """Return what has to be told of a table's new files; None where the files are all.

    :raises LakeRefused: what the format needs is not installed.
    """
    had = formatOf(table, files)
    with needing(table, had["format"]):
        if had["format"] == DELTA:
            from fleximq.pipeline.lake.delta_log import DeltaCommitter

            return DeltaCommitter(table)
        if had["format"] == ICEBERG:
            from fleximq.pipeline.lake.iceberg.iceberg_log import IcebergCommitter

            return IcebergCommitter(table, had)
    return None


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
