"""File locks of a table, for any number of processes.

Four locks are in ``_fleximq``: ``lock`` is held for the milliseconds in which files appear or are exchanged,
``writer`` during an ingest, ``compactor`` while files are merged or decoded again, ``backfill`` while a table is
filled. The system releases them when their process ends. Readers need none.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.file_names import OWN

#: Seconds to wait for the lock of a change.
TIMEOUT = 60.0
_PAUSE = 0.002
_HOLDERS = {
    "writer": "another ingest feeds it",
    "compactor": "another run compacts or redecodes it",
    "backfill": "another run fills it",
}


def changeLock(
    table: str, files: Files | None = None, timeout: float = TIMEOUT, sleep: Callable[[float], None] = time.sleep
) -> AbstractContextManager[None]:
    """Hold the lock for changes of a table's visible files, for milliseconds only; raises LakeRefused if another
    process holds it for longer than ``timeout`` seconds, or it cannot be created.
    """
    return _locked(table, "lock", files or Files(), timeout, sleep)


def writerLock(table: str, files: Files | None = None) -> AbstractContextManager[None]:
    """Hold the lock of the one ingest that writes to a table; raises LakeRefused if another holds it."""
    return _locked(table, "writer", files or Files(), 0.0, time.sleep)


def compactorLock(table: str, files: Files | None = None, timeout: float = 0.0) -> AbstractContextManager[None]:
    """Hold the lock of the one run that rewrites files of a table; raises LakeRefused if another holds it for longer
    than ``timeout`` seconds.
    """
    return _locked(table, "compactor", files or Files(), timeout, time.sleep)


def backfillLock(table: str, files: Files | None = None) -> AbstractContextManager[None]:
    """Hold the lock of the one run that fills a table; raises LakeRefused if another holds it."""
    return _locked(table, "backfill", files or Files(), 0.0, time.sleep)


@contextmanager
def _locked(table: str, name: str, files: Files, timeout: float, sleep: Callable[[float], None]) -> Iterator[None]:
    try:
        descriptor = files.openLock(f"{table}/{OWN}/{name}")
    except OSError as error:
        raise LakeRefused(f"the table {table} cannot be locked: {error.strerror or error}") from error
    try:
        deadline = time.monotonic() + timeout
        while not files.lock(descriptor):
            if time.monotonic() >= deadline:
                why = _HOLDERS.get(name) or f"it has been locked for {timeout:g} seconds"
                raise LakeRefused(f"the table {table} is in use: {why}")
            sleep(_PAUSE)
        yield
    finally:
        files.close(descriptor)
