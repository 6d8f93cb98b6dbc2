"""All accesses to the files of a lake: its tables' data, and the small files in ``_fleximq`` with each table's state.

Paths are text: local ones, or URLs, for which :mod:`fleximq.pipeline.lake.storage.object_store` has these methods.
Errors are :exc:`OSError`. Arrow writes and reads data files, by the paths or files that :meth:`LakeFiles.output` and
:meth:`LakeFiles.input` return.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.pipeline.lake.storage.own_folder import HIDDEN, OWN, FileState

if TYPE_CHECKING:
    from fleximq.pipeline.lake.storage.object_store import ObjectStore

_More = ParamSpec("_More")
_Result = TypeVar("_Result")


def elsewhere(
    method: "Callable[Concatenate[LakeFiles, str, _More], _Result]",
) -> "Callable[Concatenate[LakeFiles, str, _More], _Result]":
    """Return a method that calls that of the object store if the path is a URL."""

    @wraps(method)
    def call(self: "LakeFiles", path: str, /, *more: _More.args, **named: _More.kwargs) -> _Result:
        store = self.store(path) if "://" in path else None
        if store is None:
            return method(self, path, *more, **named)
        found: _Result = getattr(store, method.__name__)(path, *more, **named)
        return found

    return call


class LakeFiles(Files):
    """The files of lakes. ``stores`` returns the object store of a URL, None for a local path."""

    def __init__(self, stores: "Callable[[str], ObjectStore | None] | None" = None) -> None:
        self._stores = stores

    def store(self, path: str) -> "ObjectStore | None":
        """Return the object store of a URL, None for a local path."""
        if "://" not in path:
            return None
        if self._stores is None:
            from fleximq.pipeline.lake.storage.object_store import storeAt

            self._stores = storeAt
        return self._stores(path)

    @elsewhere
    def readOwn(self, table: str, name: str) -> bytes:
        """Return the content of a small file of a table; raises FileNotFoundError if there is none."""
        return readFile(self, f"{table}/{OWN}/{name}")

    @elsewhere
    def writeOwn(self, table: str, name: str, content: bytes) -> None:
        """Replace a small file of a table atomically."""
        replaceFile(self, f"{table}/{OWN}", name, content)

    @elsewhere
    def removeOwn(self, table: str, name: str) -> None:
        """Remove a small file of a table; raises FileNotFoundError if there is none."""
        self.remove(f"{table}/{OWN}/{name}")

    @elsewhere
    def hasOwn(self, table: str, name: str) -> bool:
        """Tell whether a table has this small file."""
        return self.exists(f"{table}/{OWN}/{name}")

    @elsewhere
    def replace(self, folder: str, name: str, content: bytes) -> None:
        """Replace a file that readers see atomically."""
        replaceFile(self, folder, name, content)

    @elsewhere
    def tables(self, lake: str) -> list[str]:
        """Return the names of all tables of a lake, sorted."""
        # An interrupted rename leaves a hidden folder.
        return sorted(name for name in os.listdir(lake) if name[0] != "." and self.isTable(f"{lake}/{name}"))

    @elsewhere
    def isTable(self, table: str) -> bool:
        """Tell whether a folder has the state of a table."""
        return os.path.isdir(f"{table}/{OWN}")

    @elsewhere
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

    @elsewhere
    def removeTree(self, folder: str) -> None:
        """Remove a folder with all in it, as far as possible."""
        shutil.rmtree(folder, ignore_errors=True)

    def aside(self, table: str, name: str, kind: str) -> str:
        """Return the name of the folder for staged files of a table's present holder of this kind."""
        store = self.store(table)
        return name if store is None else f"{name}-{store.states.holder(table, kind)}"

    def removeFormer(self, table: str, name: str, kind: str) -> None:
        """Delete the folders in which former holders of a table have staged files; its holder calls it."""
        if (store := self.store(table)) is not None:
            own = self.aside(table, name, kind)
            for each in store.names(f"{table}/{OWN}"):
                if each.startswith(f"{name}-") and each != own:
                    store.removeTree(f"{table}/{OWN}/{each}")

    @elsewhere
    def removeEmpty(self, folder: str) -> None:
        """Remove a folder that is empty, and those of its parents that are empty then."""
        with suppress(OSError):
            os.removedirs(folder)

    @elsewhere
    def input(self, path: str) -> Any:
        """Return the path, or the open file, from which Arrow reads."""
        return path

    @elsewhere
    def output(self, path: str) -> Any:
        """Return the path, or the open file, to which Arrow writes; :meth:`synced` makes it durable."""
        return path

    @elsewhere
    def synced(self, path: str) -> int:
        """Return the size of a file that was written, when all of it survives a power loss."""
        with self.closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
            os.fdatasync(descriptor)
            return os.fstat(descriptor).st_size

    @elsewhere
    def state(self, path: str) -> FileState:
        """Return the state of a data file; raises FileNotFoundError if it has left."""
        found = os.stat(path)
        return FileState(found.st_size, str(found.st_ino), found.st_mtime)

    @elsewhere
    def listed(self, folder: str) -> Sequence[str]:
        """Return the names of the files of a folder that readers see, in the order of a reader's listing."""
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(HIDDEN)]

    @elsewhere
    def visible(self, table: str) -> Iterator[str]:
        """Yield the paths within the table of the files that readers of its folders see, ordered by folder and name."""
        for folder, folders, names in os.walk(table):
            folders[:] = sorted(name for name in folders if not name.startswith(HIDDEN))
            for name in sorted(names):
                if not name.startswith(HIDDEN):
                    yield os.path.relpath(os.path.join(folder, name), table)

    @elsewhere
    def dated(self, table: str) -> Iterator[tuple[str, float]]:
        """Yield the paths of all files that are not hidden, and when each last changed, in seconds since 1970."""
        for folder, folders, names in os.walk(os.path.realpath(table)):
            folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
            for name in names:
                state = os.stat(f"{folder}/{name}", follow_symlinks=False)
                if S_ISREG(state.st_mode):
                    yield f"{folder}/{name}", max(state.st_mtime, state.st_ctime)

    @elsewhere
    def exists(self, path: str) -> bool:
        return super().exists(path)

    @elsewhere
    def isFolder(self, path: str) -> bool:
        return super().isFolder(path)

    @elsewhere
    def makeFolder(self, path: str) -> None:
        super().makeFolder(path)

    @elsewhere
    def names(self, path: str) -> list[str]:
        return super().names(path)

    @elsewhere
    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)

    @elsewhere
    def remove(self, path: str) -> None:
        super().remove(path)

    @elsewhere
    def syncFolder(self, path: str) -> None:
        super().syncFolder(path)


#: The files of this machine, and of the stores that the environment gives access to.
FILES = LakeFiles()
