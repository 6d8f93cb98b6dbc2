r"""Names of Windows pipes: how an ``ipc://`` path reads there, FlexiMQ document 6.3.2 and 6.3.3.

Pure text, the same on every platform. Simple names are kept, of file-style paths the base name without its extension
stays: ``C:\temp\app.pipe`` is ``\\.\pipe\app``.
"""

import ntpath
import re

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
