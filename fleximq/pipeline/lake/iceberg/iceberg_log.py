"""The log of an Iceberg table: a batch is one snapshot, and its number is a property of the table."""

from collections.abc import Iterator, Sequence

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.lake.iceberg.iceberg_catalog import tableWithColumns
from fleximq.pipeline.lake.iceberg.iceberg_compaction import compactIceberg
from fleximq.pipeline.lake.iceberg.snapshot_cleanup import removeUnused
from fleximq.pipeline.lake.iceberg.snapshots import icebergErrors, liveOf, openTable, replaceFiles
from fleximq.pipeline.lake.table.table_log import Compacted, CompactionGoal, Exclusive, PlacedFile, TableLog

#: The table property that has the number of the last batch.
BATCH = "fleximq.batch"


class IcebergLog(TableLog):
    """The metadata of one Iceberg table."""

    system = "Iceberg"

    def _commit(self, batch: int, files: Sequence[PlacedFile]) -> None:
        table = tableWithColumns(self._table)
        if int(table.properties.get(BATCH, -1)) >= batch:
            return
        with table.transaction() as transaction:
            transaction.set_properties({BATCH: str(batch)})
            transaction.add_files(
                [f"file://{self._table}/{each.path}" for each in files],
                snapshot_properties={BATCH: str(batch)},
                check_duplicate_files=False,
            )

    def days(self) -> list[tuple[str, str]]:
        """Return the topics and days of the table."""
        with icebergErrors(self._table):
            found = openTable(self._table)
            return [] if found is None else sorted({(each.topic, each.day) for each in liveOf(found)})

    def rows(self, days: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, int]]:
        """Return the number of rows of each journal for each of these topics and days."""
        rows: dict[tuple[str, str], dict[str, int]] = {day: {} for day in days}
        with icebergErrors(self._table):
            found = openTable(self._table)
            for live in [] if found is None else liveOf(found):
                if (live.topic, live.day) not in rows:
                    continue
                journals = rows[live.topic, live.day]
                for each in pq.ParquetFile(live.path).read(["journal"]).column("journal").value_counts().to_pylist():
                    journals[each["values"]] = journals.get(each["values"], 0) + each["counts"]
        return rows

    def deleteDays(self, days: Sequence[Sequence[str]]) -> None:
        """Remove topics with their days from the table."""
        removed = {(topic, day) for topic, day in days}

        def selected(found: Table) -> tuple[list[DataFile], list[DataFile]]:
            return [each.file for each in liveOf(found) if (each.topic, each.day) in removed], []

        with icebergErrors(self._table):
            replaceFiles(self._table, selected)

    def compact(
        self, goal: CompactionGoal, aside: str, files: Files, now: float, exclusive: Exclusive
    ) -> Iterator[Compacted]:
        """Merge small files with a snapshot for many partitions, then clean up."""
        yield from compactIceberg(self._table, goal, aside, files, now, exclusive)
        self.cleanUp(now, files, exclusive)

    def cleanUp(self, now: float, files: Files, exclusive: Exclusive) -> None:
        """Expire old snapshots, and delete files that no snapshot names."""
        removeUnused(self._table, now, files, exclusive)
