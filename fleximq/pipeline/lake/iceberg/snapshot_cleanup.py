"""What no reader of an Iceberg table can need any longer goes: old snapshots first, then the files that none names.

A snapshot stays for a week after another one has taken its place, and longer where the table's property
``history.expire.max-snapshot-age-ms`` says so, so a reader that began before finishes. A file goes when no snapshot
names it and nobody has touched it for a week. Whatever ends this in between, the next one goes on.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.lake.iceberg.snapshots import localPath, opened, told
from fleximq.pipeline.lake.table.table_log import Exclusive

#: For so many seconds what has gone from a table stays on disk.
GRACE = 7 * 86_400.0
_AGE = "history.expire.max-snapshot-age-ms"
_METADATA = (".avro", ".metadata.json")


def removeUnused(table: str, now: float, files: Files, exclusive: Exclusive) -> int:
    """Expire the old snapshots of a table, delete what none of the others names, and return how many files that were.

    :param now: in seconds since 1970.
    :raises LakeRefused: it cannot be done.
    """
    with told(table):
        with exclusive():
            found = opened(table)
            if found is None:
                return 0
            over = overOf(found.metadata, now)
            if over:
                found.maintenance.expire_snapshots().by_ids(over).commit()
        # What is that old cannot come into a snapshot any more, so nobody has to wait meanwhile.
        unnamed = _unnamed(found, set(_old(table, now - GRACE)))
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


def overOf(metadata: TableMetadata, now: float) -> list[int]:
    """Return the ids of the snapshots that nobody can have begun to read for a week; never one that has a name."""
    ends = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    followed = [(each.parent_snapshot_id, each.timestamp_ms) for each in metadata.snapshots]
    followed += [(each.snapshot_id, after.timestamp_ms) for each, after in pairwise(metadata.snapshot_log)]
    for before, moment in followed:
        if before in ends:
            ends[before] = max(ends[before], moment)
    named = {reference.snapshot_id for reference in metadata.refs.values()}
    last = now * 1000 - max(GRACE * 1000, int(metadata.properties.get(_AGE, 0)))
    return [snapshot for snapshot, end in ends.items() if end <= last and snapshot not in named]


def _old(table: str, before: float) -> Iterator[str]:
    """Yield the files of days and of metadata that nobody has touched since."""
    table = os.path.realpath(table)
    for topic in os.scandir(table):
        if not topic.is_dir(follow_symlinks=False):
            continue
        if topic.name == "metadata":
            yield from _oldIn(topic.path, _METADATA, before)
        elif topic.name.startswith("topic="):
            for day in os.scandir(topic.path):
                if day.is_dir(follow_symlinks=False) and day.name.startswith("date="):
                    yield from _oldIn(day.path, (".parquet",), before)


def _oldIn(folder: str, endings: tuple[str, ...], before: float) -> Iterator[str]:
    for entry in os.scandir(folder):
        if entry.name.endswith(endings) and entry.is_file(follow_symlinks=False):
            state = entry.stat(follow_symlinks=False)
            if max(state.st_mtime, state.st_ctime) <= before:
                yield entry.path


def _unnamed(found: Table, paths: set[str]) -> set[str]:
    """Return those of some files that neither a snapshot nor the table's own metadata names."""
    folder = cache(os.path.realpath)

    def real(location: str) -> str:
        parent, name = os.path.split(localPath(location))
        return f"{folder(parent)}/{name}"

    left = paths - {real(each) for each in (found.metadata_location, *_earlier(found.metadata))}
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


def _earlier(metadata: TableMetadata) -> Iterator[str]:
    for each in metadata.metadata_log:
        yield each.metadata_file
