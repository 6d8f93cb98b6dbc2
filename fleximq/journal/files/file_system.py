"""All file operations of the journal, one method each in one class; it accesses files in no other way.

Tests replace :class:`Files` by a subclass that fails, or that records writes and syncs to reproduce the possible states
after a power loss. All errors are :exc:`OSError` of the system. Paths are text; descriptors are those of :mod:`os`.
"""

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from fleximq.journal.files.spare_descriptors import SPARE, SpareDescriptors

#: The owner of a journal writes its files, the group reads them.
_MODE = 0o640
_FOLDER_MODE = 0o750

#: Errors that say that the process or the system lacks something for now, not that files are damaged.
SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN))
#: Errors after which a write may succeed later: a shortage, also of space.
_PASSING = SHORTAGES | {errno.ENOSPC, errno.EDQUOT}

#: Linux: begins to write a range of a file to the disk.
_syncRange = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
if _syncRange is not None:
    _syncRange.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
_WRITE = 2
#: What it answers where the system, a sandbox or the file system does not have it.
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP})


class Files:
    """The operations of the machine's own file system."""

    #: The maximum number of buffers of one :meth:`write`.
    mostBuffers = min(os.sysconf("SC_IOV_MAX"), 1024)
    _spare = SpareDescriptors(0)

    def reserve(self, number: int = SPARE) -> None:
        """Have so many descriptors in reserve for :meth:`create`, :meth:`syncFolder` and :meth:`open` for writing,
        which use them when the process or the system has no other left. 0: close them.
        """
        self._spare.close()
        self._spare = SpareDescriptors(number)

    def _openFile(self, path: str, flags: int) -> int:
        """Open a path; without a descriptor for it, one in reserve is closed first. Another thread may take that."""
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, _MODE)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._spare.giveUpOne():
                    raise

    def create(self, path: str) -> int:
        """Make a new, empty file that survives a power loss after a sync of its folder. Raises FileExistsError."""
        return self._openFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, path: str, write: bool = False) -> int:
        """Open an existing file for reading, or for reading and writing."""
        if write:
            return self._openFile(path, os.O_RDWR)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # readers keep files open: the reserve is not for them

    def openLock(self, path: str) -> int:
        """Open a file for locking, and create it if it is missing; its bytes have no meaning."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)

    def close(self, descriptor: int) -> None:
        """Close a file."""
        os.close(descriptor)
        self._spare.fill()

    @contextmanager
    def closing(self, descriptor: int) -> Iterator[int]:
        """Close a file at the end of a block."""
        try:
            yield descriptor
        finally:
            self.close(descriptor)

    def write(self, descriptor: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        """Write at most :attr:`mostBuffers` buffers from a position; return the number of written bytes."""
        return os.pwritev(descriptor, buffers, position)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes from a position; fewer at the end of the file, or if the system decides so."""
        return os.pread(descriptor, size, position)

    def sync(self, descriptor: int) -> None:
        """Return when a file's bytes and its length survive a power loss (fdatasync)."""
        os.fdatasync(descriptor)

    def beginSync(self, descriptor: int, start: int, size: int) -> None:
        """Let the system begin to write these bytes to the disk, if it can, so that a sync waits for less. A fault of
        the disk is raised: the sync might not find it again.
        """
        if _syncRange is not None and _syncRange(descriptor, start, size, _WRITE):
            code = ctypes.get_errno()
            if code not in _UNSUPPORTED:
                raise OSError(code, os.strerror(code))

    def forget(self, descriptor: int, start: int, size: int) -> None:
        """Release the system's cache of these bytes, if they are on disk; size 0: up to the end of the file."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # only an optimization
                os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file, or lengthen it by a hole."""
        os.ftruncate(descriptor, size)

    def size(self, descriptor: int) -> int:
        """Return the length of a file."""
        return os.fstat(descriptor).st_size

    def isGone(self, descriptor: int) -> bool:
        """Tell whether an open file was deleted: its bytes are lost when it is closed."""
        return os.fstat(descriptor).st_nlink == 0

    def lock(self, descriptor: int) -> bool:
        """Lock a file until it is closed or the process ends; False at once if another process has locked it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def map(self, descriptor: int, size: int) -> mmap.mmap:
        """Return a file's first bytes as memory that is shared with other processes."""
        return mmap.mmap(descriptor, size)

    def exists(self, path: str) -> bool:
        """Tell whether a path exists."""
        return os.path.lexists(path)

    def isFolder(self, path: str) -> bool:
        """Tell whether a path is a folder."""
        return os.path.isdir(path)

    def makeFolder(self, path: str) -> None:
        """Make a folder in an existing folder."""
        os.mkdir(path, _FOLDER_MODE)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(path))

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing any other file of that name; permanent after a sync of the folder."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file from its folder; permanent after a sync of the folder."""
        os.unlink(path)

    def syncFolder(self, path: str) -> None:
        """Return when the creations, renames and removals in a folder survive a power loss."""
        with self.closing(self._openFile(path, os.O_RDONLY | os.O_DIRECTORY)) as descriptor:
            os.fsync(descriptor)


def mayPass(error: Exception | None) -> bool:
    """Tell whether the cause of a failed write may pass without an operator: a shortage, not a fault of the disk."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _PASSING)


def readFile(files: Files, path: str) -> bytes:
    """Return the bytes of a file. Raises OSError if it is missing, or cannot be read."""
    with files.closing(files.open(path)) as descriptor:
        return readUpTo(files, descriptor, files.size(descriptor), 0)


def fileSize(files: Files, path: str) -> int:
    """Return the length of a file that is not open."""
    with files.closing(files.open(path)) as descriptor:
        return files.size(descriptor)


def readUpTo(files: Files, descriptor: int, size: int, position: int) -> bytes:
    """Return ``size`` bytes from a position, fewer only at the end of the file."""
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
    """Write buffers from a position, in several steps if the system demands it, and return their end. Raises OSError if
    some bytes could not be written; the content of this range is unknown.
    """
    most = files.mostBuffers
    for start in range(0, len(buffers), most):
        group = buffers[start : start + most]
        missing = sum(map(len, group))
        while missing:
            taken = files.write(descriptor, group, position)
            if taken <= 0:
                raise OSError("the system takes no more bytes")
            position += taken
            missing -= taken
            if missing:
                group = _behind(group, taken)
    return position


def _behind(buffers: Sequence[bytes | bytearray | memoryview], taken: int) -> Sequence[bytes | bytearray | memoryview]:
    for index, buffer in enumerate(buffers):
        if taken < len(buffer):
            return [memoryview(buffer)[taken:], *buffers[index + 1 :]]
        taken -= len(buffer)
    return []


def createAnew(files: Files, path: str) -> int:
    """Make an empty file, as :meth:`Files.create` does; another file of this name is removed first."""
    if files.exists(path):
        files.remove(path)
    return files.create(path)


def replaceFile(files: Files, folder: str, name: str, content: bytes, lasting: bool = True) -> None:
    """Make or replace a small file. ``lasting``: after a power loss either the old or the new file exists; False: this
    does not wait for the disk.
    """
    path = f"{folder}/{name}"
    temporary = f"{path}.new"
    with files.closing(createAnew(files, temporary)) as descriptor:
        writeAll(files, descriptor, [content], 0)
        if lasting:
            files.sync(descriptor)
    files.rename(temporary, path)
    if lasting:
        files.syncFolder(folder)
