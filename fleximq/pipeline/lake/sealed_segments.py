"""The folder in which sealed segments of journals stand as Parquet: ``<journal>/<first>-<next>.parquet``.

A file's name says which offsets it has, from the first one up to before the next, both with 20 digits. No offset is
ever given twice, so no two files of a journal have the same name, and a file that is there is whole: it got its name
when it was. What begins with ``_`` is not to be read.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.errors import PipelineError

_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")
#: The keys of what each file says of itself.
JOURNAL, SEGMENTS, MISSING = b"fleximq.journal", b"fleximq.segments", b"fleximq.missing"


class SealedFile(NamedTuple):
    """What one file has: the records of a journal with offsets from ``first`` up to before ``next``."""

    path: str
    first: int
    next: int


class MissingThere(NamedTuple):
    """What of a sealed segment was damaged, or taken out by retention, when it was sealed; see ``reading.Missing``."""

    first: int
    next: int
    why: str
    lost: bool


def sealedName(first: int, next: int) -> str:
    """Return the name of the file that has these offsets of a journal."""
    return f"{first:020d}-{next:020d}.parquet"


def journalsIn(folder: str) -> list[str]:
    """Return the ids of the journals of which something is sealed.

    :raises PipelineError: there is no such folder, or it cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.name[0] not in "._" and entry.is_dir())
    except OSError as error:
        raise PipelineError(f"the sealed history in {folder} cannot be read: {error.strerror or error}") from error


def sealedFiles(folder: str, journal: str) -> list[SealedFile]:
    """Return what is sealed of a journal, in order; no offset is in two of them.

    :raises PipelineError: the folder cannot be read.
    """
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
    # Of a segment that was sealed twice, by tasks that did not know of each other, one is taken.
    for file in sorted(found, key=lambda file: (file.first, -file.next)):
        if file.first < file.next and (not files or file.first >= files[-1].next):
            files.append(file)
    return files


def unsealedRanges(files: Iterable[SealedFile], start: int, end: int | None) -> list[tuple[int, int | None]]:
    """Return the ranges of offsets from ``start`` up to before ``end`` that no file has; without an end, the last has
    none either.
    """
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
    """Return the offset of the first record of this time or later (microseconds since 1970); None if there is none.

    :raises PipelineError: a file cannot be read.
    """
    for file in files:
        try:
            found = pq.ParquetFile(file.path)
            place = found.schema_arrow.get_field_index("timestamp")
            for number in range(found.num_row_groups):
                statistics = found.metadata.row_group(number).column(place).statistics
                if statistics is not None and statistics.has_min_max and _micros(statistics.max) < time:
                    continue
                rows = found.read_row_group(number, columns=["offset", "timestamp"])
                late = pc.greater_equal(rows.column("timestamp").cast("int64"), time)
                offsets = rows.column("offset").filter(late)
                if len(offsets):
                    return int(pc.min(offsets).as_py())
        except (OSError, ValueError) as error:
            raise PipelineError(f"{file.path} cannot be read: {error}") from error
    return None


def _micros(time: Any) -> int:
    return int(pa.scalar(time, pa.timestamp("us", tz="UTC")).value)


def missingIn(metadata: Mapping[bytes, bytes]) -> list[MissingThere]:
    """Return what was missing when a segment was sealed, as its file's metadata says."""
    return [MissingThere(*each) for each in json.loads(metadata.get(MISSING, b"[]"))]
