"""Checks the pid file of ``twistd`` before ``twistd`` does, which takes any process with its number for a broker.

A broker that was killed leaves its pid file. In a container the next one often has the same process id.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from fleximq.errors import SettingError, systemReason

#: The highest process id of a system, and the bytes that are read of a file.
_MAX_ID, _READ = (1 << 31) - 1, 100


def clearPidFile(path: str) -> None:
    """Remove the pid file of a broker that does not run any more; leave that of another broker to ``twistd``.

    :raises SettingError: it cannot be read or written, or does not contain a process id.
    """
    path = os.path.abspath(path)
    content = _content(path)
    if content and not (content.isdigit() and 0 < int(content) <= _MAX_ID):
        raise SettingError(
            f"the pid file {path} contains {content[:20].decode(errors='replace')!r}, which is no process id: remove "
            "it, or choose another one with twistd --pidfile=FILE"
        )
    if content is not None and not (content and _isBroker(int(content))):
        with suppress(FileNotFoundError):
            os.remove(path)


def _content(path: str) -> bytes | None:
    """Return the content of the file, None if it does not exist but may be made."""
    try:
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(0, "it is not a file")
        folder = os.path.dirname(path)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(0, f"{folder} does not exist or is not writable")
        with open(path, "rb") as file:
            return file.read(_READ).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = systemReason(error)
        raise SettingError(f"the pid file {path} cannot be used: {reason}; twistd --pidfile= writes none") from error


def _isBroker(process: int) -> bool:
    """Return whether a process runs that may be a broker: not this one, and not known to be another program."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return any(os.path.basename(word) in (b"fleximq", b"twistd") for word in words)
