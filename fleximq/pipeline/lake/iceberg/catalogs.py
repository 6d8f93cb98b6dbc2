"""Finds the catalog of an Iceberg table, as the table's record of its format says. By default it is the lake's own, an
SQLite database, ``iceberg.db``, or in an object store the numbered metadata of each table. Otherwise it is one of
PyIceberg's settings, by its name, or one at a URL, which gets the other settings of the name ``lake``. Credentials are
in PyIceberg's settings, never in a record of ours.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from sqlalchemy import URL

from fleximq.pipeline.errors import LakeRefused, plainError
from fleximq.pipeline.lake.locations import icebergLocation
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.store_access import icebergProperties
from fleximq.pipeline.lake.table.format import NAMESPACE, formatOf

#: The file of a lake's own catalog, and its name, which is that of all catalogs at a URL.
DATABASE, NAME = "iceberg.db", "lake"


def catalogOf(lake: str, named: str | None, files: LakeFiles = FILES) -> Catalog:
    """Return the catalog of this name or URL, or the lake's own for None; raises errors of any class."""
    if named is not None:
        return _catalog(named, lake, os.getpid())
    if (store := files.store(lake)) is not None:
        from fleximq.pipeline.lake.iceberg.store_catalog import StoreCatalog

        return StoreCatalog(NAME, lake, NAMESPACE, store)
    # A text would be decoded as a URL.
    database: Any = URL.create("sqlite", database=f"{lake}/{DATABASE}")
    return load_catalog(NAME, type="sql", uri=database, warehouse=icebergLocation(lake))


@lru_cache(maxsize=4)
def _catalog(named: str, lake: str, process: int) -> Catalog:
    """Return a catalog for a lake; each holds connections, which processes cannot share."""
    # A restarted database has closed its connections: each is tried before it is used.
    own = {"pool_pre_ping": "true", **icebergProperties(lake)}
    return load_catalog(NAME, uri=named, **own) if "://" in named else load_catalog(named, **own)


def namespaceOf(form: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of the namespace that a record of a format names."""
    return tuple(str(form.get("namespace", NAMESPACE)).split("."))


def located(table: str, files: LakeFiles = FILES) -> tuple[Catalog, tuple[str, ...]]:
    """Return the catalog of a table, and its name there; raises errors of any class."""
    lake, name = os.path.split(table)
    form = formatOf(table, files)
    return catalogOf(lake, form.get("catalog"), files), (*namespaceOf(form), name)


def isMade(table: str, files: LakeFiles = FILES) -> bool:
    """Tell whether a table's catalog exists; a lake's own is made by the first batch."""
    if formatOf(table, files).get("catalog") is not None or files.store(table) is not None:
        return True
    return os.path.exists(f"{os.path.dirname(table)}/{DATABASE}")


def checkCatalog(named: str, lake: str = "", namespace: str | None = None) -> None:
    """Make a namespace if it is missing; raises LakeRefused if the catalog does not answer, or refuses to."""
    try:
        catalog = _catalog(named, lake, os.getpid())
        if namespace is None:
            catalog.list_namespaces()
        else:
            makeNamespace(catalog, tuple(namespace.split(".")))
    except Exception as error:
        shown = urlsplit(named)._replace(query="").geturl() if "://" in named else named
        raise LakeRefused(f"the catalog {shown} does not answer: {plainError(error)}") from error


def makeNamespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    """Make a namespace unless it exists; raises errors of any class."""
    if not catalog.namespace_exists(namespace):
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(namespace)
