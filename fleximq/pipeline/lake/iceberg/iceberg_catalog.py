"""The Iceberg catalog of a lake, and the tables in it.

The catalog is one that PyIceberg's own settings name, or an SQLite database in the lake, ``iceberg.db``.
"""

import logging
import os
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import Table

from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.format import formatOf

#: The namespace of the tables, and the file of the lake's own catalog.
NAMESPACE, DATABASE = "lake", "iceberg.db"
# Payload columns have no minimum and maximum on purpose; PyIceberg would warn for each file.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)


def catalogOf(lake: str, name: str | None) -> Catalog:
    """Return the catalog of this name in PyIceberg's settings, or the lake's own for None."""
    if name is not None:
        return load_catalog(name)
    return load_catalog("lake", type="sql", uri=f"sqlite:///{lake}/{DATABASE}", warehouse=f"file://{lake}")


def tableWithColumns(table: str) -> Table:
    """Return a table with all columns that its files may have, created if it is missing; may raise any error."""
    columns = requiredColumns(table).schema
    lake, name = os.path.split(table)
    catalog = catalogOf(lake, formatOf(table).get("catalog"))
    try:
        found = catalog.load_table((NAMESPACE, name))
    except NoSuchTableError:
        return _create(catalog, table, columns)
    known = {field.name for field in found.schema().fields}
    if any(field.name not in known or pa.types.is_nested(field.type) for field in columns):
        with found.update_schema() as update:
            update.union_by_name(columns)
    return found


def _create(catalog: Catalog, table: str, schema: Any) -> Table:
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(NAMESPACE)
    created = catalog.create_table((NAMESPACE, os.path.basename(table)), schema, location=f"file://{table}")
    with created.update_spec() as update:
        update.add_identity("topic")
        update.add_field("timestamp", "day", "date")
    return created
