"""Writes rows to staged Parquet files, for each topic and day, or for each day with rows sorted by topic.

Rows are buffered up to the size of a row group, or up to a total, and few files are open at once. A sorted file is
written at once; its small row groups are divided between topics where that is possible, so that readers of one topic
skip most of them. This file is hot: see docs/guides/pipeline-lake.rst, "How fast it is".
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.file_names import DATE, dateOf
from fleximq.pipeline.lake.table.table_log import TableFile

#: The metadata keys of each file: its topic's full name; and, as JSON, for each journal the journal's id, the first and
#: the last offset, the number of rows, and the first batch.
TOPIC, SPANS = b"fleximq.topic", b"fleximq.spans"
#: Maximum bytes of buffered rows, and maximum number of open files.
MAX_BUFFERED_BYTES, MAX_OPEN_FILES = 128 << 20, 32
#: Approximate size of a row group in bytes, before compression.
GROUP_BYTES = 64 << 20
#: The same for sorted files, and the size of their pages, which readers skip by their index.
SORTED_GROUP_BYTES, SORTED_PAGE_BYTES = 8 << 20, 64 << 10
_Part = TypeVar("_Part", pa.Table, pa.RecordBatch)
_DAY = 86_400_000_000
_DICTIONARIES = ("journal", "topic", "publisher", "dialect", "content", "reason")


class Span(NamedTuple):
    """The rows of a journal in a file, with offsets from ``first`` to ``last``, both included."""

    journal: str
    first: int
    last: int
    rows: int
    batch: int


def fileMetadata(spans: Sequence[Span], topic: str) -> dict[bytes, bytes]:
    """Return the metadata of a file."""
    return {TOPIC: topic.encode(), SPANS: json.dumps(spans).encode()}


def spansOf(metadata: Any) -> tuple[str, list[Span]]:
    """Return a file's topic and its spans from its metadata; raises KeyError if it was not written by this pipeline."""
    return metadata[TOPIC].decode(), [Span(*span) for span in json.loads(metadata[SPANS])]


