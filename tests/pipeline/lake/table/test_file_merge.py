"""The memory of merging files."""

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.lake.storage.lake_files import FILES
from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa

    from fleximq.pipeline.lake.table import file_merge
    from fleximq.pipeline.lake.table.columns import BASE
    from fleximq.pipeline.lake.table.file_merge import merge, partsOf
    from fleximq.pipeline.lake.table.file_names import DATE
    from fleximq.pipeline.lake.table.parquet_writer import StagingWriter, sortedByTopic
    from tests.pipeline.lake.tables import JOURNAL, rows


class MemoryTests(SynchronousTestCase):
    """16 sorted files, each with one row group of 4 MB, in rows of 100 kB."""

    def test_onlyAPartOfEachRowGroupIsInMemory(self) -> None:
        """Only a part of each row group is in memory, not all 64 MB of them."""
        folder = Path(self.mktemp())
        folder.mkdir()
        for number in range(16):
            writer = StagingWriter(str(folder), BASE, JOURNAL, number, DATE)
            offsets = range(number * 40, number * 40 + 40)
            writer.add(rows(offsets, value=[os.urandom(100_000) for _ in offsets]))
            writer.close()
        parts = sorted(partsOf(str(folder), FILES), key=lambda part: part.spans[0].first)
        self.patch(file_merge, "_MERGED_BYTES", 1 << 20)
        before = pa.total_allocated_bytes()
        held = []

        def noted(rows: pa.Table) -> pa.Table:
            held.append(pa.total_allocated_bytes() - before)
            return sortedByTopic(rows)

        self.patch(file_merge, "sortedByTopic", noted)
        merge(str(folder), parts, str(folder / "merged.parquet"), BASE, FILES)
        self.assertLess(max(held), 56 << 20)
