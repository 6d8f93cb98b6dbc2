"""Locks of a table, in ``_fleximq``; readers need none. Those of files are released by the system when their process
ends. In an object store the next one replaces the former: :mod:`fleximq.pipeline.lake.storage.table_states`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from logging import getLogger
from typing import TypeVar

from fleximq.pipeline.errors import LakeRefused, TableBusy
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN

#: Seconds to wait for the lock of a change.
TIMEOUT = 60.0
_PAUSE = 0.002
#: Attempts at a change of a busy table, each of which waits for the lock.
_TRIES = 10
_log = getLogger(__name__)
_Result = TypeVar("_Result")
_CHANGE = "lock"
_HOLDERS = {
    "writer": "another ingest feeds it",
    "compactor": "another run compacts or redecodes it",
    "backfill": "another run fills it",
}


@contextmanager
def tableLock(
    name: str, table: str, files: LakeFiles = FILES, timeout: float = 0.0, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """Hold the lock of this name; raises LakeRefused if another process holds it for more than ``timeout`` seconds."""
    if (store := files.store(table)) is not None:
        states = store.states
        with states.locked(table, timeout) if name == _CHANGE else states.holding(table, name):
            yield
        return
    try:
        descriptor = files.openLock(f"{table}/{OWN}/{name}")
    except OSError as error:
        raise LakeRefused(f"the table {table} cannot be locked: {error.strerror or error}") from error
    with files.closing(descriptor):
        _waitFor(name, table, files, descriptor, timeout, sleep)
        yield


def _waitFor(
    name: str, table: str, files: LakeFiles, descriptor: int, timeout: float, sleep: Callable[[float], None]
) -> None:
    deadline = time.monotonic() + timeout
    while not files.lock(descriptor):
        if time.monotonic() >= deadline:
            why = _HOLDERS.get(name) or f"it has been locked for {timeout:g} seconds"
            raise (LakeRefused if name in _HOLDERS else TableBusy)(f"the table {table} is in use: {why}")
        sleep(_PAUSE)


def undisturbed(work: Callable[[], _Result]) -> _Result:
    """Do work under the lock of a change, and do it again if another process holds the lock for long, or has changed
    the table although it was locked, as after a pause; the work must be idempotent. Raises the last TableBusy.
    """
    for _ in range(_TRIES - 1):
        try:
            return work()
        except TableBusy as error:
            _log.warning("%s; trying again", error)
    return work()


@contextmanager
def unchanged(table: str, files: LakeFiles = FILES, sleep: Callable[[float], None] = time.sleep) -> Iterator[bool]:
    """Keep others from changing a table, without a right to write; False if this file system cannot do it."""
    if files.store(table) is not None:
        yield False
        return
    try:
        descriptor = files.open(f"{table}/{OWN}/{_CHANGE}")
    except OSError:
        yield False
        return
    with files.closing(descriptor):
        try:
            _waitFor(_CHANGE, table, files, descriptor, TIMEOUT, sleep)
            isLocked = True
        except OSError:  # NFS locks no file that was opened for reading
            isLocked = False
        yield isLocked


#: Held for the milliseconds in which files appear or are exchanged.
changeLock = partial(tableLock, _CHANGE, timeout=TIMEOUT)
#: Held by the one ingest that writes to a table; by the one run that rewrites its files; and by the one that fills it.
writerLock, compactorLock, backfillLock = (partial(tableLock, name) for name in _HOLDERS)
