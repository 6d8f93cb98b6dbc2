"""The log of a Delta Lake table: a batch is one commit, and its number is the version of a Delta transaction."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction, create_table_with_add_actions

from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from fleximq.pipeline.lake.storage.store_access import storageOptions
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_names import BY_KEY, DATE
from fleximq.pipeline.lake.table.format import layoutOf
from fleximq.pipeline.lake.table.ledger import checkIsNew
from fleximq.pipeline.lake.table.table_log import (
    REPLACED_HOURS,
    Exclusive,
    LiveFile,
    TableFile,
    TableLog,
    TableState,
    logErrors,
    untilCommitted,
)

#: The application ids of Delta transactions to which the numbers of batches and of other changes belong.
APPLICATION, CHANGE = "fleximq-ingest", "fleximq-change"
_CHANGED = "changed by Delta Lake"
_CONFLICTS = (CommitFailedError,)


class DeltaLog(TableLog):
    """The log of one Delta Lake table; the first commit creates it."""

    def commit(self, batch: int, files: Sequence[TableFile]) -> None:
        with logErrors(self._table, "committed to Delta Lake"):
            untilCommitted(lambda: self._apply(APPLICATION, batch, (), files), _CONFLICTS)

    def change(self, number: int, gone: Sequence[str], files: Sequence[TableFile]) -> None:
        with logErrors(self._table, _CHANGED):
            untilCommitted(lambda: self._apply(CHANGE, number, gone, files), _CONFLICTS)

    def _apply(self, application: str, number: int, gone: Sequence[str], files: Sequence[TableFile]) -> None:
        layout, columns = layoutOf(self._table, self._files), requiredColumns(self._table, self._files).schema
        folders = {DATE: ["date"], BY_KEY: []}.get(layout, ["topic", "date"])
        schema = Schema.from_arrow(columns if layout == BY_KEY else columns.append(pa.field("date", pa.date32())))
        properties = CommitProperties(app_transactions=[Transaction(application, number)])
        added = [_added(self._table, each, self._files) for each in files]
        try:
            table = deltaTable(self._table)
        except TableNotFoundError:
            checkIsNew(self._table, self._files)
            options = storageOptions(self._table)
            create_table_with_add_actions(
                self._table, schema, added, partition_by=folders, storage_options=options, commit_properties=properties
            )
            return
        done = table.transaction_version(application)
        if done is not None and done >= number:
            return
        known = set(map(str, table.schema().fields))
        if grown := [field for field in schema.fields if str(field) not in known]:
            table.alter.add_columns(grown)
            table.update_incremental()
        leaving = set(gone)
        removed = _removed(table, lambda file: file.path in leaving) if gone else []
        table.create_write_transaction([*added, *removed], "append", schema, folders, commit_properties=properties)

    def files(self) -> list[LiveFile]:
        with logErrors(self._table, _CHANGED):
            try:
                return [file for file, _ in _live(deltaTable(self._table))]
            except TableNotFoundError:
                return []

    def state(self) -> TableState:
        with logErrors(self._table, "read by Delta Lake"):
            found = deltaTable(self._table)
            types = {each["name"]: each["type"] for each in json.loads(found.schema().to_json())["fields"]}
            columns = {name: each if isinstance(each, str) else json.dumps(each) for name, each in types.items()}
            actions = [each["num_records"] for _, each in _actions(found)]
            rows = sum(each or 0 for each in actions)
            return TableState(found.table_uri, None, found.version(), rows, len(actions), columns)

    def deleteDays(self, days: Sequence[Sequence[str]]) -> None:
        with logErrors(self._table, _CHANGED), suppress(TableNotFoundError):
            found = deltaTable(self._table)
            # deltalake deletes by a query, which fails in folders with some characters.
            gone = {tuple(day) for day in days}
            if removed := _removed(found, lambda file: (file.topic, file.date) in gone):
                found.create_write_transaction(removed, "append", found.schema(), found.metadata().partition_columns)

    def cleanUp(self, now: float, files: LakeFiles, exclusive: Exclusive) -> None:
        with logErrors(self._table, _CHANGED), suppress(TableNotFoundError):
            found = deltaTable(self._table)
            if layoutOf(self._table, self._files) == BY_KEY:
                found.vacuum(REPLACED_HOURS, dry_run=False, enforce_retention_duration=False)
                return
            found.vacuum(dry_run=False)
            with exclusive():
                _removeBounds(deltaTable(self._table))


def deltaTable(table: str) -> DeltaTable:
    """Return a table, with access to its store; raises TableNotFoundError."""
    return DeltaTable(table, storage_options=storageOptions(table))


def _removed(table: DeltaTable, isGone: Callable[[LiveFile], bool]) -> list[AddAction | RemoveAction]:
    """Return the actions that remove some files from the log."""
    now = int(time.time() * 1000)
    return [
        RemoveAction(file.path, True, now, size, _partition(file.topic, file.date))
        for file, size in _live(table)
        if isGone(file)
    ]


def _live(table: DeltaTable) -> list[tuple[LiveFile, int]]:
    """Return the files that the log names, and their bytes."""
    return [(file, each["size_bytes"]) for file, each in _actions(table)]


def _actions(table: DeltaTable) -> Iterator[tuple[LiveFile, dict[str, Any]]]:
    """Yield the files that the log names, each with its entry in the log."""
    for each in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        # The log has paths as URLs.
        path, topic, date = unquote(each["path"]), each.get("partition.topic", ""), str(each.get("partition.date", ""))
        yield LiveFile(path, topic, date), each


def _removeBounds(table: DeltaTable) -> None:
    """Remove the bounds of files that earlier versions wrote into the log, by naming these files again."""
    named: list[AddAction | RemoveAction] = [
        _addAction(file, each["num_records"], each["size_bytes"], each["modification_time"], isNew=False)
        for file, each in _actions(table)
        if each.get("min.offset") is not None and each["num_records"] is not None
    ]
    if named:
        folders = table.metadata().partition_columns
        table.create_write_transaction(named, "append", table.schema(), folders)


def _partition(topic: str, date: str) -> dict[str, str | None]:
    return {name: value for name, value in (("topic", topic), ("date", date)) if value}


def _added(table: str, file: TableFile, files: LakeFiles) -> AddAction:
    state = files.state(f"{table}/{file.path}")
    return _addAction(file, file.rows, state.bytes, int(state.changed * 1000), isNew=True)


def _addAction(file: TableFile | LiveFile, rows: int, size: int, changed: int, isNew: bool) -> AddAction:
    # If only some columns had bounds, deltalake would take the others for columns without values, and lose rows.
    statistics = json.dumps({"numRecords": rows})
    return AddAction(file.path, size, _partition(file.topic, file.date), changed, isNew, statistics)
