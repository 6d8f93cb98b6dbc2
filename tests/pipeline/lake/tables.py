"""Rows for tables of a lake, and a file system that fails at a chosen step."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.batch_commit import STAGED, BatchCommit
from fleximq.pipeline.lake.live_files import dataFiles
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.columns import BASE, TableColumns, writeColumns
from fleximq.pipeline.lake.table.format import layoutOf, setFormat
from fleximq.pipeline.lake.table.parquet_writer import StagingWriter
from fleximq.pipeline.lake.table.table_log import BatchRange, TableFile

JOURNAL = "0123456789abcdef0123456789abcdef"
#: 2023-11-14, 22:13:20 UTC.
TIME = 1_700_000_000_000_000
DAY = 86_400_000_000


def rows(
    offsets: Sequence[int], topic: str = "t", time: int = TIME, schema: pa.Schema = BASE, **more: Any
) -> pa.RecordBatch:
    """Return rows with these offsets, whose values are their offsets; ``more`` are columns."""
    number = len(offsets)
    columns: dict[str, Any] = {
        "journal": [JOURNAL] * number,
        "topic": [topic] * number,
        "offset": list(offsets),
        "timestamp": [time] * number,
        "publisher": [7] * number,
        "dialect": ["fleximq"] * number,
        "value": [b"%d" % offset for offset in offsets],
        **more,
    }
    found = [pa.array(columns.get(field.name, [None] * number), field.type) for field in schema]
    return pa.record_batch(found, schema=schema)


def stage(table: str, *batches: pa.RecordBatch, batch: int = 0, schema: pa.Schema = BASE) -> list[TableFile]:
    """Stage rows as a task does."""
    folder = f"{table}/{OWN}/{STAGED}"
    os.makedirs(folder, exist_ok=True)
    writer = StagingWriter(folder, schema, JOURNAL, batch, layoutOf(table))
    for each in batches:
        writer.add(each)
    return writer.close()


def makeTable(
    table: str, tableFormat: str = "parquet", layout: str | None = None, columns: TableColumns | None = None
) -> BatchCommit:
    """Make a table, of payloads as they are unless columns are given, and return what commits its batches."""
    publishing = BatchCommit(table)
    publishing.makeFolders()
    setFormat(table, {"format": tableFormat}, layout)
    writeColumns(table, columns or TableColumns("raw", pa.schema([])))
    publishing.prepare()
    return publishing


def commit(
    table: str,
    number: int,
    *batches: pa.RecordBatch,
    schema: pa.Schema = BASE,
    end: int | None = None,
    files: LakeFiles = FILES,
) -> bool:
    """Stage rows and commit them as a batch, which ends behind the last row unless it is said; return if it is new."""
    offsets = [offset for each in batches for offset in each.column("offset").to_pylist()]
    bounds = BatchRange(number, {JOURNAL: min(offsets)}, {JOURNAL: end or max(offsets) + 1})
    return BatchCommit(table, files).publish(bounds, stage(table, *batches, batch=number, schema=schema), {})


def offsetsIn(table: str) -> list[int]:
    """Return the offsets of all rows that readers see."""
    found: list[int] = []
    for file in dataFiles(table):
        found += pq.ParquetFile(f"{table}/{file.path}").read(["offset"]).column("offset").to_pylist()
    return sorted(found)


def staged(table: str) -> list[str]:
    """Return the names of what is staged."""
    return sorted(os.listdir(f"{table}/{OWN}/{STAGED}"))


def crashes(work: Callable[["Failing"], object], least: int) -> Iterator[int]:
    """Let work end at each of its changes to the disk, and yield their number after each end, until it is done.

    Raises AssertionError if it has made no more than ``least`` changes.
    """
    step = 0
    while True:
        try:
            work(Failing(step))
            break
        except (Broken, LakeRefused):
            yield step
            step += 1
    assert step > least, step


class Broken(OSError):
    """The machine ends here."""


class Failing(LakeFiles):
    """Fails for good at the ``after``-th change; ``error`` is what each says then. ``done`` tells what was done."""

    def __init__(self, after: int, error: OSError | None = None) -> None:
        self.left = after
        self.error = error or Broken("it ends here")
        self.done: list[str] = []

    def _step(self, what: str) -> None:
        if self.left <= 0:
            raise self.error
        self.left -= 1
        self.done.append(what)

    def create(self, path: str) -> int:
        """Count it."""
        self._step(f"create {path}")
        return super().create(path)

    def write(self, descriptor: int, buffers: Any, position: int) -> int:
        """Count it."""
        self._step("write")
        return super().write(descriptor, buffers, position)

    def sync(self, descriptor: int) -> None:
        """Count it."""
        self._step("sync")
        super().sync(descriptor)

    def makeFolder(self, path: str) -> None:
        """Count it."""
        self._step(f"make {path}")
        super().makeFolder(path)

    def rename(self, old: str, new: str) -> None:
        """Count it."""
        self._step(f"rename {old} {new}")
        super().rename(old, new)

    def remove(self, path: str) -> None:
        """Count it."""
        self._step(f"remove {path}")
        super().remove(path)

    def syncFolder(self, path: str) -> None:
        """Count it."""
        self._step(f"sync {path}")
        super().syncFolder(path)