def parquetOptions(schema: pa.Schema, isSorted: bool, rowBytes: int) -> dict[str, Any]:
    """Return how columns of rows of about so many bytes are encoded, for :class:`pyarrow.parquet.ParquetWriter`."""
    order = [(name, "ascending") for name in ("topic", "offset")]
    # Bounds leave out NaN, which Spark and DuckDB take for the largest number: they would skip rows with NaN.
    unbounded = (
        "value",
        "key",
        "headers",
        "reason",
        *(each.name for each in schema if pa.types.is_floating(each.type)),
    )
    sorting = {
        "sorting_columns": pq.SortingColumn.from_ordering(schema, order),
        "write_page_index": True,
        "data_page_size": SORTED_PAGE_BYTES,
        # The size of a page is looked at after so many rows. A reader decodes at least one page of each column.
        "write_batch_size": min(max(1, SORTED_PAGE_BYTES // max(1, rowBytes)), 1024),
    }
    return {
        **(sorting if isSorted else {}),
        "compression": "zstd",
        "compression_level": 1,
        "version": "2.6",
        "use_dictionary": [name for name in _DICTIONARIES if name in schema.names],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in ("offset", "timestamp") if name in schema.names},
        "write_statistics": [name for name in schema.names if name not in unbounded],
    }


def sortedByTopic(rows: pa.Table) -> pa.Table:
    """Return rows ordered by topic and offset."""
    encoded = rows.column("topic").combine_chunks().dictionary_encode()
    rank = np.argsort(np.argsort(encoded.dictionary.to_numpy(zero_copy_only=False)))
    order = np.lexsort((rows.column("offset").to_numpy(), rank[encoded.indices.to_numpy()]))
    return rows.take(pa.array(order))


def writeSorted(writer: pq.ParquetWriter, rows: pa.Table) -> None:
    """Write rows, ordered by topic, in row groups of about 8 MiB, divided between topics where that is possible."""
    size = max(1, rows.num_rows * SORTED_GROUP_BYTES // max(1, rows.nbytes))
    ends = pc.run_end_encode(rows.column("topic").combine_chunks()).run_ends.to_numpy()
    start = 0
    while start < rows.num_rows:
        end = ends[np.searchsorted(ends, min(start + size, rows.num_rows))]
        writer.write_table(rows.slice(start, end - start), row_group_size=size * 2)
        start = end


class _Rows:
    """The rows of one topic and day, or of one day: those buffered, and those in the open file."""

    def __init__(self) -> None:
        self.waiting: list[pa.RecordBatch] = []
        self.bytes = 0
        self.first, self.last, self.number = 1 << 63, -1, 0
        self.name = ""
        self.writer: Any = None


class StagingWriter:
    """Stages the rows of one journal that one attempt of a task reads, in a local or shared folder."""

    def __init__(
        self, folder: str, schema: pa.Schema, journal: str, batch: int, layout: str, files: LakeFiles = FILES
    ) -> None:
        self._files = files
        self._folder = folder
        self._schema = schema
        self._isSorted = layout == DATE
        self._journal = journal
        self._batch = batch
        self._attempt = uuid.uuid4().hex
        self._rows: dict[tuple[str, int], _Rows] = {}
        self._opened: dict[tuple[str, int], None] = {}
        self._staged: list[TableFile] = []
        self._names = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, ordered by offset in a file of one topic; raises OSError if they cannot be written."""
        for key, rows in _divided(batch, not self._isSorted):
            found = self._rows.get(key)
            if found is None:
                found = self._rows[key] = _Rows()
            size = rows.nbytes
            found.waiting.append(rows)
            found.bytes += size
            self._bytes += size
            if found.bytes >= GROUP_BYTES:
                self._flush(key)
        while self._bytes > MAX_BUFFERED_BYTES:
            self._flush(max(self._rows, key=lambda key: self._rows[key].bytes))

    def close(self) -> list[TableFile]:
        """Write all buffered rows, and return the files; each is complete and on disk. Raises OSError."""
        while self._rows:
            key = next(iter(self._rows))
            self._flush(key)
            if key in self._rows:
                self._end(key)
        return self._staged

    def abandon(self) -> None:
        """Delete the staged files as far as possible."""
        for name in [each.path for each in self._staged] + [rows.name for rows in self._rows.values() if rows.name]:
            with suppress(OSError):
                self._files.remove(f"{self._folder}/{name}")

    def _flush(self, key: tuple[str, int]) -> None:
        """Write the buffered rows of a topic and day as a row group, or those of a day as a sorted file."""
        rows = self._rows[key]
        if not rows.waiting:
            return
        table = pa.Table.from_batches(rows.waiting, self._schema)
        if rows.writer is None:
            self._begin(key, rows, table.nbytes // table.num_rows)
        if self._isSorted:
            writeSorted(rows.writer, sortedByTopic(table))
        else:
            rows.writer.write_table(table, row_group_size=max(1, table.num_rows))
        offsets = pc.min_max(table.column("offset")).as_py()
        rows.first = min(rows.first, offsets["min"])
        rows.last = max(rows.last, offsets["max"])
        rows.number += table.num_rows
        self._bytes -= rows.bytes
        rows.waiting, rows.bytes = [], 0
        if self._isSorted:
            self._end(key)

    def _begin(self, key: tuple[str, int], rows: _Rows, rowBytes: int) -> None:
        """Open a file; if too many are open, first complete the oldest."""
        if len(self._opened) >= MAX_OPEN_FILES:
            self._end(next(iter(self._opened)))
        rows.name = f"{self._attempt}-{self._names}.parquet"
        self._names += 1
        self._opened[key] = None
        options = parquetOptions(self._schema, self._isSorted, rowBytes)
        rows.writer = pq.ParquetWriter(self._files.output(f"{self._folder}/{rows.name}"), self._schema, **options)

    def _end(self, key: tuple[str, int]) -> None:
        """Complete the file of a topic and day; later rows start another one."""
        rows = self._rows.pop(key)
        if rows.writer is None:
            return
        del self._opened[key]
        topic, day = key
        span = Span(self._journal, rows.first, rows.last, rows.number, self._batch)
        rows.writer.add_key_value_metadata(fileMetadata([span], topic))
        rows.writer.close()
        size = self._files.synced(f"{self._folder}/{rows.name}")
        self._staged.append(TableFile(rows.name, topic, dateOf(day), *span[:4], size))
        if rows.waiting:
            # It was completed to limit the open files; its rows are still buffered.
            later = self._rows[key] = _Rows()
            later.waiting, later.bytes = rows.waiting, rows.bytes


def spansIn(path: str, files: LakeFiles = FILES) -> list[Span]:
    """Return the spans of a file without them in its metadata."""
    found = pq.ParquetFile(files.input(path)).read(["journal", "offset"]).group_by("journal")
    totals = found.aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")]).to_pylist()
    return [Span(each["journal"], each["offset_min"], each["offset_max"], each["offset_count"], 0) for each in totals]


def rowsByJournal(paths: Iterable[str], files: LakeFiles = FILES) -> dict[str, int]:
    """Return the number of rows of each journal in some files."""
    rows: Counter[str] = Counter()
    for path in paths:
        rows.update(rowsIn(pq.ParquetFile(files.input(path)).read(["journal"])))
    return dict(rows)


def rowsIn(rows: pa.Table | pa.RecordBatch) -> dict[str, int]:
    """Return the number of rows of each journal."""
    return {each["values"]: each["counts"] for each in rows.column("journal").value_counts().to_pylist()}


def deadIn(rows: pa.Table | pa.RecordBatch) -> dict[str, int]:
    """Return the number of dead letters of each journal."""
    return rowsIn(rows.filter(rows.column("reason").is_valid()))


def grouped(parts: Iterable[_Part], size: int) -> Iterator[list[_Part]]:
    """Yield tables or batches in groups of at least so many bytes, except for the last."""
    held: list[_Part] = []
    left = size
    for part in parts:
        held.append(part)
        left -= part.nbytes
        if left <= 0:
            yield held
            held, left = [], size
    if held:
        yield held


def _divided(batch: pa.RecordBatch, byTopic: bool) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """Yield the rows of each topic and day (since 1970, UTC), in their order; or of each day, with ``""`` as topic."""
    if not batch.num_rows:
        return
    encoded = (batch.column("topic") if byTopic else pa.repeat("", batch.num_rows)).dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy()
    days = batch.column("timestamp").cast(pa.int64()).to_numpy() // _DAY
    low, high = int(days.min()), int(days.max())
    if len(topics) == 1 and low == high:
        yield (topics[0], low), batch
        return
    keys = codes.astype(np.int64) * (high - low + 1) + (days - low)
    order = np.argsort(keys, kind="stable")
    found = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], found[1:] != found[:-1])))
    ends = np.append(starts[1:], len(found))
    taken = batch.take(pa.array(order))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        code, day = divmod(int(found[start]), high - low + 1)
        yield (topics[code], low + day), taken.slice(start, end - start)
