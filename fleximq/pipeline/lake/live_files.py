"""The files of a table that readers see, in any format, and their rows."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.completeness import dataFiles
from fleximq.pipeline.lake.table_logs import logOf


def liveFiles(table: str) -> list[tuple[str, str]]:
    """Return the paths within the table, each with its topic; raises LakeRefused if the table is damaged."""
    log = logOf(table)
    return log.files() if log is not None else [(file.path, file.topic) for file in dataFiles(table)]


def rowGroups(table: str, path: str, topic: str) -> Iterator[pa.Table]:
    """Yield the rows of a file, a row group at a time; raises LakeRefused if it cannot be read, and OSError if it is
    missing.
    """
    try:
        with pq.ParquetFile(os.path.join(table, path)) as file:
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
