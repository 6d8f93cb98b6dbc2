"""The archive of Java's classes that lets Spark start sooner: in less than half of the time.

It is made at the end of the first brief run, which takes some seconds once; from then on every run maps it. Java itself
checks that it fits, by its own build and by names, times and sizes of all of Spark's files, and does without it where
it does not. It is code, so it is only taken from a folder that belongs to the user alone.
"""

import os
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from fleximq.pipeline.command.java import Java

#: The first version that makes an archive with what it has learnt of the methods too.
_LEARNS = 24
#: Seconds after which what nobody uses or finishes is removed.
_UNUSED, _UNFINISHED = 30 * 86_400, 3600
#: Seconds that Java may take to write it.
_ARCHIVE_TIMEOUT = 120
#: Java is not to speak of what does not fit.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"


def cacheFolder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of archives, made if it is missing; None where there is none that only this user can write."""
    named = environment.get("XDG_CACHE_HOME", "")
    home = environment.get("HOME", "")
    base = named if os.path.isabs(named) else f"{home}/.cache" if os.path.isabs(home) else ""
    if not base:
        return None
    folder = Path(base, "fleximq")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if private and not set(str(folder)) & set(" \t\n\"'\\") else None


def _mark(path: str) -> str:
    """Return what changes when that what is there is replaced by another version: Java would refuse the old archive."""
    real = os.path.realpath(path)
    try:
        return f"{real} {os.stat(real).st_mtime_ns}"
    except OSError:
        return real


class Archive:
    """The archive for one Java and one Spark.

    :param spark: the folder of Spark.
    """

    def __init__(self, folder: Path, java: Java, spark: str) -> None:
        marks = [_mark(java.program), str(java.version), _mark(f"{spark}/jars")]
        named = sha256("\0".join(marks).encode()).hexdigest()[:16]
        self._java = java
        self._learns = java.version >= _LEARNS
        self.path = folder / f"spark-{named}.jsa"
        self._new = folder / f"spark-{named}.{os.getpid()}.new"

    def options(self, record: bool) -> str:
        """Return what Java is to be started with: to use the archive, or to note what belongs into it.

        :param record: whether it may be made, if there is none.
        """
        self._tidy()
        if self.path.exists():
            with suppress(OSError):
                os.utime(self.path)
            return f"{'-XX:AOTCache' if self._learns else '-XX:SharedArchiveFile'}={self.path} {_SILENT}"
        if not record:
            return ""
        if self._learns:
            return f"-XX:AOTMode=record -XX:AOTConfiguration={self._new} {_SILENT}"
        return f"-XX:ArchiveClassesAtExit={self._new} {_SILENT}"

    def keep(self, java: "subprocess.Popen[bytes]", arguments: Sequence[str]) -> bool:
        """Wait until Java has ended, and keep what it has noted or written; tell whether there is an archive now.

        :param arguments: those that Java was started with, of which the class path is part.
        """
        try:
            java.wait(_ARCHIVE_TIMEOUT)
            if self._learns:
                self._make(arguments)
            os.replace(self._new, self.path)
        except (OSError, subprocess.SubprocessError):
            with suppress(OSError):
                self._new.unlink()
            return False
        return True

    def _make(self, arguments: Sequence[str]) -> None:
        """Let another Java make the archive of what was noted.

        :raises OSError: or SubprocessError, it was not made.
        """
        noted = self._new.with_suffix(".noted")
        os.replace(self._new, noted)
        kept = [word for word in arguments if not word.startswith(("-XX:AOT", "-Xlog"))]
        try:
            subprocess.run(
                [self._java.program, "-XX:AOTMode=create", f"-XX:AOTConfiguration={noted}", f"-XX:AOTCache={self._new}"]
                + kept,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_ARCHIVE_TIMEOUT,
                check=True,
            )
        finally:
            with suppress(OSError):
                noted.unlink()

    def _tidy(self) -> None:
        """Remove archives that were not used for long, and what was left unfinished."""
        now = time.time()
        for each in self.path.parent.glob("spark-*"):
            with suppress(OSError):
                if now - each.stat().st_mtime > (_UNUSED if each.suffix == ".jsa" else _UNFINISHED):
                    each.unlink()
