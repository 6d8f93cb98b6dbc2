"""The log of a Delta Lake table: a batch is one commit, and its number is the version of a Delta transaction."""

import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction, create_table_with_add_actions

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_names import DATE
from fleximq.pipeline.lake.table.format import layoutOf
from fleximq.pipeline.lake.table.parquet_writer import rowsByJournal, topicRange
from fleximq.pipeline.lake.table.table_log import Exclusive, TableFile, TableLog, logErrors

#: The application id of Delta transactions; batch numbers belong to it.
APPLICATION = "fleximq-ingest"
#: The same for changes that are no batches.
CHANGE = "fleximq-change"
_Result = TypeVar("_Result")


class DeltaLog(TableLog):
    """The log of one Delta Lake table; the first commit creates it."""

    system = "Delta Lake"

    def _commit(self, batch: int, files: Sequence[TableFile]) -> None:
        self._apply(APPLICATION, batch, (), files)

    def _change(self, number: int, gone: Sequence[str], files: Sequence[TableFile]) -> None:
        self._apply(CHANGE, number, gone, files)

    def _apply(self, application: str, number: int, gone: Sequence[str], files: Sequence[TableFile]) -> None:
        schema = self._schema()
        properties = CommitProperties(app_transactions=[Transaction(application, number)])
        added = [_added(self._table, each) for each in files]
        try:
            table = DeltaTable(self._table)
        except TableNotFoundError:
            create_table_with_add_actions(
                self._table, schema, added, partition_by=self._partitions, commit_properties=properties
            )
            return
        done = table.transaction_version(application)
        if done is not None and done >= number:
            return
        if sorted(map(str, table.schema().fields)) != sorted(map(str, schema.fields)):
            # Only this call also adds nested fields; it writes no row.
            nothing = pa.schema(schema.to_arrow()).empty_table()
            write_deltalake(table, nothing, mode="append", schema_mode="merge")
            table.update_incremental()
        actions: list[AddAction | RemoveAction] = [*added, *_removed(table, set(gone))]
        table.create_write_transaction(actions, "append", schema, self._partitions, commit_properties=properties)

    @property
    def _partitions(self) -> list[str]:
        return ["date"] if layoutOf(self._table) == DATE else ["topic", "date"]

    def _schema(self) -> Schema:
        return Schema.from_arrow(requiredColumns(self._table).schema.append(pa.field("date", pa.date32())))

    def files(self) -> list[tuple[str, str]]:
        def listed(found: DeltaTable) -> list[tuple[str, str]]:
            return [(each.path, each.topic) for each in _live(found)]

        return self._with(listed, [])

    def days(self) -> list[tuple[str, str]]:
        return self._with(lambda found: [(each["topic"], str(each["date"])) for each in found.partitions()], [])

    def rows(self, days: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, int]]:
        return {day: rowsByJournal(self._with(partial(_files, *day), [])) for day in days}

    def deleteDays(self, days: Sequence[Sequence[str]]) -> None:
        def delete(found: DeltaTable) -> None:
            for topic, day in days:
                quoted = topic.replace("'", "''")
                found.delete(f"topic = '{quoted}' AND date = DATE '{day}'")

        self._with(delete, None)

    def cleanUp(self, now: float, files: Files, exclusive: Exclusive) -> None:
        self._with(lambda found: found.vacuum(dry_run=False), None)

    def _with(self, work: Callable[[DeltaTable], _Result], otherwise: _Result) -> _Result:
        """Return the result of ``work`` on the table, ``otherwise`` before its first batch."""
        with logErrors(self._table, "changed by Delta Lake"):
            try:
                return work(DeltaTable(self._table))
            except TableNotFoundError:
                return otherwise


def _files(topic: str, day: str, found: DeltaTable) -> list[str]:
    return found.file_uris([("topic", "=", topic), ("date", "=", day)])


class _LiveFile(NamedTuple):
    """A file that the log names; ``path`` is as on disk."""

    path: str
    topic: str
    date: str
    bytes: int


def _live(table: DeltaTable) -> list[_LiveFile]:
    found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        # The log has paths as URLs.
        _LiveFile(
            unquote(each["path"]), each.get("partition.topic", ""), str(each["partition.date"]), each["size_bytes"]
        )
        for each in found
    ]


def _removed(table: DeltaTable, gone: set[str]) -> list[RemoveAction]:
    now = int(time.time() * 1000)
    return [
        RemoveAction(each.path, True, now, each.bytes, _partition(each.topic, each.date))
        for each in (_live(table) if gone else ())
        if each.path in gone
    ]


def _partition(topic: str, date: str) -> dict[str, str | None]:
    return {"topic": topic, "date": date} if topic else {"date": date}


def _added(table: str, file: TableFile) -> AddAction:
    status = os.stat(f"{table}/{file.path}")
    low: dict[str, object] = {"offset": file.first, "journal": file.journal}
    high: dict[str, object] = {"offset": file.last, "journal": file.journal}
    if not file.topic:
        low["topic"], high["topic"] = topicRange(f"{table}/{file.path}")
    statistics = {"numRecords": file.rows, "minValues": low, "maxValues": high}
    return AddAction(
        file.path,
        status.st_size,
        _partition(file.topic, file.date),
        int(status.st_mtime * 1000),
        True,
        json.dumps(statistics),
    )
