"""Checks of numbers that Avro's encoding permits but the schema does not; fastavro reads them as other values.

An index of an enum or union below 0 counts from its end, an ``int`` may have more than 32 bits, and of more than 64
bits the higher ones are ignored. Only values of these types are looked at, and a payload byte by byte only if it may
have a number of more than 64 bits.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from fastavro.read import LOGICAL_READERS

from fleximq.schemas.misfit import Misfit

_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
#: A number of more than 64 bits has so many successive bytes of 128 or more; a text may have them too.
_RUN, _LONG = 9, re.compile(rb"[\x80-\xff]{9}[\x02-\xff]")
_HIGH, _RUNNING = bytes(each >> 7 for each in range(256)), b"\1" * _RUN
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}

#: Checks a value at a path; raises Misfit.
Check = Callable[[Any, str], None]


_AT = list.__getitem__


class _Places(list[Any]):
    """The branches of a union or the symbols of an enum; an index below 0 raises IndexError. The length is 0 because
    compiled code adds it to a negative index before it calls ``__getitem__``.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return 0

    def __getitem__(self, place: Any) -> Any:
        if place < 0:
            raise IndexError(place)
        return _AT(self, place)


def strict(schema: Any) -> Any:
    """Return a parsed schema for reading, with checked indexes."""
    if isinstance(schema, list):
        return _Places(map(strict, schema))
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(each) if key in ("items", "values") else each for key, each in schema.items()}
    if isinstance(schema.get("type"), dict | list):
        found["type"] = strict(schema["type"])
    if "symbols" in schema:
        found["symbols"] = _Places(schema["symbols"])
    if "fields" in schema:
        found["fields"] = [{**each, "type": strict(each["type"])} for each in schema["fields"]]
    if "__named_schemas" in schema:
        found["__named_schemas"] = {name: strict(each) for name, each in schema["__named_schemas"].items()}
    return found


def intCheck(schema: Any, named: Mapping[str, Any]) -> Check | None:
    """Return a check of each ``int`` in values of a parsed schema, None if there can be none."""
    kind = schema if isinstance(schema, str | list) else schema["type"]
    if isinstance(kind, list):
        return _ofUnion(kind, named)
    if isinstance(kind, Mapping) or kind in named:
        return intCheck(kind if isinstance(kind, Mapping) else named[kind], named)
    if kind in ("record", "error"):
        found = [(each["name"], intCheck(each["type"], named)) for each in schema["fields"]]
        ints = [name for name, check in found if check is _checkInt]
        others = [(name, check) for name, check in found if check is not None and check is not _checkInt]
        return _ofRecord(ints, others) if ints or others else None
    if kind in ("array", "map"):
        inner = intCheck(schema["items" if kind == "array" else "values"], named)
        return None if inner is None else _ofMany(inner)
    isLogical = isinstance(schema, Mapping) and f"int-{schema.get('logicalType')}" in LOGICAL_READERS
    return _checkInt if kind == "int" and not isLogical else None


def _checkInt(value: Any, path: str) -> None:
    if not _LEAST <= value <= _MOST:
        raise Misfit(path, "has more than 32 bits")


def _ofRecord(ints: list[str], others: list[tuple[str, Check]]) -> Check:
    def check(value: Any, path: str) -> None:
        for name in ints:
            if not _LEAST <= value[name] <= _MOST:
                _checkInt(value[name], f"{path}.{name}".lstrip("."))
        for name, inner in others:
            inner(value[name], f"{path}.{name}".lstrip("."))

    return check


def _ofMany(inner: Check) -> Check:
    def check(value: Any, path: str) -> None:
        items = value.values() if isinstance(value, dict) else value
        if inner is not _checkInt:
            for each in items:
                inner(each, path)
        elif items:
            _checkInt(min(items), path)
            _checkInt(max(items), path)

    return check


def _ofUnion(schema: list[Any], named: Mapping[str, Any]) -> Check | None:
    """Return a check of a value's branch; an ``int`` is not checked if the union has ``long`` too."""
    made = [(_nameOf(each), intCheck(each, named)) for each in schema]
    found = {name: inner for name, inner in made if inner is not None}
    classes = {int: "int" if "long" not in schema else "", list: "array", dict: "map"}
    single = next((inner for name, inner in found.items() if name not in classes.values()), None)

    def check(value: Any, path: str) -> None:
        if isinstance(value, tuple):
            inner, value = found.get(value[0]), value[1]
        else:
            inner = found.get(classes.get(type(value), "")) or (single if isinstance(value, dict) else None)
        if inner is not None:
            inner(value, path)

    return check if found else None


def _nameOf(schema: Any) -> str:
    name: str = schema if isinstance(schema, str) else schema.get("name", schema["type"])
    return name


def checkLongs(payload: bytes, begin: int, schema: Any, named: Mapping[str, Any]) -> None:
    """Raise Misfit if a payload, which fastavro has read, has a number of more than 64 bits."""
    # Every ninth byte is enough for a first look: a run of nine bytes contains one of them.
    if payload[begin::_RUN].isascii() or _RUNNING not in payload.translate(_HIGH):
        return
    if _LONG.search(payload, begin):
        _Numbers(payload, begin, named).read(schema, "")


class _Numbers:
    """Reads the numbers of one payload."""

    def __init__(self, payload: bytes, place: int, named: Mapping[str, Any]) -> None:
        self._payload, self._place, self._named = payload, place, named

    def read(self, schema: Any, path: str) -> None:
        kind = schema if isinstance(schema, str | list) else schema["type"]
        if isinstance(kind, list):
            self.read(kind[self._number(path)], path)
        elif isinstance(kind, Mapping) or kind in self._named:
            self.read(kind if isinstance(kind, Mapping) else self._named[kind], path)
        elif kind in ("record", "error"):
            for each in schema["fields"]:
                self.read(each["type"], f"{path}.{each['name']}".lstrip("."))
        elif kind in ("array", "map"):
            self._items(schema["items"] if kind == "array" else schema["values"], kind == "map", path)
        elif kind == "fixed":
            self._place += schema["size"]
        elif kind in _WIDTHS:
            self._place += _WIDTHS[kind]
        else:
            number = self._number(path)
            self._place += number if kind in ("bytes", "string") else 0

    def _items(self, schema: Any, isMap: bool, path: str) -> None:
        while count := self._number(path):
            if count < 0:
                self._number(path)
            for _ in range(abs(count)):
                if isMap:
                    self.read("string", path)
                self.read(schema, path)

    def _number(self, path: str) -> int:
        value, shift = 0, 0
        while True:
            byte = self._payload[self._place]
            self._place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if value >> 64:
            raise Misfit(path, "has a number of more than 64 bits")
        return (value >> 1) ^ -(value & 1)
