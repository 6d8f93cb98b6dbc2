r"""Removes stale UNIX sockets, and translates ``ipc://`` paths to names of Windows pipes.

A killed process leaves its socket and Twisted's lock. The lock names a process id that another process may have by now,
e.g. always the same one in a container. So a connection attempt decides whether the socket is in use.

The names of pipes follow the FlexiMQ document 6.3.2 and 6.3.3, and are pure text on every platform. Simple names are
unchanged, of file-style paths the base name without its extension remains: ``C:\temp\app.pipe`` is ``\\.\pipe\app``.
"""

import errno
import ntpath
import os
import re
import socket
import stat
from contextlib import suppress

from fleximq.errors import SettingError

#: Prefix of all names of pipes.
NAMESPACE = "\\\\.\\pipe\\"
#: Maximum length of a name on Windows, the namespace included.
LONGEST_NAME = 256

_WINDOWS = re.compile(r"[a-z]:[\\/]|\\\\", re.IGNORECASE)


def pipeName(path: str) -> str:
    r"""Return the full name of the pipe that an ``ipc://`` path means on Windows.

    :param path: a simple name, a file-style path with either kind of slash, or a full name, which is returned
        unchanged.
    :raises SettingError: the name is empty or too long.
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
    r"""Return whether a path is for Windows only: it begins with a drive, or with two backslashes."""
    return _WINDOWS.match(path) is not None


#: Suffix of the lock that Twisted's ``unix:`` endpoint adds to a socket.
LOCK = ".lock"


def makeFolder(path: str) -> None:
    """Create the folder of a socket, but not its parents (FlexiMQ document 6.3.1).

    :raises OSError: the parent folder is missing too, or not writable.
    """
    with suppress(FileExistsError):
        os.mkdir(os.path.dirname(path))


def removeStaleSocket(path: str) -> None:
    """Remove a stale socket and its lock, but no other file.

    :raises OSError: EADDRINUSE if the socket is in use, or if another kind of file has the name.
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
    """Return whether a socket is in use; only a refusal proves that it is not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        return asking.connect_ex(path) != errno.ECONNREFUSED
