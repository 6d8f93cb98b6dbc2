"""The queues of a settings file: ``[queues.NAME]``, with the keys of ``/queue/define``.

:class:`~fleximq.values.queue_definition.QueueDefinition` lists them; ``max_bytes`` may have a unit, ``"16MiB"``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fleximq.config.named_tables import checkKeys, readTables, tableFaults
from fleximq.config.option_values import size
from fleximq.errors import BadRequest, SettingError
from fleximq.values.queue_definition import KEYS, QueueDefinition


def queues(name: str, value: object) -> tuple[QueueDefinition, ...]:
    """Parse all tables below ``queues``; raises SettingError for the first that is wrong."""
    return readTables(name, value, QueueDefinition, _table)


def queueFaults(name: str, value: object) -> Iterator[str]:
    """Yield a sentence for each table that is wrong."""
    return tableFaults(name, value, queues)


def _table(place: str, name: str, table: Mapping[str, Any]) -> QueueDefinition:
    if name.startswith("$"):
        raise SettingError(f"{place} must have a name that does not begin with $")
    checkKeys(place, table, KEYS)
    values = dict(table)
    if isinstance(values.get("max_bytes"), str):
        values["max_bytes"] = size(f"{place}.max_bytes", values["max_bytes"])
    try:
        return QueueDefinition.read(name, values)
    except BadRequest as error:
        raise SettingError(f"{place}: {error}") from None
