"""Decodes the payloads of a table again with its present columns: dead letters and older rows get what now fits.

Each file whose rows would be different is replaced, together with others in one change. So a run that was killed loses
no row and repeats none; the next run finds the files that are left.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
from fleximq.pipeline.lake.batch_commit import exclusive, writing
from fleximq.pipeline.lake.ingest_task import RowDecoder, undead
from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.file_names import OWN
from fleximq.pipeline.lake.table.lock import compactorLock
from fleximq.pipeline.lake.table.parquet_writer import StagingWriter
from fleximq.pipeline.lake.table.table_log import TableFile
from fleximq.pipeline.lake.table.table_spec import TableSpec
from fleximq.pipeline.lake.table_change import TableChange, commitChange
from fleximq.pipeline.payloads.decoder import STRUCTURED

STAGED = "redecoding"
#: About the bytes of files that one change replaces, and their greatest number.
CHANGE_BYTES, CHANGE_FILES = 256 << 20, 1000


class Redecoded(NamedTuple):
    """The result so far: files looked at and replaced; dead letters brought back, and those that remain."""

    files: int
    replaced: int
    back: int
    dead: int


class _Replacement(NamedTuple):
    """A file's new files, and by how many its dead letters change, by journal."""

    path: str
    inode: int
    made: list[TableFile]
    dead: Counter[str]


def redecode(table: str, spec: TableSpec, files: Files | None = None) -> Iterator[Redecoded]:
    """Replace the files of a table whose payloads decode to other rows now; yield the progress after each file. Raises
    LakeRefused if the table cannot be written, is damaged, or another run rewrites its files.
    """
    files = files or Files()
    aside = f"{table}/{OWN}/{STAGED}"
    with compactorLock(table, files), writing(table):
        with exclusive(table, files):
            # A change that was interrupted is complete now, and needs none of these.
            shutil.rmtree(aside, ignore_errors=True)
        files.makeFolder(aside)
        decode, schema = RowDecoder(spec, columns := requiredColumns(table, files)), columns.schema
        waiting: list[_Replacement] = []
        seen = replaced = back = dead = 0
        # Other formats have no columns that could be mended.
        for path, topic in liveFiles(table) if spec.decode in STRUCTURED else ():
            try:
                found, left = _decodedAgain(table, path, topic, decode, schema)
            except FileNotFoundError:
                # It has expired in the meantime.
                continue
            seen, dead = seen + 1, dead + left
            if found is not None:
                waiting.append(found)
                back -= sum(found.dead.values())
            if len(waiting) >= CHANGE_FILES or sum(e.bytes for each in waiting for e in each.made) >= CHANGE_BYTES:
                replaced += _replace(table, waiting, files)
                waiting = []
            yield Redecoded(seen, replaced, back, dead)
        replaced += _replace(table, waiting, files)
        shutil.rmtree(aside)
    yield Redecoded(seen, replaced, back, dead)


def _decodedAgain(
    table: str, path: str, topic: str, decode: RowDecoder, schema: pa.Schema
) -> tuple[_Replacement | None, int]:
    """Return a file's replacement, None if its rows stay as they are, and the number of dead letters among its rows."""
    inode = os.stat(f"{table}/{path}").st_ino
    left, isSame = 0, True
    for rows in rowGroups(table, path, topic):
        before, again = _again(rows, decode, schema)
        left += again.num_rows - again.column("reason").null_count
        isSame = isSame and again.equals(before)
    if isSame:
        return None, left
    writers: dict[str, StagingWriter] = {}
    dead: Counter[str] = Counter()
    number = 0
    try:
        for rows in rowGroups(table, path, topic):
            before, again = _again(rows, decode, schema)
            for journal in pc.unique(again.column("journal")).to_pylist():
                if journal not in writers:
                    writers[journal] = StagingWriter(f"{table}/{OWN}/{STAGED}", schema, journal, 0)
                those = pc.equal(again.column("journal"), journal)
                own = again.filter(those)
                writers[journal].add(own)
                dead[journal] += before.column("reason").filter(those).null_count - own.column("reason").null_count
            number += rows.num_rows
        made = [each for writer in writers.values() for each in writer.close()]
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        raise
    if sum(each.rows for each in made) != number:
        raise LakeRefused(f"the table {table} has a file that changed while it was read: {path}")
    return _Replacement(path, inode, made, dead), left


def _again(rows: pa.Table, decode: RowDecoder, schema: pa.Schema) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return rows with all columns of a table as they are, and decoded again."""
    (before,) = aligned(rows, schema).combine_chunks().to_batches()
    (own,) = aligned(undead(rows), schemaOf(ALL_COLUMNS)).combine_chunks().to_batches()
    again, errors = decode(own)
    if errors is None:
        return before, again
    # A row that fitted the columns of its time must not become a dead letter by a later column.
    fitted = pc.and_(errors.is_valid(), before.column("reason").is_null())
    kept = [pc.if_else(fitted, old, new) for old, new in zip(before.columns, again.columns, strict=True)]
    return before, pa.record_batch(kept, schema=schema)


def _replace(table: str, waiting: list[_Replacement], files: Files) -> int:
    """Commit replacements of files that are still there; return their number."""
    if not waiting:
        return 0
    with exclusive(table, files):
        live = {path for path, _ in liveFiles(table)}
        fit = [each for each in waiting if each.path in live and os.stat(f"{table}/{each.path}").st_ino == each.inode]
        dead: Counter[str] = Counter()
        for each in fit:
            dead.update(each.dead)
        made = [file for each in fit for file in each.made]
        if fit:
            commitChange(table, TableChange(STAGED, made, [each.path for each in fit], dead=dead), files)
    return len(fit)
