"""Every operation on files that the journal does, as one class with one method for each.

Production code uses :class:`Files` as it is. Tests give a subclass in its place: one that fails (a full disk, a
broken one), or one that records what was written and synced, to play back what a power loss could leave behind.
Nothing in this room touches a file but through it.

All errors are :exc:`OSError`, as the system gives them. Paths are text; descriptors are those of :mod:`os`.
"""

import fcntl
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress

#: Who may read what a journal's files hold: their owner writes, its group reads.
_MODE = 0o640
_FOLDER_MODE = 0o750


class Files:
    """The operations of the machine's own file system."""

    #: The most buffers that one :meth:`write` may be given.
    mostBuffers = min(os.sysconf("SC_IOV_MAX"), 1024)

    # -- descriptors -------------------------------------------------------------------------------

    def create(self, path: str) -> int:
        """Make a new, empty file and return a descriptor that reads and writes it.

        It is there after a power loss only if its folder was synced since.

        :raises FileExistsError: there is something of this name.
        """
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)

    def open(self, path: str, write: bool = False) -> int:
        """Open a file that is there, to read it or to write it too."""
        return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)

    def openLock(self, path: str) -> int:
        """Open a file to be locked, which is made if it is not there and whose bytes mean nothing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)

    def close(self, descriptor: int) -> None:
        """Close it."""
        os.close(descriptor)

    def write(self, descriptor: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        """Write buffers one behind the other from a position on, and return how many bytes were taken.

        That may be fewer than there are. At most :attr:`mostBuffers` at once.
        """
        return os.pwritev(descriptor, buffers, position)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes from a position on, fewer only where the file ends or the system says so."""
        return os.pread(descriptor, size, position)

    def sync(self, descriptor: int) -> None:
        """Return when what was written to a file, and its length, outlives a power loss (fdatasync)."""
        os.fdatasync(descriptor)

    def forget(self, descriptor: int, start: int, size: int) -> None:
        """Let the system take back the memory in which it has these bytes of a file; only what is on disk goes.

        :param size: 0: up to the end of the file.
        """
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # the file is as good with that memory
                os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file off, or lengthen it with a hole."""
        os.ftruncate(descriptor, size)

    def size(self, descriptor: int) -> int:
        """Return the length of a file."""
        return os.fstat(descriptor).st_size

    def isGone(self, descriptor: int) -> bool:
        """Tell whether a file that is open was deleted: what is written to it is lost when it is closed."""
        return os.fstat(descriptor).st_nlink == 0

    def lock(self, descriptor: int) -> bool:
        """Take the lock of a file for this process, and return False at once if another one has it.

        It is given back when the descriptor is closed or the process ends, however that comes.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def map(self, descriptor: int, size: int) -> mmap.mmap:
        """Return a file's first bytes as memory that other processes see when they map it too."""
        return mmap.mmap(descriptor, size)

    # -- names -------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """Tell whether there is something of this name."""
        return os.path.lexists(path)

    def isFolder(self, path: str) -> bool:
        """Tell whether there is a folder of this name."""
        return os.path.isdir(path)

    def makeFolder(self, path: str) -> None:
        """Make a folder in one that is there."""
        os.mkdir(path, _FOLDER_MODE)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(path))

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of whatever had it; lasting once its folder is synced."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Take a name out of its folder; lasting once its folder is synced."""
        os.unlink(path)

    def syncFolder(self, path: str) -> None:
        """Return when what was created, renamed and removed in a folder outlives a power loss."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def errorText(error: OSError) -> str:
    """Return the system's own words for an error, as the end of a sentence."""
    words = error.strerror or str(error)
    return words[:1].lower() + words[1:] if words[1:2].islower() else words


def readFile(files: Files, path: str) -> bytes:
    """Return the bytes of a file.

    :raises OSError: it is not there, or cannot be read.
    """
    descriptor = files.open(path)
    try:
        return readUpTo(files, descriptor, files.size(descriptor), 0)
    finally:
        files.close(descriptor)


def readUpTo(files: Files, descriptor: int, size: int, position: int) -> bytes:
    """Return ``size`` bytes from a position on, fewer only where the file ends."""
    piece = files.read(descriptor, size, position)
    if len(piece) in (0, size):
        return piece
    pieces = [piece]
    missing = size - len(piece)
    while missing:
        piece = files.read(descriptor, missing, position + size - missing)
        if not piece:
            break
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def writeAll(files: Files, descriptor: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
    """Write buffers from a position on, however few bytes the system takes at once, and return where they end.

    :raises OSError: not all of them could be written; what stands there then is unknown.
    """
    most = files.mostBuffers
    for start in range(0, len(buffers), most):
        group = buffers[start : start + most]
        position = _writeGroup(files, descriptor, group, position)
    return position


def _writeGroup(files: Files, descriptor: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
    missing = sum(map(len, buffers))
    while missing:
        taken = files.write(descriptor, buffers, position)
        if taken <= 0:
            raise OSError("the system takes no more bytes")
        position += taken
        missing -= taken
        if missing:
            buffers = _behind(buffers, taken)
    return position


def _behind(buffers: Sequence[bytes | bytearray | memoryview], taken: int) -> Sequence[bytes | bytearray | memoryview]:
    """Return what is left of buffers without their first bytes."""
    for place, buffer in enumerate(buffers):
        if taken < len(buffer):
            return [memoryview(buffer)[taken:], *buffers[place + 1 :]]
        taken -= len(buffer)
    return []


def replaceFile(files: Files, folder: str, name: str, content: bytes) -> None:
    """Make a small file, or replace one, so that after a power loss there is either the old or the new one."""
    path = f"{folder}/{name}"
    temporary = f"{path}.new"
    if files.exists(temporary):
        files.remove(temporary)
    descriptor = files.create(temporary)
    try:
        writeAll(files, descriptor, [content], 0)
        files.sync(descriptor)
    finally:
        files.close(descriptor)
    files.rename(temporary, path)
    files.syncFolder(folder)
