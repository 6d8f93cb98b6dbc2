"""The log of an Iceberg table: a batch is one snapshot, and its number is a property of the table.

A snapshot stays for a week after its successor, or longer if the property ``history.expire.max-snapshot-age-ms`` says
so, and then a file that no snapshot names for a week after its last change. Every step is safe to repeat after a crash.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise

import pyarrow as pa
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata

from fleximq.pipeline.errors import LakeRefused, plainError
from fleximq.pipeline.lake.iceberg import snapshots
from fleximq.pipeline.lake.iceberg.data_files import dataFilesOf
from fleximq.pipeline.lake.iceberg.iceberg_compaction import compactIceberg
from fleximq.pipeline.lake.locations import icebergLocation
from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from fleximq.pipeline.lake.table.file_names import BY_KEY, KEYS
from fleximq.pipeline.lake.table.format import layoutOf
from fleximq.pipeline.lake.table.table_log import (
    REPLACED_HOURS,
    Compacted,
    CompactionGoal,
    Exclusive,
    LiveFile,
    TableFile,
    TableLog,
    TableState,
    logErrors,
    untilCommitted,
)

#: The table properties that have the number of the last batch, and of the last other change.
BATCH, CHANGE = "fleximq.batch", "fleximq.change"
#: Seconds for which removed files stay on disk.
GRACE = 7 * 86_400.0
_AGE = "history.expire.max-snapshot-age-ms"


class IcebergLog(TableLog):
    """The metadata of one Iceberg table."""

    def commit(self, batch: int, files: Sequence[TableFile]) -> None:
        def attempt() -> None:
            table = snapshots.tableWithColumns(self._table, self._files)
            if int(table.properties.get(BATCH, -1)) >= batch:
                return
            made = dataFilesOf(table, self._urls(files), self._files)
            with snapshots.OnlyTransaction(table) as transaction:
                transaction.set_properties({BATCH: str(batch), **_mapping(table)})
                added = transaction.update_snapshot({BATCH: str(batch)})
                with added.merge_append() if _merges(table) else added.fast_append() as update:
                    for file in made:
                        update.append_data_file(file)

        with logErrors(self._table, "committed to Iceberg"):
            untilCommitted(attempt, (*snapshots.CONFLICTS, CommitStateUnknownException))

    def change(self, number: int, gone: Sequence[str], files: Sequence[TableFile]) -> None:
        removed = {f"{self._table}/{path}" for path in gone}

        def attempt() -> None:
            table = snapshots.tableWithColumns(self._table, self._files)
            if int(table.properties.get(CHANGE, -1)) >= number:
                return
            made = dataFilesOf(table, self._urls(files), self._files)
            with snapshots.OnlyTransaction(table) as transaction:
                transaction.set_properties({CHANGE: str(number), **_mapping(table)})
                with transaction.update_snapshot({CHANGE: str(number)}).overwrite() as update:
                    for each in snapshots.liveOf(table):
                        if each.path in removed:
                            update.delete_data_file(each.file)
                    for file in made:
                        update.append_data_file(file)

        with snapshots.icebergErrors(self._table):
            untilCommitted(attempt, (*snapshots.CONFLICTS, CommitStateUnknownException))

    def columns(self) -> Sequence[pa.Field]:
        with snapshots.icebergErrors(self._table):
            found = snapshots.openTable(self._table, self._files)
            return () if found is None else list(found.schema().as_arrow())

    def refusal(self, file: TableFile) -> str | None:
        with snapshots.icebergErrors(self._table):
            found = snapshots.tableWithColumns(self._table, self._files)
            try:
                dataFilesOf(found, self._urls([file]), self._files)
            except (OSError, MemoryError):
                raise  # the file is not the cause
            except Exception as error:
                return plainError(error)
        return None

    def _urls(self, files: Sequence[TableFile]) -> list[str]:
        return [icebergLocation(f"{self._table}/{each.path}") for each in files]

    def files(self) -> list[LiveFile]:
        with snapshots.icebergErrors(self._table):
            found = snapshots.openTable(self._table, self._files)
            live = [] if found is None else snapshots.liveOf(found)
            return [LiveFile(os.path.relpath(each.path, self._table), each.topic, each.day) for each in live]

    def state(self) -> TableState:
        with logErrors(self._table, "read by Iceberg"):
            found = snapshots.openTable(self._table, self._files)
            if found is None:
                raise LakeRefused(f"the table {self._table} has no batch yet")
            return snapshots.stateOf(found)

    def deleteDays(self, days: Sequence[Sequence[str]]) -> None:
        removed = {(topic, day) for topic, day in days}

        def selected(found: Table) -> tuple[list[DataFile], list[DataFile]]:
            return [each.file for each in snapshots.liveOf(found) if (each.topic, each.day) in removed], []

        with snapshots.icebergErrors(self._table):
            snapshots.replaceFiles(self._table, selected, self._files)

    def compact(
        self, goal: CompactionGoal, aside: str, files: LakeFiles, now: float, exclusive: Exclusive
    ) -> Iterator[Compacted]:
        yield from compactIceberg(self._table, goal, aside, files, now, exclusive)
        self.cleanUp(now, files, exclusive)

    def cleanUp(self, now: float, files: LakeFiles, exclusive: Exclusive) -> None:
        removeUnused(self._table, now, files, exclusive)


def _mapping(table: Table) -> dict[str, str]:
    """Return the property that a table needs, since our files have no ids of columns."""
    if table.name_mapping() is not None:
        return {}
    return {TableProperties.DEFAULT_NAME_MAPPING: table.schema().name_mapping.model_dump_json()}


def _merges(table: Table) -> bool:
    """Tell whether the table's properties ask for appends that merge manifests."""
    return table.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "false").lower() == "true"


