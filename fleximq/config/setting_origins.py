"""Where each setting comes from: the command line, a line of the settings file, the program, or its default."""

import re
from collections.abc import Iterable
from typing import NamedTuple

_TABLE = re.compile(r"\s*\[\[?\s*(?:\"([\w-]+)\"|([\w-]+))")
_KEY = re.compile(r"\s*(?:\"([\w-]+)\"|([\w-]+))\s*[.=]")


class Origin(NamedTuple):
    """The source of a setting: ``command line``, ``file`` or ``program``; of a file its path and the line, if it is
    known.
    """

    source: str
    path: str | None = None
    line: int | None = None


def originsIn(path: str, text: str, names: Iterable[str]) -> dict[str, Origin]:
    """Return the origins of these settings of a TOML file with this text."""
    lines = linesOf(text)
    return {name: Origin("file", path, lines.get(name)) for name in names}


def linesOf(text: str) -> dict[str, int]:
    """Return the line, from 1 on, in which each key of the top level of a TOML file is set first."""
    found: dict[str, int] = {}
    isTop = True
    for number, line in enumerate(text.splitlines(), 1):
        table = _TABLE.match(line) if line.lstrip().startswith("[") else None
        if table is not None:
            isTop = False
        key = table or (_KEY.match(line) if isTop else None)
        if key is not None:
            found.setdefault(key[1] or key[2], number)
    return found
