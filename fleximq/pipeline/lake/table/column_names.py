"""Checks that no two columns have the same name in Iceberg, regardless of case: the table would be unreadable. Iceberg
calls a field in a STRUCT ``outer.inner``, and the contents of ARRAY and MAP ``NAME.element``, ``NAME.key`` and
``NAME.value``. So a payload's key ``a.b`` becomes no column if a column ``a`` has a field ``b``.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from fleximq.pipeline.lake.table.columns import BASE, TableColumns
from fleximq.pipeline.lake.table.format import ICEBERG
from fleximq.pipeline.payloads.dialect_payloads import METADATA

_Path = tuple[str, ...]
#: The path of a column, and the path of its short name.
_Both = tuple[_Path, _Path]


class Distinct(NamedTuple):
    """The columns with unique names, and the names of those that were left out."""

    columns: TableColumns
    leftOut: list[str]


def distinct(tableFormat: str, columns: TableColumns, known: Iterable[pa.Field] = ()) -> Distinct:
    """Leave out columns of an Iceberg table with the name of an earlier column, or of a ``known`` one, which the table
    already has. Tables of other formats have all columns.
    """
    leftOut: list[str] = []
    while tableFormat == ICEBERG:
        names = _Names([*BASE, METADATA, *known])
        types = [
            names.distinctType(((name,), (name,)), dataType)
            for name, dataType in zip(columns.names, columns.fields.types, strict=True)
        ]
        fields = [
            field.with_type(dataType)
            for field, dataType in zip(columns.fields, types, strict=True)
            if dataType is not None
        ]
        columns = columns._replace(fields=pa.schema(fields))
        leftOut += names.leftOut
        # A column's name may depend on one that was left out.
        if not names.leftOut:
            break
    return Distinct(columns, leftOut)


class _Names:
    """The names in use, each with the path of its column. A field of a STRUCT in an ARRAY or MAP also has a short name,
    without ``element`` or ``value``, which Iceberg refuses for new columns.
    """

    def __init__(self, known: Iterable[pa.Field]) -> None:
        paths = [each for field in known for each in _paths(((field.name,), (field.name,)), field.type)]
        self._known = {path for path, _ in paths}
        self._taken = {_joined(short): path for path, short in paths} | {_joined(path): path for path, _ in paths}
        self.leftOut: list[str] = []

    def distinctType(self, names: _Both, dataType: pa.DataType) -> pa.DataType | None:
        """Return the type of a column without fields with names that are taken; None if no field is left."""
        path, short = names
        if path not in self._known and self._taken.setdefault(_joined(path), path) != path:
            self.leftOut.append(".".join(path))
            return None
        self._taken.setdefault(_joined(short), path)
        inner = [self.distinctType(each, dataType) for each, dataType in _inner(names, dataType)]
        if pa.types.is_struct(dataType):
            fields = [field.with_type(each) for field, each in zip(dataType, inner, strict=True) if each is not None]
            return pa.struct(fields) if fields else None
        if None in inner:
            return None
        if pa.types.is_list(dataType):
            return pa.list_(*inner)
        return pa.map_(*inner) if pa.types.is_map(dataType) else dataType


def _joined(path: _Path) -> str:
    return ".".join(path).lower()


def _inner(names: _Both, dataType: pa.DataType) -> list[tuple[_Both, pa.DataType]]:
    """Return the types in an ARRAY, a MAP or a STRUCT, with their paths."""
    path, short = names
    if pa.types.is_struct(dataType):
        return [(((*path, field.name), (*short, field.name)), field.type) for field in dataType]
    if pa.types.is_map(dataType):
        key = (*path, "key"), (*short, "key")
        return [(key, dataType.key_type), (_element(names, "value", dataType.item_type), dataType.item_type)]
    if pa.types.is_list(dataType) or pa.types.is_large_list(dataType):
        return [(_element(names, "element", dataType.value_type), dataType.value_type)]
    return []


def _element(names: _Both, name: str, dataType: pa.DataType) -> _Both:
    path, short = names
    return (*path, name), short if pa.types.is_struct(dataType) else (*short, name)


def _paths(names: _Both, dataType: pa.DataType) -> Iterator[_Both]:
    yield names
    for each, inner in _inner(names, dataType):
        yield from _paths(each, inner)
