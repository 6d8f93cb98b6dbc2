"""The paths of a table's files, its own small files, and the tables of a lake. A path has the folders of the table's
layout, and the file's name, ``<journal>-<batch>-<part>.parquet``.

Spark decodes ``%XX`` in such paths, but infers a column's type from the encoded names: the first character of a name
that looks like a number is written as ``%XX``. Java finds only ASCII names under the locale ``C``, and Spark decodes
``%XX`` as single characters. So the folder of a topic is not the column ``topic``, which each file has.
"""

import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import date, timedelta
from hashlib import blake2b
from typing import Any, TypeVar

from fleximq.errors import systemReason
from fleximq.pipeline.errors import LakeRefused, OptionRefused
from fleximq.pipeline.lake.locations import lakePath
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.wait_notice import waitNotice

#: A layout with files for each day, sorted by topic; one with files for each topic and day; and the latter as it was
#: before layouts were recorded, with topics in the names of folders.
DATE, TOPIC, NAMED = "date", "topic", "named"
LAYOUTS = (DATE, TOPIC)
#: The layout of a table of the latest rows: all files are in one folder, and readers see no folder as a column.
BY_KEY, KEYS = "key", "keys"
#: The column that readers derive from the folder of a topic.
KEY = "fleximq_topic"
#: The file with the schema of the whole table, which Spark reads first.
COMMON = "_common_metadata"

#: Maximum length of a topic's name in a path, in bytes; file systems allow 255.
MAX_NAME_BYTES = 200
_HASH_BYTES = 10
#: Seconds after which a wait for a store is reported.
STORE_SILENCE = 10.0
FIRST_DAY = date(1970, 1, 1)
_DATE = re.compile(r"(?:^|/)date=([0-9]{4}-[0-9]{2}-[0-9]{2})(?:/|$)")
#: Hive's name for null.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_TO_ESCAPE = re.compile(r"[\x00-\x7f](?<![A-Za-z0-9._~$-])")
# The first characters of all that Java reads as a number, with NaN and Infinity.
_LIKE_NUMBER = re.compile(r"[0-9+.NI-]")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_Result = TypeVar("_Result")
_log = logging.getLogger("fleximq.pipeline")


def isFileName(name: object) -> bool:
    """Tell whether a name can be that of a file or folder which no reader hides, and cannot lead to another folder."""
    return isinstance(name, str) and bool(_FILE_NAME.fullmatch(name))


def fileName(name: str) -> str:
    """Return a name that becomes part of a path, as a journal's id; raises LakeRefused if it cannot be a file's."""
    if not isFileName(name):
        raise LakeRefused(f"{name!r} cannot be part of a file's name")
    return name


def pathIn(table: str, path: str) -> str:
    """Return the whole path of a file or folder that a table's own files name; raises LakeRefused if it is outside."""
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise LakeRefused(f"the table {table} is damaged: it names {path!r}, which is not in it")
    return f"{table}/{path}"


def escaped(topic: str, asciiOnly: bool = False) -> str:
    """Return a topic's name for a path; one of more than 200 bytes is truncated and ends with ``~`` and a hash, as does
    one whose other characters became ``_`` since it has to be ``asciiOnly``. The file's metadata have the full name.
    """
    text = _TO_ESCAPE.sub(lambda found: f"%{ord(found[0]):02X}", topic)
    if _LIKE_NUMBER.match(text) or text == _NULL:
        text = f"%{ord(text[0]):02X}{text[1:]}"
    isWhole = topic.isascii() or not asciiOnly
    text = text if isWhole else re.sub(r"[^\x00-\x7f]", "_", text)
    if isWhole and len(text.encode()) <= MAX_NAME_BYTES:
        return text
    digest = blake2b(topic.encode(), digest_size=_HASH_BYTES).hexdigest()
    kept = text.encode()[: MAX_NAME_BYTES - len(digest) - 1].decode("utf-8", "ignore")
    # Remove a truncated escape.
    kept = re.sub(r"%[0-9A-F]?$", "", kept)
    return f"{kept}~{digest}"