def removeUnused(table: str, now: float, files: LakeFiles, exclusive: Exclusive) -> int:
    """Expire old snapshots, delete the files that no other names, and return their number; ``now`` is in seconds."""
    grace = REPLACED_HOURS * 3600.0 if layoutOf(table, files) == BY_KEY else GRACE
    with snapshots.icebergErrors(table):
        with exclusive():
            found = snapshots.openTable(table, files)
            if found is None:
                return 0
            over = expiredSnapshots(found.metadata, now, grace)
            if over:
                found.maintenance.expire_snapshots().by_ids(over).commit()
        # Files this old cannot become part of a snapshot any more, so the lock is not needed here.
        unnamed = _unnamed(found, set(_old(table, now - grace, files)))
        for path in sorted(unnamed):
            with suppress(FileNotFoundError):
                files.remove(path)
        folders = {os.path.dirname(path) for path in unnamed if path.endswith(".parquet")}
        # An interrupted batch may need its folder; it is completed first.
        with exclusive():
            for folder in folders:
                with suppress(OSError):
                    os.rmdir(folder)
                    os.rmdir(os.path.dirname(folder))
    return len(unnamed)


def expiredSnapshots(metadata: TableMetadata, now: float, grace: float = GRACE) -> list[int]:
    """Return the ids of the snapshots that were replaced more than ``grace`` seconds ago and have no tag or branch."""
    ends = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    followed = [(each.parent_snapshot_id, each.timestamp_ms) for each in metadata.snapshots]
    followed += [(each.snapshot_id, after.timestamp_ms) for each, after in pairwise(metadata.snapshot_log)]
    for before, moment in followed:
        if before in ends:
            ends[before] = max(ends[before], moment)
    named = {reference.snapshot_id for reference in metadata.refs.values()}
    last = now * 1000 - max(grace * 1000, int(metadata.properties.get(_AGE, 0)))
    return [snapshot for snapshot, end in ends.items() if end <= last and snapshot not in named]


def _old(table: str, before: float, files: LakeFiles) -> Iterator[str]:
    """Yield the files of days, of keys, and of metadata that are unchanged since then."""
    for path, changed in files.dated(table):
        folder = path.split("/")[-2]
        isData = (folder.startswith("date=") or folder == KEYS) and path.endswith(".parquet")
        if changed <= before and (isData or (folder == "metadata" and path.endswith((".avro", ".metadata.json")))):
            yield path


def _unnamed(found: Table, paths: set[str]) -> set[str]:
    """Return those of the files that neither a snapshot nor the table's own metadata names."""
    folder = cache(snapshots.realPath)

    def real(location: str) -> str:
        parent, name = os.path.split(snapshots.localPath(location))
        return f"{folder(parent)}/{name}"

    earlier = [each.metadata_file for each in found.metadata.metadata_log]
    left = paths - {real(each) for each in (found.metadata_location, *earlier)}
    known: set[str] = set()
    for snapshot in sorted(found.metadata.snapshots, key=lambda each: -each.timestamp_ms):
        if not left:
            break
        left.discard(real(snapshot.manifest_list))
        for manifest in snapshot.manifests(found.io):
            if manifest.manifest_path in known:
                continue
            known.add(manifest.manifest_path)
            left.discard(real(manifest.manifest_path))
            for entry in manifest.fetch_manifest_entry(found.io, discard_deleted=True):
                left.discard(real(entry.data_file.file_path))
    return left
