"""File locks of a table, in ``_fleximq``. The system releases them when their process ends; readers need none."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.file_names import FILES, OWN

#: Seconds to wait for the lock of a change.
TIMEOUT = 60.0
_PAUSE = 0.002
_HOLDERS = {
    "writer": "another ingest feeds it",
    "compactor": "another run compacts or redecodes it",
    "backfill": "another run fills it",
}


@contextmanager
def tableLock(
    name: str, table: str, files: Files = FILES, timeout: float = 0.0, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """Hold the lock of this name; raises LakeRefused if another process holds it for more than ``timeout`` seconds."""
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


#: Held for the milliseconds in which files appear or are exchanged.
changeLock = partial(tableLock, "lock", timeout=TIMEOUT)
#: Held by the one ingest that writes to a table; by the one run that rewrites its files; and by the one that fills it.
writerLock, compactorLock, backfillLock = (partial(tableLock, name) for name in _HOLDERS)
