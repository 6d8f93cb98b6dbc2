"""The own catalog of a lake in an object store: of a table's metadata files, the one with the highest number counts.

``metadata/v<number>.metadata.json`` is created only if there is none, so of two commits to one version one is refused.
Programs that open tables by their folder, without a catalog, find them by these names and ``version-hint.text``.
"""

import json
import re
from contextlib import suppress
from typing import Any, NoReturn

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from fleximq.pipeline.lake.storage.object_store import ObjectStore
from fleximq.pipeline.lake.storage.store_access import icebergProperties

_VERSION = re.compile(r"v([0-9]+)\.metadata\.json")
_HINT = "version-hint.text"


class StoreCatalog(MetastoreCatalog):
    """The tables of a lake, each in the folder of its name."""

    def __init__(self, name: str, lake: str, namespace: str, store: ObjectStore) -> None:
        super().__init__(name, **icebergProperties(lake))
        self._lake, self._namespace, self._store = lake, namespace, store

    def _folder(self, identifier: str | Identifier) -> str:
        return f"{self._lake}/{self.identifier_to_tuple(identifier)[-1]}/metadata"

    def _newest(self, folder: str) -> int:
        found = (_VERSION.fullmatch(name) for name in self._store.names(folder))
        return max((int(match[1]) for match in found if match), default=0)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return a table; raises NoSuchTableError."""
        folder = self._folder(identifier)
        number = self._newest(folder)
        if not number:
            raise NoSuchTableError(f"there is no table in {folder}")
        location = f"{folder}/v{number}.metadata.json"
        io = self._load_file_io(location=location)
        metadata = FromInputFile.table_metadata(io.new_input(location))
        return Table(self.identifier_to_tuple(identifier), metadata, location, io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates to a table as it was loaded last; raises CommitFailedException if another was faster."""
        identifier = table.name()
        current: Table | None = None
        with suppress(NoSuchTableError):
            current = self.load_table(identifier)
        made = self._update_and_stage_table(current, identifier, requirements, updates)
        if current is not None and made.metadata == current.metadata:
            return _answer(current.metadata, current.metadata_location)
        folder = self._folder(identifier)
        match = None if current is None else _VERSION.search(current.metadata_location)
        number = 1 + (0 if match is None else int(match[1]))
        location = f"{folder}/v{number}.metadata.json"
        try:
            isDone = self._store.create(location, made.metadata.model_dump_json().encode())
            isSeen = isDone and self._isSeen(folder, number, made.metadata)
        except OSError as error:
            raise CommitStateUnknownException(str(error)) from error
        if not isDone:
            raise CommitFailedException("another commit came first")
        if not isSeen:
            raise CommitStateUnknownException("others have committed since, and have deleted older versions")
        with suppress(OSError):
            self._writeHint(folder)
        return _answer(made.metadata, location)

    def _writeHint(self, folder: str) -> None:
        """Write the number of the newest version; again if there is a newer one afterwards, since the slower of two
        commits may overwrite the hint of the other.
        """
        written = 0
        while (newest := self._newest(folder)) > written:
            self._store.put(f"{folder}/{_HINT}", b"%d" % newest)
            written = newest

    def _isSeen(self, folder: str, number: int, made: TableMetadata) -> bool:
        """Tell whether a version is the newest, or the next one was made from it. The table's properties may allow few
        old versions: where a number was deleted, it can be created again, hidden by the higher ones.
        """
        if self._newest(folder) == number:
            return True
        with suppress(FileNotFoundError):
            former = json.loads(self._store.get(f"{folder}/v{number + 1}.metadata.json")).get("metadata-log")
            return bool(former) and former[-1]["timestamp-ms"] == made.last_updated_ms
        return False

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Skip this step: the one namespace exists."""

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the one namespace."""
        return [] if namespace else [(self._namespace,)]

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """Return none."""
        return {}

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the tables of the lake."""
        names = [name for name in self._store.names(self._lake) if self._newest(f"{self._lake}/{name}/metadata")]
        return [(self._namespace, name) for name in names]

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        """Return none."""
        return []

    def view_exists(self, identifier: str | Identifier) -> bool:
        """Return False."""
        return False

    def _refused(self, *arguments: Any, **more: Any) -> NoReturn:
        raise NotImplementedError("the own catalog of a lake only has the tables that an ingest makes")

    create_table = register_table = drop_table = rename_table = drop_namespace = _refused
    update_namespace_properties = drop_view = load_view = register_view = _refused


def _answer(metadata: TableMetadata, location: str) -> CommitTableResponse:
    return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})
