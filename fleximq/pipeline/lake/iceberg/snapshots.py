"""Opens the Iceberg tables of a lake, lists their live files, and replaces them in one snapshot, deleting none."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg import exceptions
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table, Transaction

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.iceberg.catalogs import catalogOf, checkCatalog, isMade, located, makeNamespace
from fleximq.pipeline.lake.locations import icebergLocation
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_names import BY_KEY, DATE, dateOf
from fleximq.pipeline.lake.table.format import layoutOf
from fleximq.pipeline.lake.table.ledger import checkIsNew
from fleximq.pipeline.lake.table.table_log import TableState, logErrors, untilCommitted

# Payload columns have no minimum and maximum on purpose; PyIceberg would warn for each file.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)


def tableWithColumns(table: str, files: LakeFiles = FILES) -> Table:
    """Return a table with all columns that its files may have, created if it is missing; may raise any error."""
    columns = requiredColumns(table, files).schema
    catalog, name = located(table, files)
    try:
        found = catalog.load_table(name)
    except exceptions.NoSuchTableError:
        checkIsNew(table, files)
        makeNamespace(catalog, name[:-1])
        # In one step: a table without these partitions could not be used.
        with suppress(exceptions.TableAlreadyExistsError):
            location = icebergLocation(table)
            with catalog.create_table_transaction(name, columns, location=location) as created:
                if (layout := layoutOf(table, files)) != BY_KEY:
                    with created.update_spec() as update:
                        if layout != DATE:
                            update.add_identity("topic")
                        update.add_field("timestamp", "day", "date")
        found = catalog.load_table(name)
    known = {field.name: str(field.field_type) for field in found.schema().fields}
    if any(field.name not in known or _mayBeWider(field.type, known[field.name]) for field in columns):
        with found.update_schema() as change:
            change.union_by_name(columns)
    return found


def _mayBeWider(dataType: pa.DataType, known: str) -> bool:
    """Tell whether a column's type may be wider than the one that Iceberg knows, or have more fields."""
    if known in ("int", "float"):
        return dataType in (pa.int64(), pa.float64())
    if pa.types.is_decimal(dataType):
        return known != f"decimal({dataType.precision}, {dataType.scale})"
    return bool(pa.types.is_nested(dataType))


#: Errors of a commit that was not made, since another one was faster.
CONFLICTS = (exceptions.CommitFailedException, exceptions.ValidationException)


class OnlyTransaction(Transaction):
    """A transaction that fails if another commit is faster. PyIceberg's own would be committed after that one, even if
    it has the same files, by another process. PyIceberg first looks whether that commit was its own (a lost answer).
    """

    def _rebuild_snapshot_updates(self) -> None:
        raise exceptions.CommitFailedException("another commit came first")


class SnapshotFile(NamedTuple):
    """A file of the current snapshot: its path, its topic, empty in a layout by day, and its day (``YYYY-MM-DD``)."""

    path: str
    topic: str
    day: str
    file: DataFile


#: Takes the current table; returns the files to remove and the files to add.
Change = Callable[[Table], tuple[Sequence[DataFile], Sequence[DataFile]]]
#: Turns any error into one sentence.
icebergErrors = partial(logErrors, words="changed by Iceberg")


def openTable(table: str, files: LakeFiles = FILES) -> Table | None:
    """Return a table, None before its first batch; raises LakeRefused if it has moved, as in a copied lake."""
    if not isMade(table, files):
        # A reader has perhaps no right to make the catalog.
        return None
    catalog, name = located(table, files)
    try:
        found = catalog.load_table(name)
    except exceptions.NoSuchTableError:
        return None
    if realPath(localPath(found.location())) != realPath(table):
        raise LakeRefused(f"the table {table} is at {found.location()} by its catalog: call it so, or leave it alone")
    return found


def realPath(path: str) -> str:
    """Return a local path without links, or a URL as it is."""
    return path if "://" in path else os.path.realpath(path)


def localPath(location: str) -> str:
    """Return the local path of a file that metadata name, or its URL; raises LakeRefused for another machine."""
    if "://" in location and not location.startswith("file:"):
        return location.rstrip("/")
    scheme, host = urlsplit(location)[:2]
    path = location.removeprefix("file:")
    if scheme not in ("", "file") or host or not path.startswith("/"):
        raise LakeRefused(f"{location} is not on this machine's file system")
    # Percent escapes stay: metadata have the path as it is on disk.
    return "/" + path.strip("/")


def liveOf(found: Table) -> list[SnapshotFile]:
    """Return the files of the current snapshot; raises LakeRefused if a file belongs to no topic and day."""
    live = []
    for manifest in _manifests(found):
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(found.io, discard_deleted=True):
            file = entry.data_file
            if not found.spec().fields:  # a table of the latest rows
                live.append(SnapshotFile(localPath(file.file_path), "", "", file))
                continue
            fields = found.specs()[file.spec_id].fields
            values = {field.name: file.partition[place] for place, field in enumerate(fields)}
            date, topic = values.pop("date", None), values.pop("topic", "")
            if values or not isinstance(topic, str) or not isinstance(date, int):
                raise LakeRefused(f"{file.file_path} belongs to no topic and day: who wrote it has to look after it")
            live.append(SnapshotFile(localPath(file.file_path), topic, dateOf(date), file))
    return live


def _manifests(found: Table) -> Sequence[ManifestFile]:
    snapshot = found.current_snapshot()
    return () if snapshot is None else snapshot.manifests(found.io)


def rowsAreDeleted(found: Table) -> bool:
    """Tell whether another engine has marked single rows as deleted."""
    return any(manifest.content == ManifestContent.DELETES for manifest in _manifests(found))


def replaceFiles(table: str, wanted: Change, files: LakeFiles = FILES) -> bool:
    """Replace files in one snapshot, False without a change; the caller holds the table's lock. ``wanted`` is called
    again after changes by others; if all tries fail, one of :data:`CONFLICTS` is raised.
    """
    isDone = False

    def attempt() -> None:
        nonlocal isDone
        found = openTable(table, files)
        gone, made = wanted(found) if found is not None else ((), ())
        if found is None or not gone:
            return
        with OnlyTransaction(found) as update, update.update_snapshot().overwrite() as snapshot:
            for file in gone:
                snapshot.delete_data_file(file)
            for file in made:
                snapshot.append_data_file(file)
        isDone = True

    untilCommitted(attempt, CONFLICTS)
    return isDone


def stateOf(found: Table) -> TableState:
    """Return the state of a table by its catalog, as other programs see it."""
    snapshot = found.current_snapshot()
    summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    rows, files = (int(summary.get(f"total-{name}", 0)) for name in ("records", "data-files"))
    columns = {field.name: str(field.field_type) for field in found.schema().fields}
    catalog = ".".join((found.catalog.name, *found.name()))
    number = None if snapshot is None else snapshot.snapshot_id
    return TableState(found.location(), catalog, number, rows, files, columns)


def statesIn(named: str, namespace: str, names: Sequence[str] | None) -> Iterator[tuple[str, TableState]]:
    """Yield the tables of a catalog's namespace, or those with some names; raises LakeRefused."""
    checkCatalog(named)
    with logErrors(f"{namespace} of the catalog {named}", "read by Iceberg"):
        catalog = catalogOf("", named)
        for identifier in sorted(catalog.list_tables(tuple(namespace.split(".")))):
            if not names or identifier[-1] in names:
                yield identifier[-1], stateOf(catalog.load_table(identifier))
