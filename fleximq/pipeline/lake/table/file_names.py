"""Where the files of a table stand: ``topic=<name>/date=<day>/<journal>-<batch>-<part>.parquet``.

Readers of Parquet take columns from such names. Spark undoes ``%XX``, but guesses a column's type from the names as
they are written: of topics named ``2024`` and ``007`` it would make numbers. A name that could be taken for one has its
first character written as ``%XX``, so it stays what it is.

Which tables a lake has, and what is asked of those that jobs look after.
"""

import os
import re
from collections.abc import Sequence
from datetime import date, timedelta
from hashlib import blake2b

from fleximq.pipeline.errors import LakeRefused, OptionRefused

#: What stands in a table's folder beside its data; readers of Parquet pass over names that begin so.
OWN = "_fleximq"
#: The schema of the whole table, in a file that Spark looks into first.
COMMON = "_common_metadata"

#: The most bytes of a topic's name in a path; a file's name may have 255.
MOST_BYTES = 200
_HASH_BYTES = 10
_FIRST_DAY = date(1970, 1, 1)
#: Hive's word for null.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_TO_ESCAPE = re.compile(r"[\x00-\x7f](?<![A-Za-z0-9._~$-])")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
# What Java reads as a number begins so, or is NaN or Infinity.
_LIKE_NUMBER = re.compile(r"[0-9+.NI-]")


def escaped(topic: str) -> str:
    """Return a topic's name as it stands in a path; a name of more than 200 bytes is cut, and ends with a hash.

    ``~`` is what comes before the hash. The whole name stands in each file.
    """
    text = _TO_ESCAPE.sub(lambda found: f"%{ord(found[0]):02X}", topic)
    if _LIKE_NUMBER.match(text) or text == _NULL:
        text = f"%{ord(text[0]):02X}{text[1:]}"
    if len(text.encode()) <= MOST_BYTES:
        return text
    digest = blake2b(topic.encode(), digest_size=_HASH_BYTES).hexdigest()
    kept = text.encode()[: MOST_BYTES - len(digest) - 1].decode("utf-8", "ignore")
    # Half of an escape is none.
    kept = re.sub(r"%[0-9A-F]?$", "", kept)
    return f"{kept}~{digest}"


def unescaped(text: str) -> str:
    """Return the name that :func:`escaped` has written, as readers see it; of a name that was cut what is left."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def dateOf(day: int) -> str:
    """Return a day since 1970 as ``YYYY-MM-DD``, limited to the years 1 to 9999: readers know no other dates."""
    low, high = (date.min - _FIRST_DAY).days, (date.max - _FIRST_DAY).days
    return (_FIRST_DAY + timedelta(days=min(max(day, low), high))).isoformat()


def partitionOf(topic: str, date: str) -> str:
    """Return the folder for a topic and a day (``YYYY-MM-DD``, UTC), within the table's."""
    return f"topic={escaped(topic)}/date={date}"


def fileOf(journal: str, batch: int, part: int) -> str:
    """Return the name of a file with records of a journal."""
    return f"{journal}-{batch:010d}-{part:05d}.parquet"


def isTableName(name: str) -> bool:
    """Tell whether a table can be called so: it is a folder that no reader hides."""
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name))


def tablesOf(lake: str | None, names: Sequence[str] | None) -> list[str]:
    """Return the folders of these tables, or of all.

    :raises OptionRefused: no lake was named.
    :raises LakeRefused: there is no such table, or none at all.
    """
    if not lake:
        raise OptionRefused("--lake FOLDER is needed: it says where the tables are")
    lake = os.path.abspath(os.path.expanduser(lake))
    try:
        found = sorted(name for name in os.listdir(lake) if os.path.isdir(f"{lake}/{name}/{OWN}"))
    except OSError as error:
        raise LakeRefused(f"the lake {lake} cannot be read: {(error.strerror or str(error)).lower()}") from error
    if not found:
        raise LakeRefused(f"there is no table in {lake}")
    for name in names or ():
        if name not in found:
            raise LakeRefused(f"there is no table {name!r} in {lake}, only {', '.join(found)}")
    return [f"{lake}/{name}" for name in names or found]
