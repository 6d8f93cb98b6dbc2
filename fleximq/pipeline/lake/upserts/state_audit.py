"""Proves that a table of the latest rows has each key once, in the bucket where a change looks for it."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from fleximq.pipeline.lake.table.table_spec import readSpec
from fleximq.pipeline.lake.upserts.buckets import Bucket, Buckets
from fleximq.pipeline.lake.upserts.row_keys import keysOf


def keyFaults(table: str, paths: Iterable[str], journals: Iterable[str], files: LakeFiles) -> Iterator[str]:
    """Yield a sentence for each bucket with keys twice, out of order or out of its range; raises LakeRefused."""
    column, buckets = readSpec(table, files).upsert, Buckets(table, files)
    buckets.update(paths)
    for journal in journals:
        for bucket, after in pairwise([*buckets.of(journal), None]):
            if bucket is not None and not _isInOrder(table, bucket, after, column, files):
                yield f"{bucket.path} has keys twice, out of order, or outside its range"


def _isInOrder(table: str, bucket: Bucket, after: Bucket | None, column: str, files: LakeFiles) -> bool:
    with pq.ParquetFile(files.input(f"{table}/{bucket.path}")) as file:
        keys: pa.BinaryArray = keysOf(file.read([column]), column)
    if keys.null_count or not len(keys):
        return False
    ascends = pc.all(pc.less(keys[:-1], keys[1:]), min_count=0).as_py()
    isWithin = keys[0].as_py() >= (bucket.first or b"") and (after is None or keys[-1].as_py() < after.first)
    return bool(ascends) and bool(isWithin)
