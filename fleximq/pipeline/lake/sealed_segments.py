"""The sealed segments of journals as Parquet files ``<journal>/<first>-<next>.parquet``: read, and written by ``seal``.

A file's name has its range of offsets, from ``first`` up to before ``next``, with 20 digits each. Offsets are never
reused, so names within a journal are unique. A file gets its name when it is complete. Readers ignore names that begin
with ``_``.
"""

import json
import os
import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.errors import JournalError, systemReason
from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.files.journal_files import readSlice
from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
from fleximq.pipeline.files.selection import Selection, Slice
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.storage.lake_files import FILES
from fleximq.pipeline.lake.table.file_names import fileName, isFileName
from fleximq.pipeline.lake.table.parquet_writer import grouped

_MOMENT = pa.timestamp("us", tz="UTC")
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")
#: The metadata keys of each file.
JOURNAL, SEGMENTS, MISSING = b"fleximq.journal", b"fleximq.segments", b"fleximq.missing"
#: Approximate size of a row group in bytes, before compression.
GROUP_BYTES = 32 << 20
#: Prefix of the name of a file that is being written.
STAGED = "_sealing-"
#: Measured to be the fastest for Spark's vectorised reader (docs/guides/pipeline-lake.rst).
_ENCODING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 3,
    "data_page_size": 4 << 20,
    "use_dictionary": ["journal", "topic", "publisher", "dialect", "content", "headers.key_value.key"],
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_statistics": ["journal", "topic", "offset", "timestamp", "publisher", "dialect"],
}


class SealedFile(NamedTuple):
    """A file with the records of a journal with offsets from ``first`` up to before ``next``."""

    path: str
    first: int
    next: int


def sealedName(first: int, nextOffset: int) -> str:
    """Return the name of the file with these offsets of a journal."""
    return f"{first:020d}-{nextOffset:020d}.parquet"


def journalsIn(folder: str) -> list[str]:
    """Return the ids of the journals with sealed segments; raises PipelineError if the folder cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if isFileName(entry.name) and entry.is_dir())
    except OSError as error:
        raise PipelineError(f"the sealed history in {folder} cannot be read: {systemReason(error)}") from error


def sealedFiles(folder: str, journal: str) -> list[SealedFile]:
    """Return the sealed files of a journal in order, without overlaps; raises PipelineError."""
    path = f"{folder}/{fileName(journal)}"
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PipelineError(f"the sealed history in {path} cannot be read: {systemReason(error)}") from error
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


class SegmentExport(NamedTuple):
    """The result for a group of segments: the rows and bytes of their file, or ``why`` they were not sealed."""

    first: int
    next: int
    segments: int
    rows: int = 0
    bytes: int = 0
    why: str = ""


class _Lost(Exception):
    """A part of a segment is damaged or missing."""


def sealSegments(segments: Sequence[Slice], folder: str, damaged: bool, files: Files = FILES) -> list[SegmentExport]:
    """Write the records of complete segments with consecutive offsets to the journal's folder, and rename the file to
    its name when it is complete and on disk. Where a segment is damaged or missing, the others get files of their own;
    if ``damaged``, it is sealed without its damaged part. Raises PipelineError if the file cannot be written, or the
    journal cannot be read.
    """
    first, last = segments[0], segments[-1]
    whole = first._replace(end=last.end, pieces=tuple(piece for each in segments for piece in each.pieces))
    try:
        return [_sealed(whole, len(segments), folder, damaged, files)]
    except _Lost as lost:
        if len(segments) == 1:
            return [SegmentExport(whole.start, whole.end, 0, why=f"journal {whole.journal}, {lost}")]
    return [outcome for each in segments for outcome in sealSegments([each], folder, damaged, files)]


def _sealed(part: Slice, segments: int, folder: str, damaged: bool, files: Files) -> SegmentExport:
    staged = f"{folder}/{STAGED}{uuid.uuid4().hex}"
    final = f"{folder}/{sealedName(part.start, part.end)}"
    missing: list[Missing] = []

    def tell(found: Missing) -> None:
        if found.lost and not damaged:
            raise _Lost(str(found))
        missing.append(found)

    schema, rows = schemaOf(ALL_COLUMNS), 0
    try:
        with pq.ParquetWriter(staged, schema, **_ENCODING) as writer:
            for batches in grouped(readSlice(part, ALL_COLUMNS, Selection(), tell, files), GROUP_BYTES):
                table = pa.Table.from_batches(batches, schema)
                rows += table.num_rows
                writer.write_table(table, row_group_size=table.num_rows)
            bases = json.dumps([piece.base for piece in part.pieces])
            found = {JOURNAL: part.journal, SEGMENTS: bases, MISSING: json.dumps(missing)}
            writer.add_key_value_metadata({key: value.encode() for key, value in found.items()})
        size = FILES.synced(staged)
        files.rename(staged, final)
        files.syncFolder(folder)
    except JournalError as error:
        raise PipelineError(str(error)) from error
    except OSError as error:
        raise PipelineError(f"{final} cannot be written: {systemReason(error)}") from error
    finally:
        with suppress(OSError):
            os.unlink(staged)
    return SegmentExport(part.start, part.end, segments, rows, size)
