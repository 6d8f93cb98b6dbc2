"""Merges small files of a partition into large ones, with rows ordered by journal and offset.

Files of one journal never overlap, so their row groups are copied one file after the other.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fleximq.pipeline.lake.table.parquet_writer import (
    GROUP_BYTES,
    Span,
    fileMetadata,
    grouped,
    parquetOptions,
    spansOf,
    synced,
)

_MAGIC = b"PAR1"


class MergePart(NamedTuple):
    """A file of a partition: its name, its index in the listing of the folder, its size, topic and spans."""

    name: str
    place: int
    bytes: int
    inode: int
    topic: str
    spans: tuple[Span, ...]


def partsOf(folder: str) -> list[MergePart]:
    """Return the files of a partition that readers see, in the order of a listing; raises OSError, or KeyError if one
    was not written by this pipeline.
    """
    found = []
    with os.scandir(folder) as entries:
        for place, entry in enumerate(entries):
            if not entry.name.startswith((".", "_")):
                found.append(partOf(entry.path, place))
    return found


def partOf(path: str, place: int) -> MergePart:
    """Return a file with its metadata and its index in the listing; raises as :func:`partsOf`."""
    state = os.stat(path)
    topic, spans = spansOf(pq.read_metadata(path).metadata or {})
    return MergePart(os.path.basename(path), place, state.st_size, state.st_ino, topic, tuple(spans))


def groupsOf(parts: Sequence[MergePart], target: int) -> list[list[MergePart]]:
    """Return files to merge: of one journal, each under half of ``target`` bytes, together about ``target``."""
    small: dict[str, list[MergePart]] = {}
    for part in parts:
        if part.bytes * 2 < target and len({span.journal for span in part.spans}) == 1:
            small.setdefault(part.spans[0].journal, []).append(part)
    groups = []
    for found in small.values():
        group: list[MergePart] = []
        for part in sorted(found, key=lambda part: part.spans[0].first):
            if group and sum(each.bytes for each in group) + part.bytes > target:
                groups.append(group)
                group = []
            group.append(part)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def lastListed(group: Sequence[MergePart]) -> MergePart:
    """Return the file whose name the merged one gets: the last in a listing.

    A reader that listed the folder before the exchange and opens the files one by one then either fails to open a
    removed file, or finds all rows under this name (docs/guides/pipeline-lake.rst).
    """
    return max(group, key=lambda part: part.place)


def merge(folder: str, group: Sequence[MergePart], path: str, schema: pa.Schema | None) -> None:
    """Write the rows of some files as one, complete and on disk, with the table's schema or else the files'; raises
    OSError.
    """
    files = [pq.ParquetFile(f"{folder}/{part.name}") for part in group]
    try:
        if schema is None:
            schema = pa.unify_schemas([file.schema_arrow.remove_metadata() for file in files])
        ends = [os.stat(f"{folder}/{part.name}").st_size for part in group]
        spans = _together([span for part in group for span in part.spans])
        # A reader with the old listing, and so the old length, must not take the new file for the old one.
        for padding in range(8):
            _write(
                files, schema, path, {**fileMetadata(spans, group[0].topic), b"fleximq.joined": b"." * (padding + 1)}
            )
            if not any(_looksLike(path, end) for end in ends):
                break
    finally:
        for file in files:
            file.close()
    synced(path)


def _write(files: Sequence[pq.ParquetFile], schema: pa.Schema, path: str, metadata: dict[bytes, bytes]) -> None:
    groups = (aligned(file.read_row_group(each), schema) for file in files for each in range(file.num_row_groups))
    with pq.ParquetWriter(path, schema, **parquetOptions(schema)) as writer:
        for tables in grouped(groups, GROUP_BYTES):
            table = pa.concat_tables(tables)
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata(metadata)


def aligned(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with all columns of a schema; missing ones are null."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _together(spans: Sequence[Span]) -> list[Span]:
    """Return one span that covers neighbouring spans of a journal."""
    first, *rest = sorted(spans)
    for span in rest:
        first = Span(
            first.journal, first.first, max(first.last, span.last), first.rows + span.rows, min(first.batch, span.batch)
        )
    return [first]


def _looksLike(path: str, size: int) -> bool:
    """Tell whether a file seems complete to a reader that takes this for its size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, len(_MAGIC), size - len(_MAGIC)) == _MAGIC
    finally:
        os.close(descriptor)
