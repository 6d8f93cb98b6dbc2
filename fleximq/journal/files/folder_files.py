"""The small files of a journal folder: its identity, its lock and its durable end (docs/reference/journal-format.rst).

DIR/identity marks a folder as a journal: one line with ``fleximq-journal``, the version of the format, 32 hexadecimal
digits that no other journal has, and the CRC-32 of all before it as 8 more. DIR/lock is locked by the one broker that
writes the journal.

DIR/end gives the end of the journal to other processes that read while the broker writes. It has 64 bytes, mapped into
memory, little-endian: magic ``FXJE0001`` 8s, turn u64, position u64, offset u64, time i64 (microseconds since 1970), 16
zero bytes, turn u64. A reader takes all 64 bytes at once, and again while the two turns differ or are odd. Position and
offset are the first after the last committed record. After a crash the file may be too old, so a journal without a
broker is read up to its last complete frame.
"""

import os
import re
from collections.abc import Callable
from struct import Struct
from zlib import crc32

from fleximq.errors import JournalError, systemReason
from fleximq.journal.files.file_system import Files, readFile, replaceFile

END = "end"
BYTES = 64

_END_MAGIC = b"FXJE0001"
_WHOLE = Struct("<8sQQQq16xQ")
_turn = Struct("<Q")
_values = Struct("<QQq")
_VALUES_AT, _FIRST_TURN_AT, _LAST_TURN_AT = 16, 8, 56


class DurableEnd:
    """The writing side, only for the broker that holds the lock. Raises OSError if the file cannot be made."""

    def __init__(self, files: Files, folder: str) -> None:
        with files.closing(files.openLock(f"{folder}/{END}")) as descriptor:
            if files.size(descriptor) != BYTES:
                files.truncate(descriptor, BYTES)
            self._memory = files.map(descriptor, BYTES)
        self._turn = 0

    def publish(self, position: int, offset: int, time: int) -> None:
        """Announce that all before this position and this offset is committed."""
        memory = self._memory
        turn = self._turn + 1
        _turn.pack_into(memory, _FIRST_TURN_AT, turn)
        _values.pack_into(memory, _VALUES_AT, position, offset, time)
        turn += 1
        _turn.pack_into(memory, _LAST_TURN_AT, turn)
        memory[: _FIRST_TURN_AT + 8] = _END_MAGIC + _turn.pack(turn)
        self._turn = turn

    def close(self) -> None:
        """Close the file, unchanged."""
        self._memory.close()


def readEnd(content: bytes) -> tuple[int, int, int] | None:
    """Return position, offset and time from the 64 bytes; None during a write, and for a foreign file."""
    if len(content) != BYTES:
        return None
    magic, first, position, offset, time, last = _WHOLE.unpack(content)
    if magic != _END_MAGIC or first != last or first % 2:
        return None
    return position, offset, time


#: The content is empty; only the lock has a meaning.
LOCK = "lock"


class Lock:
    """The lock on a folder, until :meth:`release` or the end of the process.

    :raises JournalError: another broker holds it, or the folder cannot be written.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        try:
            self._descriptor = files.openLock(f"{folder}/{LOCK}")
        except OSError as error:
            raise JournalError(f"the journal in {folder} cannot be written: {systemReason(error)}") from error
        taken = False
        try:
            taken = files.lock(self._descriptor)
            if not taken:
                raise JournalError(f"the journal in {folder} is in use by another broker")
        except OSError as error:
            raise JournalError(f"the journal in {folder} cannot be locked: {systemReason(error)}") from error
        finally:
            if not taken:
                self.release()

    def release(self) -> None:
        """Release the lock."""
        self._files.close(self._descriptor)


IDENTITY = "identity"
#: In the folder of a node: how much of its stream is on disk there (:mod:`fleximq.cluster.stream_replica`).
STREAM = "stream"
#: The suffix of the files of a copy that the node's stream does not continue.
ASIDE = ".aside"
#: The version of the format that is written, and the newest that is read.
VERSION = 1

_MAGIC = "fleximq-journal"
_LINE = re.compile(rf"({_MAGIC} ([0-9]{{1,9}}) ([0-9a-f]{{32}}) )([0-9a-f]{{8}})\n", re.ASCII)
#: Files that an interrupted creation of a journal may leave in its folder.
_BEGINNINGS = {LOCK, IDENTITY, f"{IDENTITY}.new", "lost+found"}


def checkFolder(files: Files, folder: str) -> None:
    """Check that a folder is a journal or empty; create it if it is missing. Raises JournalError with the reason."""
    try:
        if not files.exists(folder):
            files.makeFolder(folder)
            files.syncFolder(os.path.dirname(folder.rstrip("/")) or ".")
        if not files.isFolder(folder):
            raise JournalError(f"{folder} is not a folder, so it cannot hold a journal")
        names = files.names(folder)
    except FileNotFoundError as error:
        raise JournalError(f"{folder} cannot be made for the journal: the folder above it is missing") from error
    except OSError as error:
        raise JournalError(f"the journal in {folder} cannot be opened: {systemReason(error)}") from error
    if IDENTITY in names:
        return
    if any(name.endswith(".fxj") for name in names):
        raise JournalError(f"the journal in {folder} has lost its file {IDENTITY}, so it is not known to be whole")
    foreign = [name for name in names if name not in _BEGINNINGS and not name.endswith(ASIDE)]
    if foreign:
        raise JournalError(f"{folder} holds other files, such as {foreign[0]}, and no journal")


def identify(files: Files, folder: str, newId: Callable[[], str]) -> str:
    """Return a journal's id, 32 hexadecimal digits; a new folder receives one. Raises JournalError."""
    try:
        if files.exists(f"{folder}/{IDENTITY}"):
            return readIdentity(files, folder)
        journal = newId()
        line = f"{_MAGIC} {VERSION} {journal} "
        replaceFile(files, folder, IDENTITY, f"{line}{crc32(line.encode()):08x}\n".encode())
    except OSError as error:
        raise JournalError(f"the journal in {folder} cannot be opened: {systemReason(error)}") from error
    return journal


def readIdentity(files: Files, folder: str) -> str:
    """Return the id of an existing journal. Raises OSError if it cannot be read, and JournalError if the file is
    foreign, damaged, or of a newer version.
    """
    text = readFile(files, f"{folder}/{IDENTITY}").decode("ascii", "replace")
    if not text.startswith(f"{_MAGIC} "):
        raise JournalError(f"{folder} holds a file {IDENTITY} that is no journal's")
    found = _LINE.fullmatch(text)
    if not found or crc32(found[1].encode()) != int(found[4], 16):
        raise JournalError(f"the file {IDENTITY} of the journal in {folder} is damaged")
    if int(found[2]) > VERSION:
        raise JournalError(f"the journal in {folder} has version {found[2]}, but this broker reads {VERSION} at most")
    return found[3]
