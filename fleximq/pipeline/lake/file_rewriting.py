"""Replaces files of a table by others with the same or fewer rows, many of them in one change.

New files are staged while the ingest continues. The commit leaves out new files for which an old file was
removed or changed meanwhile, so a run that was killed loses no row and repeats none.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.batch_commit import exclusive, writing
from fleximq.pipeline.lake.live_files import logOf
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.format import layoutOf
from fleximq.pipeline.lake.table.lock import compactorLock
from fleximq.pipeline.lake.table.parquet_writer import StagingWriter
from fleximq.pipeline.lake.table.table_log import TableFile
from fleximq.pipeline.lake.table_change import TableChange, commitChange

#: About the bytes of new files in one change, and the greatest number of replaced files.
CHANGE_BYTES, CHANGE_FILES = 256 << 20, 1000


class Replacement(NamedTuple):
    """New files in place of ``gone``, identities by path; by journal the dead letters to add, and expired rows."""

    gone: dict[str, str]
    made: list[TableFile]
    dead: Counter[str] = Counter()
    expired: Counter[str] = Counter()


class FileRewriting:
    """The rewriting of one table; made by :func:`rewriting`. ``replaced`` files were replaced so far."""

    def __init__(self, table: str, aside: str, files: LakeFiles) -> None:
        self.table = table
        self._aside = aside
        #: The folder of staged files.
        self.folder = f"{table}/{OWN}/{aside}"
        self._files = files
        self._waiting: list[Replacement] = []
        self.replaced = 0

    def identity(self, path: str) -> str:
        """Return the identity of a file of the table; raises FileNotFoundError if it has left."""
        return self._files.state(f"{self.table}/{path}").identity

    def stage(self, parts: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[TableFile]:
        """Stage rows, ordered as the table's files have them, and return the files; raises OSError."""
        writers: dict[str, StagingWriter] = {}
        layout = layoutOf(self.table, self._files)
        try:
            for rows in parts:
                for journal in pc.unique(rows.column("journal")).to_pylist():
                    if journal not in writers:
                        writers[journal] = StagingWriter(self.folder, schema, journal, 0, layout, self._files)
                    writers[journal].add(rows.filter(pc.equal(rows.column("journal"), journal)))
            return [each for writer in writers.values() for each in writer.close()]
        except BaseException:
            for writer in writers.values():
                writer.abandon()
            raise

    def replace(self, found: Replacement) -> None:
        """Replace files together with others, at once if they are many."""
        self._waiting.append(found)
        many = sum(len(each.gone) for each in self._waiting) >= CHANGE_FILES
        if many or sum(file.bytes for each in self._waiting for file in each.made) >= CHANGE_BYTES:
            self.commit()

    def commit(self) -> None:
        """Make the waiting replacements visible, except those of files that have changed or left."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        with exclusive(self.table, self._files):
            log = logOf(self.table, self._files)
            # In a plain table, each existing file is live.
            live = None if log is None else {each.path for each in log.files()}
            fit = [each for each in waiting if (live is None or live.issuperset(each.gone)) and self._isUnchanged(each)]
            gone = [path for each in fit for path in each.gone]
            made = [file for each in fit for file in each.made]
            dead, expired = Counter[str](), Counter[str]()
            for each in fit:
                dead.update(each.dead)
                expired.update(each.expired)
            if fit:
                commitChange(self.table, TableChange(self._aside, made, gone, dead=dead, expired=expired), self._files)
        self.replaced += len(gone)

    def _isUnchanged(self, found: Replacement) -> bool:
        try:
            return all(self.identity(path) == identity for path, identity in found.gone.items())
        except FileNotFoundError:
            return False


@contextmanager
def rewriting(table: str, aside: str, files: LakeFiles = FILES, wait: float = 0.0) -> Iterator[FileRewriting]:
    """Rewrite files within a ``with`` block, staged in ``aside``, and commit them at its end; raises LakeRefused."""
    with compactorLock(table, files, wait), writing(table):
        found = FileRewriting(table, files.aside(table, aside, "compactor"), files)
        with exclusive(table, files):
            # A change that was interrupted is complete now, and needs none of these.
            files.removeTree(found.folder)
            files.removeFormer(table, aside, "compactor")
        files.makeFolder(found.folder)
        try:
            yield found
            found.commit()
        except OSError:
            # On a full disk, files that were replaced make room for the next run.
            found.commit()
            raise
        finally:
            # An interrupted change that cannot be completed now needs the staged files.
            with suppress(LakeRefused, OSError), exclusive(table, files):
                files.removeTree(found.folder)
