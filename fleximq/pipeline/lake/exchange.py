"""Lets a folder's content take the place of another's in one step: a reader that lists it finds the one or the other.

What neither Python nor POSIX has, Linux does: ``renameat2`` with ``RENAME_EXCHANGE``.
"""

import ctypes
import errno
import os

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(one: str, other: str) -> None:
    """Exchange what two names mean, both of one file system.

    :raises OSError: it cannot be done; ``ENOTSUP`` where the system or the file system knows no exchange.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOTSUP, "this system cannot exchange folders")
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        raise OSError(errno.ENOTSUP, "this file system cannot exchange folders")
    raise OSError(number, os.strerror(number), one)
