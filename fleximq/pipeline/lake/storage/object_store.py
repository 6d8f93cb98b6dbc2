"""Tables in an object store, by fsspec: S3 and stores with its interface, others by their own packages.

It has the methods of :class:`fleximq.pipeline.lake.storage.lake_files.LakeFiles` for paths that are URLs. No folder is
renamed, and safety depends on no lock: :mod:`fleximq.pipeline.lake.storage.table_states` has the rule. Data files have
unique names, and are complete when they appear. Listings are not cached. fsspec's package takes credentials from its
environment; no error text has them.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import urlsplit

from fleximq.pipeline.errors import LakeRefused, plainError
from fleximq.pipeline.lake.storage.own_folder import HIDDEN, OWN, FileState
from fleximq.pipeline.lake.storage.table_states import TableStates

#: Bytes that a file sends, and fetches, at once.
BLOCK = 8 << 20


@lru_cache(maxsize=8)
def storeOf(scheme: str, process: int) -> "ObjectStore":
    """Return this process's store of a URL's scheme; raises LakeRefused without its package."""
    import fsspec

    try:
        return ObjectStore(fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True))
    except (ImportError, ValueError) as error:
        raise LakeRefused(
            f"a lake at {scheme}:// needs a package of fsspec for it, for S3 pip install '.[s3]' ({error})"
        ) from error


def storeAt(path: str) -> "ObjectStore | None":
    """Return the store of a URL, None for a local path; raises LakeRefused without its package."""
    # Connections do not outlive a fork.
    return storeOf(urlsplit(path).scheme, os.getpid()) if "://" in path else None


class ObjectStore:
    """One store; the clients of other libraries have their own connections to it."""

    #: Whether the user has stated that no other process changes these lakes (``--single-writer``).
    isAlone: ClassVar[bool] = False

    def __init__(
        self, client: Any, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._client = client
        self._written: dict[str, Any] = {}
        self.states = TableStates(self, now, sleep)

    def _do(self, operation: str, *arguments: Any, **more: Any) -> Any:
        """Return the result of an operation of the client; raises OSError for errors of any class."""
        try:
            return getattr(self._client, operation)(*arguments, **more)
        except OSError:
            raise
        except Exception as error:
            raise OSError(errno.EIO, plainError(error)) from error

    def readOwn(self, table: str, name: str) -> bytes:
        """Return the content of a small file of a table; raises FileNotFoundError if there is none."""
        return self.states.content(table, name)

    def writeOwn(self, table: str, name: str, content: bytes) -> None:
        """Replace a small file of a table."""
        self.states.write(table, name, content)

    def removeOwn(self, table: str, name: str) -> None:
        """Remove a small file of a table; raises FileNotFoundError if there is none."""
        self.states.content(table, name)
        self.states.write(table, name, None)

    def hasOwn(self, table: str, name: str) -> bool:
        """Tell whether a table has this small file."""
        with suppress(FileNotFoundError):
            self.states.content(table, name)
            return True
        return False

    def replace(self, folder: str, name: str, content: bytes) -> None:
        """Skip this step: readers find the columns in files, and in the log."""

    def tables(self, lake: str) -> list[str]:
        """Return the names of all tables of a lake, sorted."""
        return [name for name in self.names(lake) if not name.startswith(HIDDEN) and self.isTable(f"{lake}/{name}")]

    def isTable(self, table: str) -> bool:
        """Tell whether there is the state of a table."""
        return bool(self.names(f"{table}/{OWN}"))

    def isFolder(self, path: str) -> bool:
        """Return True: folders need not be made."""
        return True

    def makeFolder(self, path: str) -> None:
        """Skip this step: a store has no folders."""

    def makeFolders(self, folder: str) -> None:
        """Skip this step: a store has no folders."""

    def syncFolder(self, path: str) -> None:
        """Skip this step: a store has no folders."""

    def removeEmpty(self, folder: str) -> None:
        """Skip this step: a store has no folders."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none if it is empty."""
        try:
            found = self._do("ls", folder, detail=False, refresh=True)
        except FileNotFoundError:
            return []
        # Some programs mark a folder by an object of its own.
        return sorted({name for each in found if (name := each.rstrip("/").rpartition("/")[2])} - {_last(folder)})

    def listed(self, folder: str) -> Sequence[str]:
        """Return the names of the files of a folder that readers see."""
        return [name for name in self.names(folder) if not name.startswith(HIDDEN)]

    def visible(self, table: str) -> Iterator[str]:
        """Yield the paths within the table of the files that readers of its folders see, ordered by folder and name."""
        for path in sorted(self._found(table), key=lambda path: path.rpartition("/")[::2]):
            if not any(part.startswith(HIDDEN) for part in path.split("/")):
                yield path

    def _found(self, folder: str) -> dict[str, dict[str, Any]]:
        """Return all objects in a folder, by their paths within it."""
        try:
            found = self._do("find", folder, detail=True, refresh=True)
        except FileNotFoundError:
            return {}
        start = len(self._client._strip_protocol(folder).rstrip("/")) + 1
        return {path[start:]: each for path, each in found.items() if len(path) > start and not path.endswith("/")}

    def dated(self, table: str) -> Iterator[tuple[str, float]]:
        """Yield the paths of all objects of a table, and when each was written."""
        for path, each in self._found(table).items():
            yield f"{table}/{path}", _changed(each)

    def exists(self, path: str) -> bool:
        """Tell whether there is an object."""
        try:
            self.state(path)
        except FileNotFoundError:
            return False
        return True

    def state(self, path: str) -> FileState:
        """Return the state of an object; raises FileNotFoundError if it has left."""
        found = self._do("info", path, refresh=True)
        if found["type"] != "file":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return FileState(found["size"], found.get("ETag", ""), _changed(found))

    def input(self, path: str) -> Any:
        """Return a file for Arrow to read; raises FileNotFoundError."""
        return self._do("open", path, "rb", cache_type="readahead", block_size=1 << 20)

    def output(self, path: str) -> Any:
        """Return a file for Arrow to write to, which appears in :meth:`synced`."""
        self._written[path] = file = self._do("open", path, "wb", block_size=BLOCK)
        return file

    def synced(self, path: str) -> int:
        """Complete a file that was written, and return its size."""
        file = self._written.pop(path)
        size: int = file.tell()
        file.close()
        return size

    def remove(self, path: str) -> None:
        """Remove an object, or give up a file that is being written."""
        if (file := self._written.pop(path, None)) is not None:
            with suppress(AttributeError, NotImplementedError):
                file.discard()
                file.closed = True  # otherwise the garbage collector would complete it
            return
        self._do("rm_file", path)

    def removeTree(self, folder: str) -> None:
        """Remove all in a folder."""
        paths = [f"{folder}/{path}" for path in self._found(folder)]
        if paths:
            with suppress(FileNotFoundError):
                self._do("rm", paths)

    def rename(self, old: str, new: str) -> None:
        """Copy an object within the store and remove it at its old path; raises FileNotFoundError if it is not there.
        A repetition, by any process, has the same result.
        """
        self._do("cp_file", old, new)
        with suppress(FileNotFoundError):
            self._do("rm_file", old)

    def get(self, path: str) -> bytes:
        """Return the bytes of an object; raises FileNotFoundError."""
        content: bytes = self._do("cat_file", path)
        return content

    def put(self, path: str, content: bytes) -> None:
        """Create or replace an object; safety must not depend on it."""
        self._do("pipe_file", path, content)

    def create(self, path: str, content: bytes) -> bool:
        """Create an object only if there is none; False if there is another. The content must be unique: the store may
        have carried out a request although its answer is an error, so after an error the object is read and compared.
        Raises OSError if the outcome stays unknown.
        """
        if self.isAlone:
            if isNew := not self.exists(path):
                self.put(path, content)
            return isNew
        last = OSError(errno.EIO, os.strerror(errno.EIO))
        for _ in range(_TRIES):
            try:
                self._do("pipe_file", path, content, mode="create")
                return True
            except OSError as error:
                last = error
            with suppress(FileNotFoundError):
                return self.get(path) == content
        raise last


#: Attempts at a creation; after each failed one the object is read.
_TRIES = 4


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _changed(found: dict[str, Any]) -> float:
    """Return the time of an object that fsspec describes, by several names."""
    moment = found.get("LastModified") or found.get("last_modified") or found.get("created") or found.get("mtime")
    return float(moment.timestamp() if isinstance(moment, datetime) else moment or 0.0)
