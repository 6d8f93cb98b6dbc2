"""The log of a table, and the files that readers see, in any format, with their rows."""

import os
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.format import DELTA, PARQUET, formatOf
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.parquet_writer import Span, spansOf
from fleximq.pipeline.lake.table.table_log import TableLog, TableState
from fleximq.pipeline.payloads.ddl import typeWritten


def logOf(table: str, files: LakeFiles = FILES) -> TableLog | None:
    """Return the log of a table, None for a plain Parquet table; raises LakeRefused without its format's packages."""
    tableFormat = formatOf(table, files)["format"]
    if tableFormat == PARQUET:
        return None
    try:
        if tableFormat == DELTA:
            from fleximq.pipeline.lake.delta_log import DeltaLog

            return DeltaLog(table, files)
        from fleximq.pipeline.lake.iceberg.iceberg_log import IcebergLog

        return IcebergLog(table, files)
    except ImportError as error:
        raise LakeRefused(
            f"the table {table} needs the extra {tableFormat}: pip install '.[{tableFormat}]' ({error})"
        ) from error


def tableState(table: str, files: LakeFiles = FILES) -> TableState:
    """Return the state of a table that other programs see; that of a plain one is in its ledger. Raises LakeRefused."""
    log = logOf(table, files)
    if log is not None:
        return log.state()
    ledger, columns = readLedger(table, files), requiredColumns(table, files).schema
    rows = sum(covered.rows for covered in ledger.journals.values())
    named = {field.name: typeWritten(field.type) for field in columns}
    return TableState(table, None, ledger.batch, rows, sum(1 for _ in files.visible(table)), named)


class DataFile(NamedTuple):
    """A file of a table: its path within the table, and the full ``topic``."""

    path: str
    topic: str
    spans: list[Span]
    rows: int


def dataFiles(table: str, files: LakeFiles = FILES) -> Iterator[DataFile]:
    """Yield the visible files with their metadata; raises LakeRefused for damage or another origin."""
    for path in files.visible(table):
        try:
            found = pq.read_metadata(files.input(f"{table}/{path}"))
            topic, spans = spansOf(found.metadata or {})
        except (OSError, ValueError, KeyError) as error:
            raise LakeRefused(f"the table {table} has a file of another origin: {path}: {error}") from error
        yield DataFile(path, topic, spans, found.num_rows)


def liveFiles(table: str, files: LakeFiles = FILES) -> list[tuple[str, str]]:
    """Return the paths within the table, each with its topic; raises LakeRefused if the table is damaged."""
    log = logOf(table, files)
    return [(file.path, file.topic) for file in (log.files() if log is not None else dataFiles(table, files))]


def rowGroups(table: str, path: str, topic: str, files: LakeFiles = FILES) -> Iterator[pa.Table]:
    """Yield the row groups of a file; raises LakeRefused if it is damaged, and OSError if it is missing."""
    try:
        with pq.ParquetFile(files.input(os.path.join(table, path))) as file:
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number)
                if not rows.num_rows:
                    continue
                if "topic" not in rows.column_names:
                    # Delta Lake's own compaction leaves out the columns of folders.
                    rows = rows.append_column("topic", pa.repeat(pa.scalar(topic), rows.num_rows))
                yield rows
    except pa.ArrowInvalid as error:
        raise LakeRefused(f"the table {table} has a damaged file: {path}: {error}") from error
