"""The recurring schedules of a settings file: ``[schedules.NAME]``.

A table has ``topic``; either ``every``, seconds from 1 on, or ``cron`` with ``timezone``; and perhaps ``payload``, a
value of TOML without dates, ``header``, a table of header keys, ``catch-up`` (none, last or all) and ``paused``.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgpack

from fleximq.config.named_tables import checkKeys, readTables, tableFaults
from fleximq.config.option_values import flag, seconds, text
from fleximq.errors import BadRequest, SettingError
from fleximq.limits import TOPIC_BYTES
from fleximq.values.occurrences import CONTENT_BYTES, LEAST_EVERY, MOST_EVERY, NAME_BYTES, CatchUp, CronTimes

_KEYS = ("topic", "payload", "header", "every", "cron", "timezone", "catch-up", "paused")


class ScheduleTable(NamedTuple):
    """One table. ``payload`` and ``header`` are MessagePack, ``every`` is in milliseconds."""

    name: str
    topic: str
    payload: bytes = b""
    header: bytes = b""
    every: int | None = None
    cron: str | None = None
    timezone: str = "UTC"
    catchUp: CatchUp = CatchUp.NONE
    paused: bool = False


def schedules(name: str, value: object) -> tuple[ScheduleTable, ...]:
    """Parse all tables below ``schedules``; raises SettingError for the first that is wrong."""
    return readTables(name, value, ScheduleTable, _table)


def scheduleFaults(name: str, value: object) -> Iterator[str]:
    """Yield a sentence for each table that is wrong."""
    return tableFaults(name, value, schedules)


def _table(place: str, name: str, table: Mapping[str, Any]) -> ScheduleTable:
    if not 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES:
        raise SettingError(f"{place} must have a name of 1 to {NAME_BYTES} bytes")
    checkKeys(place, table, _KEYS)
    topic = text(f"{place}.topic", table.get("topic", ""))
    if not 0 < len(topic.encode("utf-8", "surrogatepass")) <= TOPIC_BYTES or topic.startswith("$"):
        raise SettingError(f"{place} must have a topic of 1 to {TOPIC_BYTES} bytes that does not begin with $")
    payload = _packed(place, "payload", table["payload"]) if "payload" in table else b""
    header = _packed(place, "header", table["header"]) if "header" in table else b""
    if "header" in table and not isinstance(table["header"], Mapping):
        raise SettingError(f"{place}.header is {table['header']!r}, but must be a table")
    if len(payload) + len(header) > CONTENT_BYTES:
        raise SettingError(f"{place} may have {CONTENT_BYTES} bytes of header and payload")
    paused = flag(f"{place}.paused", table.get("paused", False))
    return ScheduleTable(name, topic, payload, header, *_times(place, table), _catchUp(place, table), paused)


def _times(place: str, table: Mapping[str, Any]) -> tuple[int | None, str | None, str]:
    if ("every" in table) == ("cron" in table):
        raise SettingError(f"{place} must have either every or cron")
    timezone = text(f"{place}.timezone", table.get("timezone", "UTC"))
    if "every" in table:
        every = round(seconds(f"{place}.every", table["every"]) * 1000)
        if not LEAST_EVERY <= every <= MOST_EVERY:
            raise SettingError(f"{place}.every is {every / 1000:g}, but must be at least 1 second and at most 10 years")
        return every, None, timezone
    cron = text(f"{place}.cron", table["cron"])
    try:
        CronTimes(cron, timezone)
    except BadRequest as error:
        raise SettingError(f"{place}: {error}") from None
    return None, cron, timezone


def _catchUp(place: str, table: Mapping[str, Any]) -> CatchUp:
    value = text(f"{place}.catch-up", table.get("catch-up", "none"))
    try:
        return CatchUp(value)
    except ValueError:
        raise SettingError(f"{place}.catch-up is {value!r}, but must be none, last or all") from None


def _packed(place: str, key: str, value: object) -> bytes:
    try:
        packed: bytes = msgpack.packb(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise SettingError(f"{place}.{key} cannot be packed: {error}") from None
    return packed
