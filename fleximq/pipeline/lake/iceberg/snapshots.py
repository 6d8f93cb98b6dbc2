"""What an Iceberg table has now, and how files leave it or others take their place: each change is one snapshot.

Nothing is deleted here: who reads an older snapshot finds its files (see
:mod:`fleximq.pipeline.lake.iceberg.snapshot_cleanup`).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.iceberg.iceberg_catalog import NAMESPACE, catalogOf
from fleximq.pipeline.lake.table.file_names import dateOf
from fleximq.pipeline.lake.table.format import formatOf

#: So often a change is tried while others commit to the table as well.
TRIES = 5


class LiveFile(NamedTuple):
    """A file of the current snapshot: where it stands, and whose day it has (``YYYY-MM-DD``)."""

    path: str
    topic: str
    day: str
    file: DataFile


#: Given the table as it is now: what takes the place of what.
Change = Callable[[Table], tuple[Sequence[DataFile], Sequence[DataFile]]]


@contextmanager
def told(table: str) -> Iterator[None]:
    """Let whatever goes wrong with a table be one sentence.

    :raises LakeRefused: something did.
    """
    try:
        yield
    except LakeRefused:
        raise
    except Exception as error:
        raise LakeRefused(f"the table {table} cannot be changed by Iceberg: {error}") from error


def opened(table: str) -> Table | None:
    """Return a table as it is now; None before its first batch.

    :raises LakeRefused: its metadata say that it stands elsewhere, so nobody could tell which files they name.
    """
    lake, name = os.path.split(table)
    try:
        found = catalogOf(lake, formatOf(table).get("catalog")).load_table((NAMESPACE, name))
    except NoSuchTableError:
        return None
    if os.path.realpath(localPath(found.location())) != os.path.realpath(table):
        raise LakeRefused(f"the table {table} is at {found.location()} by its catalog: call it so, or leave it alone")
    return found


def localPath(location: str) -> str:
    """Return where a file stands that metadata name.

    :raises LakeRefused: it is not on this machine.
    """
    scheme, host = urlsplit(location)[:2]
    path = location.removeprefix("file:")
    if scheme not in ("", "file") or host or not path.startswith("/"):
        raise LakeRefused(f"{location} is not on this machine's file system")
    # No part of a name is undone: what metadata have is the path as it is written.
    return "/" + path.strip("/")


def liveOf(found: Table) -> list[LiveFile]:
    """Return the files of the current snapshot.

    :raises LakeRefused: one belongs to no topic and day.
    """
    live = []
    snapshot = found.current_snapshot()
    for manifest in snapshot.manifests(found.io) if snapshot is not None else ():
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(found.io, discard_deleted=True):
            file = entry.data_file
            fields = found.specs()[file.spec_id].fields
            values = {field.name: file.partition[place] for place, field in enumerate(fields)}
            topic, date = values.get("topic"), values.get("date")
            if len(values) != 2 or not isinstance(topic, str) or not isinstance(date, int):
                raise LakeRefused(f"{file.file_path} belongs to no topic and day: who wrote it has to look after it")
            live.append(LiveFile(localPath(file.file_path), topic, dateOf(date), file))
    return live


def rowsAreDeleted(found: Table) -> bool:
    """Tell whether there are files of somebody else that say which rows do not count any more."""
    snapshot = found.current_snapshot()
    return snapshot is not None and any(
        manifest.content == ManifestContent.DELETES for manifest in snapshot.manifests(found.io)
    )


def change(table: str, wanted: Change) -> bool:
    """Replace files by one snapshot; what to replace is asked for anew when somebody else has changed the table.

    The caller holds the table's lock. Returns False if nothing was wanted, or there is no table yet.

    :raises CommitFailedException: others changed it each time; nothing has changed.
    :raises ValidationException: likewise.
    """
    for left in reversed(range(TRIES)):
        found = opened(table)
        if found is None:
            return False
        gone, made = wanted(found)
        if not gone:
            return False
        try:
            with found.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
                for file in gone:
                    update.delete_data_file(file)
                for file in made:
                    update.append_data_file(file)
            return True
        except (CommitFailedException, ValidationException):
            if not left:
                raise
    return False
