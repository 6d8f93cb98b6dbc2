"""The small files of a table's own, in ``_fleximq``: JSON, each replaced as a whole."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.file_names import OWN

#: The machine's own file system.
FILES = Files()
_Result = TypeVar("_Result")


def readOwn(table: str, name: str, read: Callable[[Any], _Result], files: Files = FILES) -> _Result | None:
    """Return what ``read`` makes of a file, None without it; raises LakeRefused if it is damaged, and OSError."""
    path = f"{table}/{OWN}/{name}"
    try:
        return read(json.loads(readFile(files, path)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeRefused(f"{path} is damaged: {error}") from error


def readRecorded(table: str, name: str, read: Callable[[Any], _Result], files: Files = FILES) -> _Result | None:
    """Return the same; raises LakeRefused also if the file cannot be read."""
    try:
        return readOwn(table, name, read, files)
    except OSError as error:
        raise LakeRefused(f"{table}/{OWN}/{name} cannot be read: {error.strerror or error}") from error


def writeOwn(table: str, name: str, content: object, files: Files = FILES) -> None:
    """Replace a file atomically; raises OSError if it cannot be written."""
    replaceFile(files, f"{table}/{OWN}", name, json.dumps(content).encode())
