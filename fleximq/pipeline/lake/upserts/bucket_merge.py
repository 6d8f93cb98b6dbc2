"""Merges changes with the buckets that have their keys: each of these is read whole and written again, by threads.

A bucket that becomes larger than ``BUCKET_BYTES`` is divided. Memory is bounded by the changes, and for each thread by
a few times the bytes of one bucket. This file is hot: it costs about 2 µs of a core for each row of a touched bucket.
"""

import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.parquet_writer import Span, fileMetadata, parquetOptions
from fleximq.pipeline.lake.table.table_log import TableFile
from fleximq.pipeline.lake.upserts.buckets import Bucket, bucketMetadata, divided
from fleximq.pipeline.lake.upserts.row_keys import keysOf

#: The most bytes of a bucket's rows in memory; its file has a fifth or less of them.
BUCKET_BYTES = 32 << 20
#: The most threads; they wait for each other's disk, and each needs its memory.
THREADS = 4


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one journal, each key once, ordered by key; of a row with ``isRemoval`` only the key counts."""

    journal: str
    keys: pa.BinaryArray
    rows: pa.Table
    isRemoval: np.ndarray

    @classmethod
    def of(cls, journal: str, keys: pa.BinaryArray, rows: pa.Table, isRemoval: np.ndarray) -> "Changes":
        """Return the latest change of each key; these are in the order of their offsets."""
        places = latest(keys)
        taken = pa.array(places)
        return cls(journal, keys.take(taken), rows.take(taken), isRemoval[places])

    def part(self, where: slice) -> "Changes":
        """Return neighbouring changes."""
        number = where.stop - where.start
        keys, rows = self.keys.slice(where.start, number), self.rows.slice(where.start, number)
        return Changes(self.journal, keys, rows, self.isRemoval[where])


class Merged(NamedTuple):
    """Staged files in place of others, paths within the table, and by how many rows they differ."""

    gone: list[str]
    made: list[TableFile]
    grown: int


def latest(keys: pa.BinaryArray) -> np.ndarray:
    """Return the last place of each key, in the order of the keys."""
    if not len(keys):
        return np.zeros(0, np.int64)
    order = pc.sort_indices(keys)  # equal keys stay in their order
    found = keys.take(order)
    isLast = np.append(pc.not_equal(found[1:], found[:-1]).to_numpy(zero_copy_only=False), True)
    places: np.ndarray = order.to_numpy()[isLast]
    return places


class BucketMerge:
    """Stages the buckets of a table in ``folder``; ``column`` has the keys, ``schema`` is that of the table's files."""

    def __init__(
        self, table: str, folder: str, column: str, schema: pa.Schema, number: int, files: LakeFiles = FILES
    ) -> None:
        self._files = files
        self._table = table
        self._folder = folder
        self._column = column
        self._schema = schema
        self._number = number

    def merge(self, changes: Changes, buckets: Sequence[Bucket]) -> Merged:
        """Merge changes with the buckets of their journal; raises OSError, and ArrowInvalid for a damaged file."""
        if not buckets:
            made = list(self._staged(self._without(changes), changes.journal, b""))
            return Merged([], made, sum(each.rows for each in made))
        parts = divided(changes.keys, buckets)
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as threads:
            found = list(threads.map(lambda each: self._merged(buckets[each[0]], changes.part(each[1])), parts.items()))
        gone, made = [path for each in found for path in each.gone], [file for each in found for file in each.made]
        return Merged(gone, made, sum(each.grown for each in found))

    def _without(self, changes: Changes) -> pa.Table:
        """Return the rows of changes that are no removals."""
        return changes.rows.filter(pa.array(~changes.isRemoval)) if changes.isRemoval.any() else changes.rows

    def _merged(self, bucket: Bucket, changes: Changes) -> Merged:
        with pq.ParquetFile(self._files.input(f"{self._table}/{bucket.path}"), pre_buffer=False) as file:
            old = aligned(file.read(use_threads=False), self._schema)
        oldKeys = keysOf(old, self._column)
        isRemoval = np.append(np.zeros(old.num_rows, bool), changes.isRemoval)
        places = latest(pa.concat_arrays([oldKeys, changes.keys]))
        places = places[~isRemoval[places]]
        if np.array_equal(places, np.arange(old.num_rows)):
            return Merged([], [], 0)  # it only removes keys that the bucket does not have
        rows = pa.concat_tables([old, changes.rows]).take(pa.array(places))
        made = list(self._staged(rows, bucket.journal, bucket.first or b""))
        return Merged([bucket.path], made, rows.num_rows - old.num_rows)

    def _staged(self, rows: pa.Table, journal: str, first: bytes) -> Iterator[TableFile]:
        """Stage sorted rows as one or more buckets, the first of which begins at this key."""
        if not rows.num_rows:
            return
        # Halves have room for more.
        parts = 1 if rows.nbytes <= BUCKET_BYTES else -(-rows.nbytes * 2 // BUCKET_BYTES)
        size = -(-rows.num_rows // parts)
        for start in range(0, rows.num_rows, size):
            part = rows.slice(start, size)
            key = keysOf(part.slice(0, 1), self._column)[0].as_py() if start else first
            yield self.stage(part, journal, key)

    def stage(self, rows: pa.Table, journal: str, first: bytes | None) -> TableFile:
        """Stage rows as one file, complete and on disk."""
        offsets = pc.min_max(rows.column("offset")).as_py()
        span = Span(journal, offsets["min"], offsets["max"], rows.num_rows, self._number)
        name = f"{uuid.uuid4().hex}.parquet"
        path = f"{self._folder}/{name}"
        options = parquetOptions(self._schema, False, 0)
        with pq.ParquetWriter(self._files.output(path), self._schema, **options, write_page_index=True) as writer:
            writer.write_table(rows, row_group_size=rows.num_rows)
            writer.add_key_value_metadata(fileMetadata([span], "") | bucketMetadata(first))
        return TableFile(name, "", "", *span[:4], self._files.synced(path))
