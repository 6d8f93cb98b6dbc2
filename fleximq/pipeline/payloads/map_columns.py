"""Maps as columns: a MessagePack map or a JSON object for each row.

This file is hot: a map of 5 fields costs 0.4 us as MessagePack and 0.5 us as JSON (docs/pipeline.rst, "How fast").

A row is read in one step as the schema says. What raises there is read by :mod:`checked`, which takes a little more
and says what is wrong.
"""

import re
from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from fleximq.pipeline.payloads.checked import LONGEST, Fields, Misfit, said
from fleximq.pipeline.payloads.typed_values import FAULTS, Convert, Format, annotation, exact

#: What msgspec allows in no name of a Struct's field.
_REFUSED = re.compile(r'[\x00-\x1f"\\]')


class _Row(NamedTuple):
    """What a payload is read as: its type, how one is made of its values, and how each value is got."""

    type: Any
    make: Callable[..., Any]
    getters: Sequence[Callable[[Any], Any]]


def _structs(schema: pa.Schema) -> _Row:
    names = {f"f{place}": name for place, name in enumerate(schema.names)}
    fields = [(each, annotation(type) | None, None) for each, type in zip(names, schema.types, strict=True)]
    # Millions of these live for a moment, and hold no cycles.
    type = msgspec.defstruct("Row", fields, rename=names, gc=False)
    return _Row(type, type, [attrgetter(each) for each in names])


def _dicts(schema: pa.Schema) -> _Row:
    """Return the same for any names; it takes half as long again."""
    names = schema.names
    getters = [methodcaller("get", name) for name in names]
    return _Row(annotation(pa.struct(list(schema))), lambda *values: dict(zip(names, values, strict=True)), getters)


class Maps:
    """Reads maps of one format by one schema."""

    def __init__(self, format: Format, schema: pa.Schema) -> None:
        self._names = schema.names
        self._types = schema.types
        self._checked = Fields(format, list(schema))
        self._empty = format.empty
        self._exact = [exact(type) for type in schema.types]
        row = _dicts(schema) if any(map(_REFUSED.search, schema.names)) else _structs(schema)
        self._make, self._getters = row.make, row.getters
        self._decode = format.decoder(row.type)
        self._nothing = row.make(*[None] * len(schema))

    def columns(self, values: pa.Array, errors: dict[int, str]) -> list[pa.Array]:
        """Return a column for each field; ``errors`` gets a clause for each row that does not fit, which is null."""
        return self.columnsOf(values.to_pylist(), errors)

    def columnsOf(self, payloads: Sequence[bytes | None], errors: dict[int, str]) -> list[pa.Array]:
        """Return the same for payloads in a list; None is a row of nulls."""
        rows = self._rows([self._empty if payload is None else payload for payload in payloads], errors)
        while True:
            known = len(errors)
            columns = [self._column(place, rows, errors) for place in range(len(self._types))]
            if len(errors) == known:
                return columns
            for place in errors:
                rows[place] = self._nothing

    def _rows(self, payloads: Sequence[bytes], errors: dict[int, str]) -> list[Any]:
        rows: list[Any] = []
        walk = map(self._decode, payloads)
        while True:
            try:
                # What was read before one raised is kept, and the walk goes on behind it.
                rows.extend(walk)
                return rows
            except FAULTS:
                rows.append(self._again(payloads[len(rows)], len(rows), errors))

    def _again(self, payload: bytes, place: int, errors: dict[int, str]) -> Any:
        try:
            return self._make(*self._checked.read(payload))
        except Misfit as misfit:
            errors[place] = str(misfit)
            return self._nothing

    def _column(self, column: int, rows: list[Any], errors: dict[int, str]) -> pa.Array:
        values = list(map(self._getters[column], rows))
        convert, type = self._exact[column], self._types[column]
        if convert is not None:
            name = self._names[column]
            values = [_converted(convert, value, name, place, errors) for place, value in enumerate(values)]
        try:
            return pa.array(values, type)
        except (*FAULTS, pa.ArrowException):
            return pa.concat_arrays([_alone(value, type, place, errors) for place, value in enumerate(values)])


def _converted(convert: Convert, value: Any, name: str, place: int, errors: dict[int, str]) -> Any:
    if value is None:
        return None
    try:
        return convert(value)
    except FAULTS as error:
        errors[place] = f"'{name}' {error}"[:LONGEST]
        return None


def _alone(value: Any, type: pa.DataType, place: int, errors: dict[int, str]) -> pa.Array:
    """Return one value as a column, a null if Arrow does not take it."""
    try:
        return pa.array([value], type)
    except (*FAULTS, pa.ArrowException) as error:
        errors[place] = said(error)[:LONGEST]
        return pa.nulls(1, type)
