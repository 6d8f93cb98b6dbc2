"""Tables of a settings file with names that the operator chooses: ``[queues.NAME]`` and ``[schedules.NAME]``."""

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

from fleximq.errors import SettingError

T = TypeVar("T")
#: The most tables of one kind.
MOST_TABLES = 1000


def readTables(name: str, value: object, kind: type[T], read: Callable[[str, str, Any], T]) -> tuple[T, ...]:
    """Return the tables below a name; raises SettingError for the first that is wrong.

    :param value: the tables, or what this has returned before.
    :param kind: what ``read`` returns for one table: it is called with its place, such as ``queues.mails``, its name
        and its keys.
    """
    if isinstance(value, tuple) and all(isinstance(each, kind) for each in value):
        return value
    if not isinstance(value, Mapping):
        raise SettingError(f"{name} is {value!r}, but must be a table for each: [{name}.NAME]")
    if len(value) > MOST_TABLES:
        raise SettingError(f"{name} has {len(value)} tables, but there may be {MOST_TABLES}")
    return tuple(_readTable(f"{name}.{each}", each, table, read) for each, table in value.items())


def _readTable(place: str, name: str, table: object, read: Callable[[str, str, Any], T]) -> T:
    if not isinstance(table, Mapping):
        raise SettingError(f"{place} is {table!r}, but must be a table: [{place}]")
    return read(place, name, table)


def tableFaults(name: str, value: object, parse: Callable[[str, object], object]) -> Iterator[str]:
    """Yield a sentence for each table that is wrong; ``parse`` raises SettingError for the first of some."""
    for one in [{each: table} for each, table in value.items()] if isinstance(value, Mapping) else [value]:
        try:
            parse(name, one)
        except SettingError as error:
            yield str(error)


def unknownKey(place: str, key: str, known: Collection[str], names: str | None = None) -> str:
    """Return a sentence on a key that a table does not have.

    :param names: the known keys as text; by default with commas.
    """
    nearest = difflib.get_close_matches(key, known, 1, 0.7)
    hint = f"did you mean {nearest[0]}?" if nearest else f"only {names or ', '.join(known)}"
    return f"{place} has no key {key!r}, {hint}"


def checkKeys(place: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise SettingError for the first key of a table that is not known."""
    for key in table:
        if key not in known:
            raise SettingError(unknownKey(place, key, known))
