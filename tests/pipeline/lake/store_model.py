"""An object store in memory whose requests fail, and the writers that share it, each as a process of its own would.

A request fails before it was done or after; one that is *late* has no answer and is done at a later moment, when
:meth:`StoreModel.deliver` is called. A process that is *killed* makes no further request. Which request meets which
fate is decided by ``choose``, which takes the number of the request.
"""

import errno
from collections.abc import Callable
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem

from fleximq.pipeline.lake.storage.lake_files import LakeFiles
from fleximq.pipeline.lake.storage.object_store import ObjectStore

#: What becomes of a request.
DONE, BEFORE, AFTER, LATE, KILLED = "done", "before", "after", "late", "killed"
#: The requests that change something, and those that read.
_CHANGES = ("pipe_file", "cp_file", "rm_file", "rm")
_READS = ("ls", "find", "info", "cat_file", "open")


class Killed(BaseException):
    """The process ends here."""


class StoreModel:
    """The objects. ``lake`` is a URL at which nothing is yet."""

    _number = 0

    def __init__(self) -> None:
        StoreModel._number += 1
        self.lake = f"memory://model{StoreModel._number}/lake"
        self.memory = MemoryFileSystem(use_listings_cache=False)
        # All of a process share their objects, and each listing looks at all.
        self.memory.store.clear()
        self.time = 0.0
        self._late: list[Callable[[], object]] = []

    def process(self, choose: Callable[[int], str] = lambda number: DONE) -> LakeFiles:
        """Return the files as a new process sees them."""
        store = ObjectStore(_Client(self, choose), lambda: self.time, self._sleep)
        return LakeFiles(lambda path: store)

    def _sleep(self, seconds: float) -> None:
        self.time += seconds

    def hold(self, request: Callable[[], object]) -> None:
        """Do a request later."""
        self._late.append(request)

    def deliver(self) -> None:
        """Do all requests that are late."""
        late, self._late = self._late, []
        for request in late:
            try:
                request()
            except OSError:
                continue


class _Client:
    """fsspec's file system as one process uses it."""

    def __init__(self, model: StoreModel, choose: Callable[[int], str]) -> None:
        self._model = model
        self._choose = choose
        self._isKilled = False
        self.requests = 0
        #: What the latest request is about.
        self.path = ""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model.memory, name)
        if name not in (*_CHANGES, *_READS):
            return found

        def request(*arguments: Any, **more: Any) -> Any:
            self.path = str(arguments[0])
            more.pop("refresh", None)
            more.pop("cache_type", None)
            return self._request(lambda: found(*arguments, **more), name in _CHANGES)

        return request

    def _request(self, does: Callable[[], Any], isChange: bool) -> Any:
        if self._isKilled:
            raise Killed
        self.requests += 1
        fate = self._choose(self.requests)
        if fate == KILLED:
            self._isKilled = True
            raise Killed
        if fate == BEFORE:
            raise OSError(errno.EIO, "the request failed")
        if fate == LATE and isChange:
            self._model.hold(does)
            raise OSError(errno.ETIMEDOUT, "no answer")
        result = does()
        if fate in (AFTER, LATE):
            raise OSError(errno.EIO, "the answer was lost")
        return result
