"""Makes room for a UNIX socket where an earlier broker left one behind.

A process that was killed leaves its socket and Twisted's lock beside it; the lock names a process id that somebody
else may have by now, as in a container, where it is always the same. So the socket itself is asked whether anybody
listens.
"""

import errno
import os
import socket
import stat
from contextlib import suppress

#: What Twisted's ``unix:`` endpoint puts beside the socket.
LOCK = ".lock"


def makeFolder(path: str) -> None:
    """Make the folder of a socket if that is all that is missing (FlexiMQ document 6.3.1).

    :raises OSError: the folder above it is missing too, or cannot be written to.
    """
    with suppress(FileExistsError):
        os.mkdir(os.path.dirname(path))


def sweep(path: str) -> None:
    """Remove a stale socket and its lock; touch nothing else.

    :raises OSError: EADDRINUSE if somebody listens there, or if something other than a socket is in the way.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        with suppress(OSError):
            os.remove(path + LOCK)
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EADDRINUSE, "there is a file that is no socket")
    if _answers(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    for left in (path, path + LOCK):
        with suppress(FileNotFoundError):
            os.remove(left)


def _answers(path: str) -> bool:
    """Say whether somebody listens on a socket; only a refusal means that nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        return asking.connect_ex(path) != errno.ECONNREFUSED
