"""Decodes records of Avro and Protocol Buffers into columns: each payload becomes a map, the maps become columns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from fleximq.pipeline.payloads.map_columns import MAX_CLAUSE, RowColumns
from fleximq.schemas.misfit import Misfit

#: Converts a value of a library to one that Arrow accepts; None if Arrow accepts it unchanged.
Convert = Callable[[Any], Any] | None
#: The column of payloads that are no records.
VALUE = "value"
MOMENT = pa.timestamp("us", tz="UTC")


class Typed(NamedTuple):
    """The type of a column, and how values become values of it."""

    dataType: pa.DataType
    convert: Convert = None


class IRecords(Protocol):
    """Reads payloads of one format; ``fields`` are the columns that its schema describes."""

    fields: pa.Schema

    def read(self, payload: bytes) -> Mapping[str, Any]:
        """Return the values of a payload by their columns; raises Misfit if it does not fit."""


class Records(RowColumns):
    """Builds the columns of a schema, which may have others than those of the payloads."""

    def __init__(self, reader: IRecords, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._read = reader.read

    def columns(self, payloads: Sequence[bytes | None], errors: dict[int, str]) -> list[pa.Array]:
        """Return a column for each field; rows that do not fit, and those of None, are null, the former with errors."""
        rows: list[Any] = []
        for place, payload in enumerate(payloads):
            row: Mapping[str, Any] = self._nothing
            if payload is not None and place not in errors:
                try:
                    row = self._read(payload)
                except Misfit as misfit:
                    errors[place] = str(misfit)[:MAX_CLAUSE]
            rows.append(row)
        return self.built(rows, errors)


def listOf(item: Typed) -> Typed:
    """Return the ARRAY of a type."""
    each = item.convert
    if each is None:
        return Typed(pa.list_(item.dataType))
    return Typed(pa.list_(item.dataType), lambda values: [None if value is None else each(value) for value in values])


def mapOf(item: Typed, key: Callable[[Any], str] | None = None) -> Typed:
    """Return the MAP of texts, or of keys that become texts, to a type."""
    each, dataType = item.convert, pa.map_(pa.string(), item.dataType)

    def convert(values: Any) -> dict[str, Any]:
        return {
            name if key is None else key(name): value if value is None or each is None else each(value)
            for name, value in values.items()
        }

    return Typed(dataType, None if key is None and each is None else convert)


def structOf(fields: Mapping[str, Typed]) -> Typed:
    """Return the STRUCT of some fields; one without fields is the text ``{}``, since no table can have it."""
    if not fields:
        return Typed(pa.string(), lambda value: "{}")
    dataType = pa.struct([pa.field(name, each.dataType) for name, each in fields.items()])
    converts = {name: each.convert for name, each in fields.items() if each.convert is not None}
    if not converts:
        return Typed(dataType)

    def convert(values: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(values)
        for name, change in converts.items():
            if (value := found.get(name)) is not None:
                found[name] = change(value)
        return found

    return Typed(dataType, convert)
