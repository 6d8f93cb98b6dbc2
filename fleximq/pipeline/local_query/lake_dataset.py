"""A table of a lake as a dataset of Arrow, which skips files and row groups without rows that a query wants."""

from datetime import date
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.live_files import logOf
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_names import KEY


def lakeDataset(table: str, files: LakeFiles = FILES) -> ds.Dataset:
    """Return the rows that the table has now; raises LakeRefused if it cannot be read, or has no files yet."""
    log = logOf(table, files)
    paths = list(files.visible(table)) if log is None else [file.path for file in log.files()]
    if not paths:
        raise LakeRefused(f"the table {table} has no files yet")
    schema = requiredColumns(table, files).schema
    folders = [_folders(path) for path in paths]
    types = {KEY: pa.string(), "date": pa.date32()}
    for name in dict.fromkeys(name for each in folders for name in each):
        if schema.get_field_index(name) < 0:
            schema = schema.append(pa.field(name, types.get(name, pa.string())))
    parquet, system, fragments = ds.ParquetFileFormat(), LocalFileSystem(), []
    for path, values in zip(paths, folders, strict=True):
        known = ds.scalar(True)
        for name, value in values.items():
            known &= ds.field(name) == (date.fromisoformat(value) if name == "date" else value)
        fragments.append(parquet.make_fragment(files.input(f"{table}/{path}"), system, partition_expression=known))
    return ds.FileSystemDataset(fragments, schema, parquet, system)


def _folders(path: str) -> dict[str, str]:
    """Return the columns in the names of a file's folders, ``date=2026-01-31``."""
    pairs = (folder.partition("=") for folder in path.split("/")[:-1])
    return {name: unquote(value) for name, equals, value in pairs if equals}
