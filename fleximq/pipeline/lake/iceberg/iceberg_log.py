"""The log of an Iceberg table: a batch is one snapshot, and its number is a property of the table."""

import os
from collections.abc import Iterator, Sequence

from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.lake.iceberg.iceberg_compaction import compactIceberg
from fleximq.pipeline.lake.iceberg.snapshot_cleanup import removeUnused
from fleximq.pipeline.lake.iceberg.snapshots import icebergErrors, liveOf, openTable, replaceFiles, tableWithColumns
from fleximq.pipeline.lake.table.table_log import (
    Compacted,
    CompactionGoal,
    Exclusive,
    LiveFile,
    TableFile,
    TableLog,
    logErrors,
)

#: The table properties that have the number of the last batch, and of the last other change.
BATCH, CHANGE = "fleximq.batch", "fleximq.change"


class IcebergLog(TableLog):
    """The metadata of one Iceberg table."""

    def commit(self, batch: int, files: Sequence[TableFile]) -> None:
        with logErrors(self._table, "committed to Iceberg"):
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

    def change(self, number: int, gone: Sequence[str], files: Sequence[TableFile]) -> None:
        with icebergErrors(self._table):
            table = tableWithColumns(self._table)
            if int(table.properties.get(CHANGE, -1)) >= number:
                return
            paths = [f"file://{self._table}/{each.path}" for each in files]
            removed = {f"{self._table}/{path}" for path in gone}
            made = list(parquet_files_to_data_files(table.io, table.metadata, iter(paths)))
            with table.transaction() as transaction:
                transaction.set_properties({CHANGE: str(number)})
                with transaction.update_snapshot({CHANGE: str(number)}).overwrite() as update:
                    for each in liveOf(table):
                        if each.path in removed:
                            update.delete_data_file(each.file)
                    for file in made:
                        update.append_data_file(file)

    def files(self) -> list[LiveFile]:
        with icebergErrors(self._table):
            found = openTable(self._table)
            live = [] if found is None else liveOf(found)
            return [LiveFile(os.path.relpath(each.path, self._table), each.topic, each.day) for each in live]

    def deleteDays(self, days: Sequence[Sequence[str]]) -> None:
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
