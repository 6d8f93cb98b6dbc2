"""The queues of a settings file: ``[queues.NAME]``, with the keys of ``/queue/define``.

:class:`~fleximq.values.queue_definition.QueueDefinition` lists them; ``max_bytes`` may have a unit, ``"16MiB"``.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from fleximq.config.option_values import size
from fleximq.errors import BadRequest, SettingError
from fleximq.values.queue_definition import KEYS, QueueDefinition

#: The most tables.
_MOST = 1000


def queues(name: str, value: object) -> tuple[QueueDefinition, ...]:
    """Parse all tables below ``queues``; raises SettingError for the first that is wrong."""
    if isinstance(value, tuple) and all(isinstance(each, QueueDefinition) for each in value):
        return value
    if not isinstance(value, Mapping):
        raise SettingError(f"{name} is {value!r}, but must be a table for each: [{name}.NAME]")
    if len(value) > _MOST:
        raise SettingError(f"{name} has {len(value)} tables, but there may be {_MOST}")
    return tuple(_table(f"{name}.{each}", each, table) for each, table in value.items())


def queueFaults(name: str, value: object) -> Iterator[str]:
    """Yield a sentence for each table that is wrong."""
    tables = value.items() if isinstance(value, Mapping) else [("", None)]
    for each, table in tables:
        try:
            queues(name, {each: table} if isinstance(value, Mapping) else value)
        except SettingError as error:
            yield str(error)


def _table(place: str, name: str, table: Any) -> QueueDefinition:
    if not isinstance(table, Mapping):
        raise SettingError(f"{place} is {table!r}, but must be a table: [{place}]")
    if name.startswith("$"):
        raise SettingError(f"{place} must have a name that does not begin with $")
    for key in table:
        if key not in KEYS:
            nearest = difflib.get_close_matches(key, KEYS, 1, 0.7)
            known = f"did you mean {nearest[0]}?" if nearest else f"only {', '.join(KEYS)}"
            raise SettingError(f"{place} has no key {key!r}, {known}")
    values = dict(table)
    if isinstance(values.get("max_bytes"), str):
        values["max_bytes"] = size(f"{place}.max_bytes", values["max_bytes"])
    try:
        return QueueDefinition.read(name, values)
    except BadRequest as error:
        raise SettingError(f"{place}: {error}") from None
