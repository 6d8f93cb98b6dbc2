"""Merges small files of a partition into large ones, ordered by offset, or in a layout by day by topic first. Files of
one topic and journal never overlap, so their row groups are copied one after the other; sorted ones are merged.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from fleximq.pipeline.lake.table.parquet_writer import (
    GROUP_BYTES,
    SORTED_GROUP_BYTES,
    TOPIC,
    Span,
    fileMetadata,
    grouped,
    parquetOptions,
    sortedByTopic,
    spansOf,
    writeSorted,
)
from fleximq.pipeline.lake.table.table_log import CompactionGoal

_MAGIC = b"PAR1"
#: The size of files, as a multiple of that of the merged one.
_SHRINKS = 1.15
#: About the bytes of rows that are read ahead while sorted files are merged, and the most rows to decode at once.
_MERGED_BYTES, _BATCH_ROWS = 16 << 20, 4096
#: The bytes that are read at once from a column of a file, in place of all of a row group's.
_READ_BYTES = 16 << 10
#: The greatest number of files to merge at once: all of them are open then.
MAX_MERGED = 100


class MergePart(NamedTuple):
    """A file of a partition: ``place`` is its index in the folder's listing, ``changed`` is in seconds since 1970."""

    name: str
    place: int
    bytes: int
    identity: str
    changed: float
    topic: str
    spans: tuple[Span, ...]


def partsOf(folder: str, files: LakeFiles) -> list[MergePart]:
    """Return the visible files of a partition as listed; raises OSError, or KeyError for one of another origin."""
    return [partOf(f"{folder}/{name}", place, files) for place, name in enumerate(files.listed(folder))]


def partOf(path: str, place: int, files: LakeFiles) -> MergePart:
    """Return a file with its metadata and its index in the listing; raises as :func:`partsOf`."""
    state = files.state(path)
    topic, spans = spansOf(pq.read_metadata(files.input(path)).metadata or {})
    return MergePart(os.path.basename(path), place, *state, topic, tuple(spans))


def groupsOf(parts: Sequence[MergePart], target: int) -> list[list[MergePart]]:
    """Return files of one journal to merge, each under half of ``target`` bytes, together a bit more: they shrink."""
    small: dict[str, list[MergePart]] = {}
    for part in parts:
        if part.bytes * 2 < target and len({span.journal for span in part.spans}) == 1:
            small.setdefault(part.spans[0].journal, []).append(part)
    groups = []
    for found in small.values():
        group: list[MergePart] = []
        for part in sorted(found, key=lambda part: part.spans[0].first):
            if len(group) >= MAX_MERGED or sum(each.bytes for each in group) >= target * _SHRINKS:
                groups.append(group)
                group = []
            group.append(part)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def dueGroups(parts: Sequence[MergePart], goal: CompactionGoal, age: float) -> list[list[MergePart]]:
    """Return the files of a partition to merge now, none if it changed too few seconds ago for so many files."""
    groups = groupsOf(parts, goal.target)
    return groups if age >= goal.olderThan or sum(map(len, groups)) >= goal.many else []


def lastListed(group: Sequence[MergePart]) -> MergePart:
    """Return the file that gives the merged one its name, the last in a listing: a reader that listed the folder before
    the exchange fails to open a removed file, or finds all rows (docs/guides/pipeline-lake.rst).
    """
    return max(group, key=lambda part: part.place)


def merge(
    folder: str,
    group: Sequence[MergePart],
    path: str,
    schema: pa.Schema | None,
    files: LakeFiles,
    keepsName: bool = False,
) -> int:
    """Write files as one, complete and on disk, with the table's schema or else the files', and return its bytes;
    ``keepsName``: it gets the name of one of them. Raises OSError.
    """
    opened = [
        pq.ParquetFile(files.input(f"{folder}/{part.name}"), buffer_size=_READ_BYTES, pre_buffer=False)
        for part in group
    ]
    try:
        if schema is None:
            schema = pa.unify_schemas([file.schema_arrow.remove_metadata() for file in opened])
        ends = [files.state(f"{folder}/{part.name}").bytes for part in group]
        spans = _together([span for part in group for span in part.spans])
        # A reader with the old listing, and so the old length, must not take the new file for the old one.
        for padding in range(8):
            metadata = {**fileMetadata(spans, group[0].topic), b"fleximq.joined": b"." * (padding + 1)}
            _write(opened, schema, files.output(path), metadata)
            if not keepsName or not any(_looksLike(path, end, files) for end in ends):
                break
    finally:
        for file in opened:
            file.close()
    return files.synced(path)


