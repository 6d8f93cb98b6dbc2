"""The buckets of a table: each is one file with all rows of a journal that have keys in one range.

A file's metadata have its first possible key; its range ends where the next bucket's begins. The first bucket of a
journal begins with the empty key. So the ranges follow from the files that the table's log names, after any restart.
"""

import base64
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.parquet_writer import spansOf

#: The metadata key of a bucket's first possible key, in base64; files with dead letters do not have it.
FROM = b"fleximq.from"


class Bucket(NamedTuple):
    """A file of a table: its path within it, and its first possible key; None for dead letters."""

    path: str
    journal: str
    first: bytes | None
    rows: int
    bytes: int


def bucketMetadata(first: bytes | None) -> dict[bytes, bytes]:
    """Return the metadata of a bucket; those of its spans are added to them."""
    return {} if first is None else {FROM: base64.b64encode(first)}


class Buckets:
    """The buckets of one table; each file is read once, since files never change."""

    def __init__(self, table: str, files: LakeFiles = FILES) -> None:
        self._table, self._files = table, files
        self._known: dict[str, Bucket] = {}

    def update(self, paths: Iterable[str]) -> None:
        """Take the files that the table's log names now; raises LakeRefused if one is of another origin."""
        self._known = {path: self._known.get(path) or self._read(path) for path in paths}

    def _read(self, path: str) -> Bucket:
        try:
            found = pq.read_metadata(self._files.input(f"{self._table}/{path}"))
            (span,) = spansOf(found.metadata or {})[1]
        except (OSError, ValueError, KeyError) as error:
            raise LakeRefused(
                f"the table {self._table} has a file of another origin, and cannot replace rows: {path}: {error}"
            ) from error
        first = found.metadata.get(FROM)
        size = sum(found.row_group(each).total_byte_size for each in range(found.num_row_groups))
        return Bucket(path, span.journal, None if first is None else base64.b64decode(first), span.rows, size)

    def of(self, journal: str) -> list[Bucket]:
        """Return the buckets of a journal, ordered by their keys; raises LakeRefused if two have one range."""
        found = [each for each in self._known.values() if each.journal == journal and each.first is not None]
        found.sort(key=lambda each: each.first or b"")
        # Where the bucket before was removed, the next one has its range as well.
        found[:1] = [each._replace(first=b"") for each in found[:1]]
        for one, other in zip(found, found[1:], strict=False):
            if one.first == other.first:
                raise LakeRefused(f"the table {self._table} has two files with the same keys: {one.path}, {other.path}")
        return found

    def dead(self, journal: str) -> list[Bucket]:
        """Return the files with a journal's dead letters."""
        return [each for each in self._known.values() if each.journal == journal and each.first is None]


def divided(keys: pa.BinaryArray, buckets: Sequence[Bucket]) -> Mapping[int, slice]:
    """Return the part of sorted keys that belongs to each bucket with a part, by its place in the list."""
    ends = [bisect_left(range(len(keys)), each.first or b"", key=lambda place: keys[place].as_py()) for each in buckets]
    parts = (slice(start, end) for start, end in zip(ends, [*ends[1:], len(keys)], strict=True))
    return {place: part for place, part in enumerate(parts) if part.start < part.stop}
