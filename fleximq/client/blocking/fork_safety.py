"""Blocking clients in a process that forks: the connection goes on in the parent, and there is none in the child.

Two processes cannot share a conversation: each would send into the other's messages and read the other's answers.
"""

import os
import threading
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """What has to know that its process forks."""

    def forking(self) -> AbstractContextManager[None]:
        """Let the process fork inside the block."""

    def leaveToParent(self) -> None:
        """Be closed, in the child."""


class _Forks:
    def __init__(self) -> None:
        self._watched: WeakSet[Forkable] = WeakSet()
        self._forking = threading.local()
        self._isRegistered = False

    def watch(self, client: Forkable) -> None:
        self._watched.add(client)
        if not self._isRegistered:
            self._isRegistered = True
            os.register_at_fork(before=self._before, after_in_parent=self._inParent, after_in_child=self._inChild)

    def _before(self) -> None:
        self._forking.stack = ExitStack()
        for each in list(self._watched):
            self._forking.stack.enter_context(each.forking())

    def _inParent(self) -> None:
        self._forking.stack.close()

    def _inChild(self) -> None:
        for each in list(self._watched):
            each.leaveToParent()
        self._forking.stack.close()


_forks = _Forks()


def watch(client: Forkable) -> None:
    """Close a client in every process that is forked from this one."""
    _forks.watch(client)
