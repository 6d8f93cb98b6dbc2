r"""The Windows pipe that an ``ipc://`` path means (FlexiMQ document 6.3.2 and 6.3.3). Pure, on every platform.

Simple names are unchanged, of file-style paths the base name without its extension remains: ``C:\temp\app.pipe`` is
``\\.\pipe\app``.
"""

import ntpath
import re

from fleximq.errors import SettingError

#: Prefix of all names of pipes.
NAMESPACE = "\\\\.\\pipe\\"
#: Maximum length of a name on Windows, the namespace included.
LONGEST_NAME = 256

_WINDOWS = re.compile(r"[a-z]:[\\/]|\\\\", re.IGNORECASE)


def pipeName(path: str) -> str:
    """Return the full name of the pipe of a name or path, with either slash; raises SettingError if it is invalid."""
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
