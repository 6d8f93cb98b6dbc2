"""Blocking clients in a process that forks: the connection stays with the parent, and the child's copy is closed.

Two processes cannot share a connection: each would write into the other's messages and read the other's answers.
"""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

C = TypeVar("C")
_Lock = Callable[[Any], AbstractContextManager[None]]
_Abandon = Callable[[Any], None]


class _Forks:
    def __init__(self) -> None:
        self._watched: WeakKeyDictionary[object, tuple[_Lock, _Abandon]] = WeakKeyDictionary()
        self._forking = threading.local()
        self._isRegistered = False

    def watch(self, client: object, lock: _Lock, abandon: _Abandon) -> None:
        self._watched[client] = lock, abandon
        if not self._isRegistered:
            self._isRegistered = True
            os.register_at_fork(before=self._before, after_in_parent=self._inParent, after_in_child=self._inChild)

    def _before(self) -> None:
        self._forking.stack = ExitStack()
        for client, (lock, _) in list(self._watched.items()):
            self._forking.stack.enter_context(lock(client))

    def _inParent(self) -> None:
        self._forking.stack.close()

    def _inChild(self) -> None:
        for client, (_, abandon) in list(self._watched.items()):
            abandon(client)
        self._forking.stack.close()


_forks = _Forks()


def watch(client: C, lock: Callable[[C], AbstractContextManager[None]], abandon: Callable[[C], None]) -> None:
    """Protect a client against forks, as long as it exists; the functions must not refer to it themselves.

    :param lock: returns a context inside which the process forks.
    :param abandon: closes the child's copy.
    """
    _forks.watch(client, lock, abandon)
