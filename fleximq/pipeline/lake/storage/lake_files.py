"""All accesses to the files of a lake: its tables' data, and the small files in ``_fleximq`` with each table's state.

Paths are text. Errors are :exc:`OSError`. Data files are written and read by Arrow, which takes what
:meth:`LakeFiles.output` and :meth:`LakeFiles.input` return.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fleximq.journal.files.file_system import Files, readFile, replaceFile

#: The folder of a table's own files; readers of Parquet ignore names with this first character.
OWN = "_fleximq"
_HIDDEN = (".", "_")


class FileState(NamedTuple):
    """A data file's bytes, an identity that another file of the same path does not have, and when it was written, in
    seconds since 1970.
    """

    bytes: int
    identity: str
    changed: float


class LakeFiles(Files):
    """The files of lakes on this machine."""

    def readOwn(self, table: str, name: str) -> bytes:
        """Return the content of a small file of a table; raises FileNotFoundError if there is none."""
        return readFile(self, f"{table}/{OWN}/{name}")

    def writeOwn(self, table: str, name: str, content: bytes) -> None:
        """Replace a small file of a table atomically."""
        replaceFile(self, f"{table}/{OWN}", name, content)

    def removeOwn(self, table: str, name: str) -> None:
        """Remove a small file of a table; raises FileNotFoundError if there is none."""
        self.remove(f"{table}/{OWN}/{name}")

    def hasOwn(self, table: str, name: str) -> bool:
        """Tell whether a table has this small file."""
        return self.exists(f"{table}/{OWN}/{name}")

    def replace(self, folder: str, name: str, content: bytes) -> None:
        """Replace a file that readers see atomically."""
        replaceFile(self, folder, name, content)

    def tables(self, lake: str) -> list[str]:
        """Return the names of all tables of a lake, sorted."""
        # An interrupted rename leaves a hidden folder.
        return sorted(name for name in os.listdir(lake) if name[0] != "." and self.isTable(f"{lake}/{name}"))

    def isTable(self, table: str) -> bool:
        """Tell whether a folder has the state of a table."""
        return os.path.isdir(f"{table}/{OWN}")

    def makeFolders(self, folder: str) -> None:
        """Create a folder and its parents durably."""
        if self.isFolder(folder):
            return
        parent = os.path.dirname(folder)
        if parent and parent != folder:
            self.makeFolders(parent)
        with suppress(FileExistsError):
            self.makeFolder(folder)
        self.syncFolder(parent or ".")

    def removeTree(self, folder: str) -> None:
        """Remove a folder with all in it, as far as possible."""
        shutil.rmtree(folder, ignore_errors=True)

    def removeEmpty(self, folder: str) -> None:
        """Remove a folder that is empty, and those of its parents that are empty then."""
        with suppress(OSError):
            os.removedirs(folder)

    def input(self, path: str) -> Any:
        """Return what Arrow reads a file from."""
        return path

    def output(self, path: str) -> Any:
        """Return what Arrow writes a new file to; :meth:`synced` makes it durable."""
        return path

    def synced(self, path: str) -> int:
        """Return the size of a file that was written, when all of it survives a power loss."""
        with self.closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
            os.fdatasync(descriptor)
            return os.fstat(descriptor).st_size

    def state(self, path: str) -> FileState:
        """Return the state of a data file; raises FileNotFoundError if it has left."""
        found = os.stat(path)
        return FileState(found.st_size, str(found.st_ino), found.st_mtime)

    def listed(self, folder: str) -> Sequence[str]:
        """Return the names of the files of a folder that readers see, in the order of a reader's listing."""
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(_HIDDEN)]

    def visible(self, table: str) -> Iterator[str]:
        """Yield the paths within the table of the files that readers of its folders see, ordered by folder and name."""
        for folder, folders, names in os.walk(table):
            folders[:] = sorted(name for name in folders if not name.startswith(_HIDDEN))
            for name in sorted(names):
                if not name.startswith(_HIDDEN):
                    yield os.path.relpath(os.path.join(folder, name), table)


#: The machine's own file system.
FILES = LakeFiles()