def _write(files: Sequence[pq.ParquetFile], schema: pa.Schema, output: Any, metadata: dict[bytes, bytes]) -> None:
    isSorted = not metadata[TOPIC]
    rowBytes = sum(map(_encoded, files)) // max(1, sum(file.metadata.num_rows for file in files))
    with pq.ParquetWriter(output, schema, **parquetOptions(schema, isSorted, rowBytes)) as writer:
        if isSorted:
            for tables in grouped(_sorted(files, schema), 2 * SORTED_GROUP_BYTES):
                writeSorted(writer, pa.concat_tables(tables))
        else:
            copied = (file.read_row_group(number) for file in files for number in range(file.num_row_groups))
            for tables in grouped((aligned(rows, schema) for rows in copied), GROUP_BYTES):
                table = pa.concat_tables(tables)
                writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata(metadata)


def _sorted(files: Sequence[pq.ParquetFile], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of sorted files, ordered by topic and offset."""
    heads = [_Head(file, schema, _MERGED_BYTES // len(files)) for file in files]
    while heads := [head for head in heads if head.rows.num_rows]:
        # No file has a row before this one that is not in memory.
        bound = min(head.last for head in heads)
        yield sortedByTopic(pa.concat_tables([head.upTo(bound) for head in heads if head.first <= bound]))


class _Head:
    """The next ``rows`` of a sorted file, about so many bytes, and the topics and offsets of the first and last one."""

    def __init__(self, file: pq.ParquetFile, schema: pa.Schema, size: int) -> None:
        self._schema, self._size = schema, max(1, size)
        # Decoded, rows have up to several times as many bytes.
        number = size * file.metadata.num_rows // (4 * max(1, _encoded(file)))
        self._batches = file.iter_batches(min(max(1, number), _BATCH_ROWS))
        self._fill(schema.empty_table())

    def _fill(self, rows: pa.Table) -> None:
        """Read after these rows."""
        parts, size = [rows], rows.nbytes
        while size < self._size and (batch := next(self._batches, None)) is not None:
            parts.append(aligned(pa.table(batch), self._schema))
            size += parts[-1].nbytes
        self.rows = pa.concat_tables(parts)
        if self.rows.num_rows:
            self.first, self.last = (
                (self.rows.column("topic")[place].as_py(), self.rows.column("offset")[place].as_py())
                for place in (0, -1)
            )

    def upTo(self, bound: tuple[str, int]) -> pa.Table:
        """Take the rows up to this topic and offset, inclusive."""
        topics, offsets = self.rows.column("topic"), self.rows.column("offset")
        within = pc.and_(pc.equal(topics, bound[0]), pc.less_equal(offsets, bound[1]))
        number = pc.sum(pc.or_(pc.less(topics, bound[0]), within)).as_py()
        taken = self.rows.slice(0, number)
        self._fill(self.rows.slice(number))
        return taken


def _encoded(file: pq.ParquetFile) -> int:
    """Return the bytes of all rows of a file before compression."""
    return sum(file.metadata.row_group(each).total_byte_size for each in range(file.num_row_groups))


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
        last, batch = max(first.last, span.last), min(first.batch, span.batch)
        first = Span(first.journal, first.first, last, first.rows + span.rows, batch)
    return [first]


def _looksLike(path: str, size: int, files: LakeFiles) -> bool:
    """Tell whether a file seems complete to a reader that takes this for its size."""
    with files.closing(files.open(path)) as descriptor:
        return files.read(descriptor, len(_MAGIC), size - len(_MAGIC)) == _MAGIC
