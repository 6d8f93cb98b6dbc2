"""Bounds the cost of reading a payload of Apache Avro by its schema.

A value outside arrays and maps is read once, and a schema has a limited number of types. In an array, a few bytes may
be many values: fields without bytes, records in records. So the steps for each byte of an item are counted.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

Schema = Any
#: The steps that reading a value takes, about: of a type, and more for one with a logical type.
_STEPS = {"null": 1, "boolean": 1, "int": 1, "long": 1, "record": 8, "error": 8, "array": 6, "map": 6}
_UNION, _LOGICAL, _OTHERS = 6, 10, 2


class _Steps(NamedTuple):
    """Bounds of the steps to read a value: ``each`` for a byte, and ``once``; it has ``least`` bytes. ``inside`` are
    the most for a byte of an array or map in it.
    """

    each: float
    once: int
    least: int
    inside: float


def stepsIn(schema: Schema, named: Mapping[str, Schema]) -> float:
    """Return the most steps that a byte of an array or map in a value of a schema takes, 0 if there is none; ``named``
    has all types by their names.
    """
    return _steps(schema, named, {}).inside


def _steps(schema: Schema, named: Mapping[str, Schema], known: dict[str, _Steps]) -> _Steps:
    if isinstance(schema, str) and schema in named:
        if schema not in known:
            known[schema] = _steps(named[schema], named, known)
        return known[schema]
    if isinstance(schema, list):
        found = [_steps(each, named, known) for each in schema]
        once = _UNION + max(each.once for each in found)
        return _Steps(max(each.each for each in found), once, 1, max(each.inside for each in found))
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str) or kind in named:
        return _steps(kind, named, known)
    once = _STEPS.get(kind, _OTHERS)
    if isinstance(schema, Mapping):
        if "logicalType" in schema:
            once += _LOGICAL
        if kind in ("record", "error"):
            fields = [_steps(field["type"], named, known) for field in schema["fields"]]
            return _Steps(
                max((each.each for each in fields), default=0),
                once + sum(1 + each.once for each in fields),
                sum(each.least for each in fields),
                max((each.inside for each in fields), default=0),
            )
        if kind in ("array", "map"):
            # A key has a byte at least.
            item, key = _steps(schema["items" if kind == "array" else "values"], named, known), int(kind == "map")
            inside = item.each + (item.once + 2 * key) / max(1, item.least + key)
            return _Steps(inside, once, 1, max(inside, item.inside))
        if kind == "fixed":
            return _Steps(0, once, min(1, int(schema["size"])), 0)
    return _Steps(0, once, int(kind != "null"), 0)
