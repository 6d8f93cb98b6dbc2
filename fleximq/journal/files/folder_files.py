"""DIR/identity: says that a folder is a journal, of which version, and which one (docs/journal-format.rst).

One line of text: ``fleximq-journal``, the version of the format, 32 hexadecimal digits that no other journal has, and
the CRC-32 of all before it as 8 more.

One broker to a journal: the lock that the one which writes holds on DIR/lock.
"""

import re
from collections.abc import Callable
from zlib import crc32

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files, putWhole, readWhole, wordsOf

#: Its bytes mean nothing, only who has locked it.
LOCK = "lock"


class Lock:
    """Held from when it is made until :meth:`release`, or until the process ends, however that comes.

    :raises JournalError: somebody else holds it, or the folder cannot be written.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        try:
            self._descriptor = files.openLock(f"{folder}/{LOCK}")
        except OSError as error:
            raise JournalError(f"the journal in {folder} cannot be written: {wordsOf(error)}") from error
        if not self._taken(folder):
            files.close(self._descriptor)
            raise JournalError(f"the journal in {folder} is in use by another broker")

    def _taken(self, folder: str) -> bool:
        try:
            return self._files.lock(self._descriptor)
        except OSError as error:
            self._files.close(self._descriptor)
            raise JournalError(f"the journal in {folder} cannot be locked: {wordsOf(error)}") from error

    def release(self) -> None:
        """Give it back."""
        self._files.close(self._descriptor)


IDENTITY = "identity"
#: The version of the format that is written, and the newest that is read.
VERSION = 1

_MAGIC = "fleximq-journal"
_LINE = re.compile(rf"({_MAGIC} ([0-9]{{1,9}}) ([0-9a-f]{{32}}) )([0-9a-f]{{8}})\n", re.ASCII)
#: What may stand in a folder that is to become a journal: what is left if making one was cut short.
_BEGINNINGS = {LOCK, IDENTITY, f"{IDENTITY}.new", "lost+found"}


def checkFolder(files: Files, folder: str) -> None:
    """See that a folder is a journal or can become one; make it if there is none.

    :raises JournalError: it cannot; the text says why in one sentence.
    """
    try:
        if not files.exists(folder):
            files.makeFolder(folder)
            files.syncFolder(parentOf(folder))
        if not files.isFolder(folder):
            raise JournalError(f"{folder} is not a folder, so it cannot hold a journal")
        _checkNames(folder, files.names(folder))
    except OSError as error:
        raise JournalError(f"the journal in {folder} cannot be opened: {wordsOf(error)}") from error


def _checkNames(folder: str, names: list[str]) -> None:
    if IDENTITY in names:
        return
    if any(name.endswith(".fxj") for name in names):
        raise JournalError(f"the journal in {folder} has lost its file {IDENTITY}, so it is not known to be whole")
    foreign = [name for name in names if name not in _BEGINNINGS]
    if foreign:
        raise JournalError(f"{folder} holds other files, such as {foreign[0]}, and no journal")


def identify(files: Files, folder: str, randomHex: Callable[[int], str]) -> str:
    """Return a journal's id, 32 hexadecimal digits, after making one for a folder that has none yet.

    :raises JournalError: its identity is damaged, of a newer version, or cannot be read or written.
    """
    try:
        if files.exists(f"{folder}/{IDENTITY}"):
            return readIdentity(files, folder)
        journal = randomHex(32)
        line = f"{_MAGIC} {VERSION} {journal} "
        putWhole(files, folder, IDENTITY, f"{line}{crc32(line.encode()):08x}\n".encode())
    except OSError as error:
        raise JournalError(f"the journal in {folder} cannot be opened: {wordsOf(error)}") from error
    return journal


def readIdentity(files: Files, folder: str) -> str:
    """Return the id of a journal that is there, and change nothing.

    :raises JournalError: it is not ours, damaged, or of a newer version.
    :raises OSError: it cannot be read.
    """
    text = readWhole(files, f"{folder}/{IDENTITY}").decode("ascii", "replace")
    if not text.startswith(f"{_MAGIC} "):
        raise JournalError(f"{folder} holds a file {IDENTITY} that is no journal's")
    found = _LINE.fullmatch(text)
    if not found or crc32(found[1].encode()) != int(found[4], 16):
        raise JournalError(f"the file {IDENTITY} of the journal in {folder} is damaged")
    if int(found[2]) > VERSION:
        raise JournalError(f"the journal in {folder} has version {found[2]}, but this broker reads {VERSION} at most")
    return found[3]


def parentOf(folder: str) -> str:
    """Return the folder in which a folder stands."""
    head, _, _ = folder.rstrip("/").rpartition("/")
    return head or ("/" if folder.startswith("/") else ".")
