"""A table whose files Iceberg's metadata name: a batch is one commit, which sets the number as a property of the table.

The catalog is the one that PyIceberg's own settings call so, or a small database in the lake, ``iceberg.db``.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import Table

from fleximq.pipeline.lake.batch_commit import Placed
from fleximq.pipeline.lake.table.table_log import LogCommitter

#: The property that has the number of the last batch.
BATCH = "fleximq.batch"
#: The namespace of the tables, and the file of the lake's own catalog.
NAMESPACE, DATABASE = "lake", "iceberg.db"
# Payloads have no smallest and largest value on purpose, and PyIceberg would say so for each file.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)


def catalogOf(lake: str, name: str | None) -> Catalog:
    """Return the catalog that PyIceberg's settings call by this name, or the lake's own if None."""
    if name is not None:
        return load_catalog(name)
    return load_catalog("lake", type="sql", uri=f"sqlite:///{lake}/{DATABASE}", warehouse=f"file://{lake}")


class IcebergCommitter(LogCommitter):
    """Commits batches to one table, which the first one makes.

    :param form: what is kept of the table's format; ``catalog`` is the name of one, if there is one.
    """

    system = "Iceberg"

    def __init__(self, table: str, form: Mapping[str, Any]) -> None:
        super().__init__(table)
        self._form = form

    def _commit(self, batch: int, files: Sequence[Placed]) -> None:
        table = self.loaded()
        if int(table.properties.get(BATCH, -1)) >= batch:
            return
        with table.transaction() as transaction:
            transaction.set_properties({BATCH: str(batch)})
            transaction.add_files(
                [f"file://{self._table}/{each.path}" for each in files],
                snapshot_properties={BATCH: str(batch)},
                check_duplicate_files=False,
            )

    def loaded(self) -> Table:
        """Return the table with all columns that files may have; any error may be raised."""
        columns = self._columns()
        lake, name = os.path.split(self._table)
        catalog = catalogOf(lake, self._form.get("catalog"))
        try:
            table = catalog.load_table((NAMESPACE, name))
        except NoSuchTableError:
            return self._made(catalog, name, columns)
        known = {field.name for field in table.schema().fields}
        if any(field.name not in known or pa.types.is_nested(field.type) for field in columns):
            with table.update_schema() as update:
                update.union_by_name(columns)
        return table

    def _made(self, catalog: Catalog, name: str, schema: Any) -> Table:
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(NAMESPACE)
        table = catalog.create_table((NAMESPACE, name), schema, location=f"file://{self._table}")
        with table.update_spec() as update:
            update.add_identity("topic")
            update.add_field("timestamp", "day", "date")
        return table
