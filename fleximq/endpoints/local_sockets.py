"""Makes room for a UNIX socket where an earlier broker left one behind.

A process that was killed leaves its socket and Twisted's lock beside it; the lock names a process id that somebody
else may have by now, as in a container, where it is always the same. So the socket itself is asked whether anybody
listens.

Names of Windows pipes: how an ``ipc://`` path reads there, FlexiMQ document 6.3.2 and 6.3.3.

Pure text, the same on every platform. Simple names are kept, of file-style paths the base name without its extension
stays: ``C:\temp\app.pipe`` is ``\\.\\pipe\app``.
"""

import errno
import ntpath
import os
import re
import socket
import stat
from contextlib import suppress

from fleximq.errors import SettingError

#: What all names of pipes begin with.
NAMESPACE = "\\\\.\\pipe\\"
#: Windows takes no longer names, the namespace included.
LONGEST_NAME = 256

_WINDOWS = re.compile(r"[a-z]:[\\/]|\\\\", re.IGNORECASE)


def pipeName(path: str) -> str:
    r"""Return the full name of the pipe that an ``ipc://`` path means on Windows.

    :param path: a simple name, a file-style path with either kind of slash, or a full name, which is returned as it is.
    :raises SettingError: no name is left, or it is too long.
    """
    if path.lower().startswith(NAMESPACE):
        name = path[len(NAMESPACE) :]
    elif "/" in path or "\\" in path:
        name = ntpath.splitext(ntpath.basename(path))[0]
    else:
        name = path
    if not name or "\\" in name or "\0" in name:
        raise SettingError(f"there is no name of a pipe in {path!r}")
    if len(NAMESPACE + name) > LONGEST_NAME:
        raise SettingError(f"a pipe's name may have {LONGEST_NAME} characters, {NAMESPACE} included")
    return NAMESPACE + name


def isWindowsPath(path: str) -> bool:
    r"""Say whether a path can only be meant for Windows: it begins with a drive, or with two backslashes."""
    return _WINDOWS.match(path) is not None


#: What Twisted's ``unix:`` endpoint puts beside the socket.
LOCK = ".lock"


def makeFolder(path: str) -> None:
    """Make the folder of a socket if that is all that is missing (FlexiMQ document 6.3.1).

    :raises OSError: the folder above it is missing too, or cannot be written to.
    """
    with suppress(FileExistsError):
        os.mkdir(os.path.dirname(path))


def removeStaleSocket(path: str) -> None:
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