def dateOf(day: int) -> str:
    """Return a day since 1970 as ``YYYY-MM-DD``, limited to the years 1 to 9999: readers know no other dates."""
    low, high = (date.min - FIRST_DAY).days, (date.max - FIRST_DAY).days
    return (FIRST_DAY + timedelta(days=min(max(day, low), high))).isoformat()


def partitionOf(topic: str, date: str, layout: str) -> str:
    """Return the folder for a topic and a day (``YYYY-MM-DD``, UTC) in a layout, relative to the table."""
    if layout == BY_KEY:
        return KEYS
    if layout == DATE:
        return f"date={date}"
    folder = f"{KEY}={escaped(topic, asciiOnly=True)}" if layout == TOPIC else f"topic={escaped(topic)}"
    return f"{folder}/date={date}"


def dateIn(path: str) -> str:
    """Return the day of a partition's folder or of a file in it; raises LakeRefused if the path has none."""
    found = _DATE.search(path)
    if found is None:
        raise LakeRefused(f"{path} is of another origin: it is in no folder of a day")
    return found[1]


def fileOf(journal: str, batch: int, part: int) -> str:
    """Return the name of a file with records of a journal; raises LakeRefused for an id that is none."""
    return f"{fileName(journal)}-{batch:010d}-{part:05d}.parquet"


def tableNames(lake: str | None, files: LakeFiles = FILES) -> list[str]:
    """Return the names of all tables of a lake, sorted; none without one. Raises LakeRefused if its folder cannot be
    read.
    """
    if lake is None:
        return []
    try:
        with _waiting(lake):
            return files.tables(lake)
    except OSError as error:
        raise LakeRefused(f"the lake {lake} cannot be read: {systemReason(error)}") from error


def checkLake(lake: str, files: LakeFiles = FILES) -> None:
    """Raise LakeRefused if the store of a lake does not answer, or refuses the credentials."""
    try:
        if "://" in lake:
            with _waiting(lake):
                files.names(lake)
    except OSError as error:
        raise LakeRefused(f"the lake {lake} cannot be read: {systemReason(error)}") from error


def _waiting(lake: str) -> AbstractContextManager[None]:
    sentence = f"the lake {lake} has not answered for {STORE_SILENCE:g} s, still waiting"
    return waitNotice(lambda: sentence, _log.warning, STORE_SILENCE)


def tablesOf(lake: str | None, names: Sequence[str] | None) -> list[str]:
    """Return the folders of these tables, or of all; raises OptionRefused if no lake was named, and LakeRefused."""
    if not lake:
        raise OptionRefused("--lake FOLDER is needed: it says where the tables are")
    lake = lakePath(lake)
    found = tableNames(lake)
    if not found:
        raise LakeRefused(f"there is no table in {lake}")
    for name in names or ():
        if name not in found:
            raise LakeRefused(f"there is no table {name!r} in {lake}, only {', '.join(found)}")
    return [f"{lake}/{name}" for name in names or found]


def readOwn(table: str, name: str, read: Callable[[Any], _Result], files: LakeFiles = FILES) -> _Result | None:
    """Return the result of ``read`` for a JSON file, if it exists; raises LakeRefused if it is damaged, and OSError."""
    path = f"{table}/{OWN}/{name}"
    try:
        return read(json.loads(files.readOwn(table, name)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeRefused(f"{path} is damaged: {error}") from error


def readRecorded(table: str, name: str, read: Callable[[Any], _Result], files: LakeFiles = FILES) -> _Result | None:
    """Return the same; raises LakeRefused also if the file cannot be read."""
    try:
        return readOwn(table, name, read, files)
    except OSError as error:
        raise LakeRefused(f"{table}/{OWN}/{name} cannot be read: {systemReason(error)}") from error


def writeOwn(table: str, name: str, content: object, files: LakeFiles = FILES) -> None:
    """Replace a file atomically; raises OSError if it cannot be written."""
    files.writeOwn(table, name, json.dumps(content).encode())
