"""Iceberg's names of columns: that of a field in a STRUCT is ``outer.inner``, those in ARRAY and MAP end with
``.element``, ``.key`` and ``.value``. Two columns with one such name, regardless of case, make a table unreadable. So a
key ``a.b`` of a payload is no column beside a column ``a`` with a field ``b``.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from fleximq.pipeline.lake.table.columns import BASE, TableColumns
from fleximq.pipeline.lake.table.format import ICEBERG
from fleximq.pipeline.payloads.dialect_payloads import METADATA

_Path = tuple[str, ...]


class Distinct(NamedTuple):
    """The columns that have names of their own, and the names of those that were left out."""

    columns: TableColumns
    leftOut: list[str]


def distinct(format: str, columns: TableColumns, known: Iterable[pa.Field] = ()) -> Distinct:
    """Leave out columns that the format could not tell apart from others: neither from ``known`` ones, which it has
    already, nor from those that precede. Formats other than Iceberg have no such columns.
    """
    leftOut: list[str] = []
    while format == ICEBERG:
        names = _Names([*BASE, METADATA, *known])
        types = [
            names.distinctType((name,), type) for name, type in zip(columns.names, columns.fields.types, strict=True)
        ]
        fields = [field.with_type(type) for field, type in zip(columns.fields, types, strict=True) if type is not None]
        columns = columns._replace(fields=pa.schema(fields))
        leftOut += names.leftOut
        # A column's name may depend on one that was left out.
        if not names.leftOut:
            break
    return Distinct(columns, leftOut)


class _Names:
    """The names that are in use, each with the path of its column."""

    def __init__(self, known: Iterable[pa.Field]) -> None:
        self._known = {path for field in known for path in _paths((field.name,), field.type)}
        self._taken = {_joined(path): path for path in self._known}
        self.leftOut: list[str] = []

    def distinctType(self, path: _Path, type: pa.DataType) -> pa.DataType | None:
        """Return the type of a column without fields whose names are taken, None if no column is left."""
        if path not in self._known and self._taken.setdefault(_joined(path), path) != path:
            self.leftOut.append(".".join(path))
            return None
        if pa.types.is_struct(type):
            types = [(field, self.distinctType((*path, field.name), field.type)) for field in type]
            fields = [field.with_type(inner) for field, inner in types if inner is not None]
            return pa.struct(fields) if fields else None
        inner = [self.distinctType((*path, name), each) for name, each in _inner(type)]
        if None in inner:
            return None
        if pa.types.is_list(type):
            return pa.list_(*inner)
        return pa.map_(*inner) if pa.types.is_map(type) else type


def _joined(path: _Path) -> str:
    return ".".join(path).lower()


def _inner(type: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return the types in an ARRAY, a MAP or a STRUCT, by name."""
    if pa.types.is_struct(type):
        return [(field.name, field.type) for field in type]
    if pa.types.is_map(type):
        return [("key", type.key_type), ("value", type.item_type)]
    return [("element", type.value_type)] if pa.types.is_list(type) or pa.types.is_large_list(type) else []


def _paths(path: _Path, type: pa.DataType) -> Iterator[_Path]:
    yield path
    for name, each in _inner(type):
        yield from _paths((*path, name), each)
