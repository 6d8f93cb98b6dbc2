"""Files that fail when a test says so, as a disk does that is full or broken."""

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any

from fleximq.journal.files.file_system import Files


class FaultyFiles(Files):
    """``calls`` names every operation that was tried, in order; see :meth:`fail`.

    Nothing is really synced: no test takes the power away from under it.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._faults: dict[str, tuple[int, int]] = {}
        self._short: int | None = None

    def fail(self, operation: str, after: int = 0, code: int = errno.EIO) -> None:
        """Let an operation fail for good, after so many more that work."""
        self._faults[operation] = after, code

    def takeOnly(self, bytes: int) -> None:
        """Let there be room for so many more bytes."""
        self._short = bytes

    def heal(self) -> None:
        """Let everything work again."""
        self._faults.clear()
        self._short = None

    def _do(self, operation: str, work: Callable[..., Any], *arguments: Any) -> Any:
        self.calls.append(operation)
        if operation in self._faults:
            after, code = self._faults[operation]
            if not after:
                raise OSError(code, os.strerror(code))
            self._faults[operation] = after - 1, code
        return work(*arguments)

    def create(self, path: str) -> int:
        """See :class:`Files`; so with all below."""
        return int(self._do("create", super().create, path))

    def write(self, descriptor: int, buffers: Sequence[Any], position: int) -> int:
        """Also fails when there is no room."""
        if self._short is not None:
            whole = b"".join(buffers)
            if not self._short:
                self.calls.append("write")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            buffers = [whole[: self._short]]
            self._short -= len(buffers[0])
        return int(self._do("write", super().write, descriptor, buffers, position))

    def sync(self, descriptor: int) -> None:
        """See :class:`Files`."""
        self._do("sync", lambda: None)

    def truncate(self, descriptor: int, size: int) -> None:
        """See :class:`Files`."""
        self._do("truncate", super().truncate, descriptor, size)

    def rename(self, old: str, new: str) -> None:
        """See :class:`Files`."""
        self._do("rename", super().rename, old, new)

    def remove(self, path: str) -> None:
        """See :class:`Files`."""
        self._do("remove", super().remove, path)

    def syncFolder(self, path: str) -> None:
        """See :class:`Files`."""
        self._do("syncFolder", lambda: None)
