"""Blocking clients in a process that forks: the connection stays with the parent, and the child's copy is closed.

Two processes cannot share a connection: each would write into the other's messages and read the other's answers.
"""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from weakref import WeakKeyDictionary, WeakMethod

_Lock = Callable[[], AbstractContextManager[None]]
_Abandon = Callable[[], None]


class _Forks:
    def __init__(self) -> None:
        self._watched: WeakKeyDictionary[object, tuple[WeakMethod[_Lock], WeakMethod[_Abandon]]] = WeakKeyDictionary()
        self._forking = threading.local()
        self._isRegistered = False

    def watch(self, client: object, lock: _Lock, abandon: _Abandon) -> None:
        self._watched[client] = WeakMethod(lock), WeakMethod(abandon)
        if not self._isRegistered:
            self._isRegistered = True
            os.register_at_fork(before=self._before, after_in_parent=self._inParent, after_in_child=self._inChild)

    def _before(self) -> None:
        self._forking.stack = ExitStack()
        for found, _ in list(self._watched.values()):
            if (lock := found()) is not None:
                self._forking.stack.enter_context(lock())

    def _inParent(self) -> None:
        self._forking.stack.close()

    def _inChild(self) -> None:
        for _, found in list(self._watched.values()):
            if (abandon := found()) is not None:
                abandon()
        self._forking.stack.close()


_forks = _Forks()


def watch(client: object, lock: _Lock, abandon: _Abandon) -> None:
    """Protect a client against forks, as long as it exists.

    :param lock: a method of the client; the process forks inside this context.
    :param abandon: a method of the client; closes it in the child.
    """
    _forks.watch(client, lock, abandon)
