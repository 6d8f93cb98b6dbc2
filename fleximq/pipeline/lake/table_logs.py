"""Chooses the log of a table by its format. A plain Parquet table has none: its files alone are the table."""

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.format import DELTA, PARQUET, formatOf
from fleximq.pipeline.lake.table.own_files import FILES
from fleximq.pipeline.lake.table.table_log import TableLog


def logOf(table: str, files: Files = FILES) -> TableLog | None:
    """Return the log of a table, None for a plain Parquet table; raises LakeRefused without its format's packages."""
    format = formatOf(table, files)["format"]
    if format == PARQUET:
        return None
    try:
        if format == DELTA:
            from fleximq.pipeline.lake.delta_log import DeltaLog

            return DeltaLog(table)
        from fleximq.pipeline.lake.iceberg.iceberg_log import IcebergLog

        return IcebergLog(table)
    except ImportError as error:
        raise LakeRefused(f"the table {table} needs the extra {format}: pip install '.[{format}]' ({error})") from error
