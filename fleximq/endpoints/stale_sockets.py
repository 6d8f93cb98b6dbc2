"""Folders of UNIX sockets, and the removal of stale sockets.

A killed process leaves its socket and Twisted's lock; its process id may belong to another process by now, as in a
container. So a connection attempt decides whether the socket is in use.
"""

import errno
import os
import socket
import stat
from contextlib import suppress

#: Suffix of the lock that Twisted's ``unix:`` endpoint adds to a socket.
LOCK = ".lock"


def makeFolder(path: str) -> None:
    """Create the folder of a socket (FlexiMQ document 6.3.1); raises OSError if its parent does not permit that."""
    with suppress(FileExistsError):
        os.mkdir(os.path.dirname(path))


def removeStaleSocket(path: str) -> None:
    """Remove a stale socket and its lock; raises OSError (EADDRINUSE) for one in use, and for any other file."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if os.path.islink(path):
            raise OSError(
                errno.EADDRINUSE, f"it is a symbolic link to {os.readlink(path)}, which does not exist"
            ) from None
        with suppress(OSError):
            os.remove(path + LOCK)
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EADDRINUSE, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        if asking.connect_ex(path) != errno.ECONNREFUSED:  # only a refusal proves that it is not in use
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    for left in (path, path + LOCK):
        with suppress(FileNotFoundError):
            os.remove(left)
