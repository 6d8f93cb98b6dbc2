"""Writes neighbouring segments of a journal as one Parquet file: the task side of ``seal``.

The encodings are those that Spark's vectorised reader was measured to read fastest, see docs/guides/pipeline-lake.rst:
ascending numbers as deltas, names by dictionary, payloads plain.
"""

import json
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.files.journal_files import readSlice
from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
from fleximq.pipeline.files.selection import Selection, Slice
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.sealed_segments import JOURNAL, MISSING, SEGMENTS, sealedName
from fleximq.pipeline.lake.table.parquet_writer import grouped, synced

#: Approximate size of a row group in bytes, before compression.
GROUP_BYTES = 32 << 20
#: Prefix of the name of a file that is being written.
STAGED = "_sealing-"
_ENCODING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 3,
    "data_page_size": 4 << 20,
    "use_dictionary": ["journal", "topic", "publisher", "dialect", "content", "headers.key_value.key"],
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_statistics": ["journal", "topic", "offset", "timestamp", "publisher", "dialect"],
}


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


def sealSegments(
    segments: Sequence[Slice], folder: str, damaged: bool, files: Files | None = None
) -> list[SegmentExport]:
    """Write the records of complete segments with consecutive offsets to the journal's folder, and rename the file to
    its name when it is complete and on disk. Where a segment is damaged or missing, the others get files of their own;
    if ``damaged``, it is sealed without its damaged part. Raises PipelineError if the file cannot be written, or the
    journal cannot be read.
    """
    files = files or Files()
    first, last = segments[0], segments[-1]
    whole = first._replace(end=last.end, pieces=tuple(piece for each in segments for piece in each.pieces))
    try:
        return [_sealed(whole, len(segments), folder, damaged, files)]
    except _Lost as lost:
        if len(segments) == 1:
            return [SegmentExport(whole.start, whole.end, 0, why=f"journal {whole.journal}, {lost}")]
    return [outcome for each in segments for outcome in sealSegments([each], folder, damaged, files)]


def _sealed(slice: Slice, segments: int, folder: str, damaged: bool, files: Files) -> SegmentExport:
    staged = f"{folder}/{STAGED}{uuid.uuid4().hex}"
    final = f"{folder}/{sealedName(slice.start, slice.end)}"
    missing: list[Missing] = []

    def tell(found: Missing) -> None:
        if found.lost and not damaged:
            raise _Lost(str(found))
        missing.append(found)

    try:
        rows = _write(slice, staged, tell, missing, files)
        size = synced(staged)
        files.rename(staged, final)
        files.syncFolder(folder)
    except JournalError as error:
        raise PipelineError(str(error)) from error
    except OSError as error:
        raise PipelineError(f"{final} cannot be written: {(error.strerror or str(error)).lower()}") from error
    finally:
        with suppress(OSError):
            os.unlink(staged)
    return SegmentExport(slice.start, slice.end, segments, rows, size)


def _write(slice: Slice, path: str, tell: Any, missing: list[Missing], files: Files) -> int:
    schema, rows = schemaOf(ALL_COLUMNS), 0
    with pq.ParquetWriter(path, schema, **_ENCODING) as writer:
        for batches in grouped(readSlice(slice, ALL_COLUMNS, Selection(), tell, files), GROUP_BYTES):
            table = pa.Table.from_batches(batches, schema)
            rows += table.num_rows
            writer.write_table(table, row_group_size=table.num_rows)
        writer.add_key_value_metadata(
            {
                JOURNAL: slice.journal.encode(),
                SEGMENTS: json.dumps([piece.base for piece in slice.pieces]).encode(),
                MISSING: json.dumps(missing).encode(),
            }
        )
    return rows
