"""A table whose files a log of Delta Lake names: a batch is one commit, its number that of a transaction."""

import json
import os
from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction, create_table_with_add_actions

from fleximq.pipeline.lake.batch_commit import Placed
from fleximq.pipeline.lake.table.table_log import LogCommitter

#: Who writes: what the numbers of batches belong to.
APPLICATION = "fleximq-ingest"
_PARTITIONS = ["topic", "date"]


class DeltaCommitter(LogCommitter):
    """Commits batches to the log of one table, which the first one makes."""

    system = "Delta Lake"

    def _commit(self, batch: int, files: Sequence[Placed]) -> None:
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
            # The one way that also adds fields within columns; it writes no row.
            nothing = pa.schema(schema.to_arrow()).empty_table()
            write_deltalake(table, nothing, mode="append", schema_mode="merge")
            table.update_incremental()
        actions: list[AddAction | RemoveAction] = [*added]
        table.create_write_transaction(actions, "append", schema, _PARTITIONS, commit_properties=properties)

    def _schema(self) -> Schema:
        return Schema.from_arrow(self._columns().append(pa.field("date", pa.date32())))


def _added(table: str, file: Placed) -> AddAction:
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
