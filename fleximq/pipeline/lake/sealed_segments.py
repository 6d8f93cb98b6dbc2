"""The folder of sealed segments of journals as Parquet: ``<journal>/<first>-<next>.parquet``.

A file's name has its range of offsets, from ``first`` up to before ``next``, with 20 digits each. Offsets are never
reused, so names within a journal are unique. A file is renamed to its name when it is complete. Readers ignore names
that begin with ``_``.
"""

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.errors import PipelineError

_MOMENT = pa.timestamp("us", tz="UTC")
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")
#: The metadata keys of each file.
JOURNAL, SEGMENTS, MISSING = b"fleximq.journal", b"fleximq.segments", b"fleximq.missing"


class SealedFile(NamedTuple):
    """A file with the records of a journal with offsets from ``first`` up to before ``next``."""

    path: str
    first: int
    next: int


def sealedName(first: int, next: int) -> str:
    """Return the name of the file with these offsets of a journal."""
    return f"{first:020d}-{next:020d}.parquet"


def journalsIn(folder: str) -> list[str]:
    """Return the ids of the journals with sealed segments; raises PipelineError if the folder cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.name[0] not in "._" and entry.is_dir())
    except OSError as error:
        raise PipelineError(f"the sealed history in {folder} cannot be read: {error.strerror or error}") from error


def sealedFiles(folder: str, journal: str) -> list[SealedFile]:
    """Return the sealed files of a journal in order, without overlaps; raises PipelineError."""
    path = f"{folder}/{journal}"
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PipelineError(f"the sealed history in {path} cannot be read: {error.strerror or error}") from error
    matches = filter(None, map(_NAME.fullmatch, names))
    found = [SealedFile(f"{path}/{match[0]}", int(match[1]), int(match[2])) for match in matches]
    files: list[SealedFile] = []
    # If concurrent tasks sealed a segment twice, one file is used.
    for file in sorted(found, key=lambda file: (file.first, -file.next)):
        if file.first < file.next and (not files or file.first >= files[-1].next):
            files.append(file)
    return files


def unsealedRanges(files: Iterable[SealedFile], start: int, end: int | None) -> list[tuple[int, int | None]]:
    """Return the ranges of offsets from ``start`` up to before ``end``, if any, that no file has."""
    found: list[tuple[int, int | None]] = []
    for file in files:
        if end is not None and file.first >= end:
            break
        if start < file.first:
            found.append((start, file.first))
        start = max(start, file.next)
    if end is None or start < end:
        found.append((start, end))
    return found


def offsetIn(files: Sequence[SealedFile], time: int) -> int | None:
    """Return the first offset of this time (microseconds since 1970) or later, if any; raises PipelineError."""
    for file in files:
        try:
            found = pq.ParquetFile(file.path)
            place = found.schema_arrow.get_field_index("timestamp")
            for number in range(found.num_row_groups):
                statistics = found.metadata.row_group(number).column(place).statistics
                if statistics is not None and statistics.has_min_max:
                    if pa.scalar(statistics.max, _MOMENT).value < time:
                        continue
                rows = found.read_row_group(number, columns=["offset", "timestamp"])
                late = pc.greater_equal(rows.column("timestamp").cast("int64"), time)
                offsets = rows.column("offset").filter(late)
                if len(offsets):
                    return int(pc.min(offsets).as_py())
        except (OSError, ValueError) as error:
            raise PipelineError(f"{file.path} cannot be read: {error}") from error
    return None
