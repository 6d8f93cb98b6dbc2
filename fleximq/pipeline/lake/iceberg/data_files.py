"""Describes Parquet files for Iceberg's metadata. PyIceberg fails on the bounds of some valid values: times outside the
years 1 to 9999, and texts with U+D7FF as 16th character, which it truncates to a lone surrogate. A column with one of
these values gets no bounds in that file, so readers cannot skip the file by this column.
"""

from collections.abc import Iterable, Sequence
from datetime import date

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import compute_statistics_plan, parquet_files_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from fleximq.pipeline.lake.iceberg.snapshots import localPath
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.file_names import FIRST_DAY, dateIn
from fleximq.pipeline.lake.table.halving import refused
from fleximq.pipeline.lake.table.parquet_writer import TOPIC

_MODE, _DEFAULT = "write.metadata.metrics.column.", "write.metadata.metrics.default"


def dataFilesOf(found: Table, paths: Iterable[str], files: LakeFiles = FILES) -> list[DataFile]:
    """Return the descriptions of files, given as URLs, for a table; raises errors of any class for unfit files."""
    return [_dataFile(found, path, files) for path in paths]


def _dataFile(found: Table, path: str, files: LakeFiles) -> DataFile:
    try:
        return _described(found, path, {})
    except Exception:
        _described(found, path, {_DEFAULT: "counts"})  # fails again if no bound is the cause
    plan = compute_statistics_plan(found.schema(), found.properties)
    names = [each.column_name for each in plan.values()]

    def isTaken(some: Sequence[str]) -> bool:
        try:
            _described(found, path, {f"{_MODE}{name}": "counts" for name in names if name not in some})
        except Exception:
            return False
        return True

    file = _described(found, path, {f"{_MODE}{name}": "counts" for name in refused(names, isTaken)})
    # PyIceberg derives the partition from bounds, which may be missing; the path has the day that readers use.
    own = {
        "topic": pq.read_metadata(files.input(localPath(path))).metadata[TOPIC].decode(),
        "date": (date.fromisoformat(dateIn(path)) - FIRST_DAY).days,
    }
    for place, field in enumerate(found.spec().fields):
        file.partition[place] = own[field.name]
    return file


def _described(found: Table, path: str, modes: dict[str, str]) -> DataFile:
    """Return the description of a file with some metrics modes of columns instead of the table's."""
    own = {name: mode for name, mode in found.properties.items() if _DEFAULT not in modes or not name.startswith(_MODE)}
    metadata = found.metadata.model_copy(update={"properties": {**own, **modes}})
    (file,) = parquet_files_to_data_files(found.io, metadata, iter([path]))
    return file
