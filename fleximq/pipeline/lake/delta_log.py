"""The log of a Delta Lake table: a batch is one commit, and its number is the version of a Delta transaction."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction, create_table_with_add_actions

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.parquet_writer import rowsByJournal
from fleximq.pipeline.lake.table.table_log import Compacted, CompactionGoal, Exclusive, TableFile, TableLog, logErrors

#: The application id of Delta transactions; batch numbers belong to it.
APPLICATION = "fleximq-ingest"
_PARTITIONS = ["topic", "date"]
_Result = TypeVar("_Result")


class DeltaLog(TableLog):
    """The log of one Delta Lake table; the first commit creates it."""

    system = "Delta Lake"

    def _commit(self, batch: int, files: Sequence[TableFile]) -> None:
        schema = self._schema()
        properties = CommitProperties(app_transactions=[Transaction(APPLICATION, batch)])
        added = [_added(self._table, each) for each in files]
        try:
            table = DeltaTable(self._table)
        except TableNotFoundError:
            create_table_with_add_actions(
                self._table, schema, added, partition_by=_PARTITIONS, commit_properties=properties
            )
            return
        done = table.transaction_version(APPLICATION)
        if done is not None and done >= batch:
            return
        if sorted(map(str, table.schema().fields)) != sorted(map(str, schema.fields)):
            # Only this call also adds nested fields; it writes no row.
            nothing = pa.schema(schema.to_arrow()).empty_table()
            write_deltalake(table, nothing, mode="append", schema_mode="merge")
            table.update_incremental()
        actions: list[AddAction | RemoveAction] = [*added]
        table.create_write_transaction(actions, "append", schema, _PARTITIONS, commit_properties=properties)

    def _schema(self) -> Schema:
        return Schema.from_arrow(requiredColumns(self._table).schema.append(pa.field("date", pa.date32())))

    def days(self) -> list[tuple[str, str]]:
        return self._with(lambda found: [(each["topic"], str(each["date"])) for each in found.partitions()], [])

    def rows(self, days: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, int]]:
        return {day: rowsByJournal(self._with(partial(_files, *day), [])) for day in days}

    def deleteDays(self, days: Sequence[Sequence[str]]) -> None:
        def delete(found: DeltaTable) -> None:
            for topic, day in days:
                quoted = topic.replace("'", "''")
                found.delete(f"topic = '{quoted}' AND date = DATE '{day}'")
            found.vacuum(dry_run=False)

        self._with(delete, None)

    def compact(
        self, goal: CompactionGoal, aside: str, files: Files, now: float, exclusive: Exclusive
    ) -> Iterator[Compacted]:
        """Merge small files of the whole table, and delete files that the log has not named for a week."""

        def merge(found: DeltaTable) -> tuple[int, int]:
            done = found.optimize.compact(target_size=goal.target)
            found.vacuum(dry_run=False)
            return int(done["numFilesRemoved"]), int(done["numFilesAdded"])

        before, after = self._with(merge, (0, 0))
        if before:
            yield Compacted("", before, after)

    def cleanUp(self, now: float, files: Files, exclusive: Exclusive) -> None:
        """No-op: :meth:`deleteDays` and :meth:`compact` delete old files themselves."""

    def _with(self, work: Callable[[DeltaTable], _Result], otherwise: _Result) -> _Result:
        """Return the result of ``work`` on the table, ``otherwise`` before its first batch."""
        with logErrors(self._table, "changed by Delta Lake"):
            try:
                return work(DeltaTable(self._table))
            except TableNotFoundError:
                return otherwise


def _files(topic: str, day: str, found: DeltaTable) -> list[str]:
    return found.file_uris([("topic", "=", topic), ("date", "=", day)])


def _added(table: str, file: TableFile) -> AddAction:
    status = os.stat(f"{table}/{file.path}")
    statistics = {
        "numRecords": file.rows,
        "minValues": {"offset": file.first, "journal": file.journal},
        "maxValues": {"offset": file.last, "journal": file.journal},
    }
    return AddAction(
        file.path,
        status.st_size,
        {"topic": file.topic, "date": file.date},
        int(status.st_mtime * 1000),
        True,
        json.dumps(statistics),
    )
