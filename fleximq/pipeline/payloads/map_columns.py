"""Decodes maps into columns: a MessagePack map or a JSON object for each row. This file is hot: a map of 5 fields costs
0.4 us as MessagePack and 0.5 us as JSON (docs/reference/pipeline.rst). A row that fails in one step is decoded again by
:class:`StrictFields`, some microseconds for each column, to find the reason.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any

import msgspec
import pyarrow as pa

from fleximq.pipeline.payloads.ddl import typeWritten
from fleximq.pipeline.payloads.payload_formats import (
    FAULTS,
    LARGEST_FLOAT,
    Format,
    annotation,
    exact,
    hasTimes,
    mapOf,
    withYears,
)

#: Decodes the bytes of a value; the text says where in the payload it is, for an error.
_Read = Callable[[bytes, str], Any]
MAX_CLAUSE = 300
#: Characters that msgspec refuses in the name of a Struct's field.
_REFUSED = re.compile(r'[\x00-\x1f"\\]')


class Misfit(Exception):
    """A payload does not fit its schema; the text is one clause."""


def faultOf(error: BaseException) -> str:
    """Return a clause for bytes that raised one of :data:`FAULTS`."""
    if isinstance(error, UnicodeError):
        return "a text in it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it is too large"
    text = str(error).partition(" - at ")[0]
    return text.replace("Expected", "expected", 1) if text.startswith("Expected") else text


class StrictFields:
    """Decodes the fields of a map one by one."""

    def __init__(self, payloadFormat: Format, fields: Sequence[pa.Field]) -> None:
        raws: Any = {field.name: msgspec.Raw for field in fields}
        self._split = payloadFormat.decoder(mapOf(raws))
        self._format = payloadFormat
        self._fields = [(field.name, _value(payloadFormat, field.type)) for field in fields]

    def read(self, packed: bytes) -> list[Any]:
        """Return the values of a payload's fields, None for missing ones; raises Misfit if the payload does not fit. A
        payload that is no map is the value of the only field, if its name is ``value``.
        """
        if not packed:
            raise Misfit("the payload is empty")
        if len(self._fields) == 1 and self._fields[0][0] == "value" and not self._format.isMap(packed):
            return [self._fields[0][1](packed, "value")]
        try:
            found = self._split(packed)
        except FAULTS as error:
            raise Misfit(f"the payload is no {self._format.name} map: {faultOf(error)}"[:MAX_CLAUSE]) from None
        return self._each(found, "")

    def nested(self, packed: bytes, where: str) -> dict[str, Any]:
        """Return the fields of a map inside a payload."""
        values = self._each(self._split(packed), f"{where}.")
        return dict(zip((name for name, _ in self._fields), values, strict=True))

    def _each(self, found: dict[str, msgspec.Raw], prefix: str) -> list[Any]:
        return [read(bytes(found[name]), f"{prefix}{name}") if name in found else None for name, read in self._fields]


def _value(payloadFormat: Format, dataType: pa.DataType) -> _Read:
    """Return a function that decodes a value of a type, or null; it raises Misfit."""
    decode, written = _typed(payloadFormat, dataType), typeWritten(dataType)

    def read(packed: bytes, where: str) -> Any:
        try:
            return None if payloadFormat.isNull(packed) else decode(packed, where)
        except FAULTS as error:
            raise Misfit(f"'{where}' is no {written}: {faultOf(error)}"[:MAX_CLAUSE]) from None

    return read


def _typed(payloadFormat: Format, dataType: pa.DataType) -> _Read:
    if pa.types.is_string(dataType):
        return lambda packed, where: payloadFormat.text(packed)
    if pa.types.is_binary(dataType):
        return lambda packed, where: payloadFormat.binary(packed)
    if pa.types.is_struct(dataType):
        return StrictFields(payloadFormat, list(dataType)).nested
    if pa.types.is_list(dataType):
        split, element = payloadFormat.decoder(list[msgspec.Raw]), _value(payloadFormat, dataType.value_type)
        return lambda packed, where: [
            element(bytes(each), f"{where}[{place}]") for place, each in enumerate(split(packed))
        ]
    if pa.types.is_map(dataType):
        splitMap, item = payloadFormat.decoder(dict[str, msgspec.Raw]), _value(payloadFormat, dataType.item_type)
        return lambda packed, where: {
            name: item(bytes(each), f"{where}[...]") for name, each in splitMap(packed).items()
        }
    if pa.types.is_float32(dataType):
        return partial(_float, payloadFormat.decoder(float))
    decode, convert = payloadFormat.decoder(annotation(dataType)), exact(dataType)
    return (lambda packed, where: decode(packed)) if convert is None else lambda packed, where: convert(decode(packed))


def _float(decode: Callable[[bytes], float], packed: bytes, where: str) -> float:
    value = decode(packed)
    if LARGEST_FLOAT < abs(value) < float("inf"):
        raise ValueError("it is too large")
    return value


def _unchanged(column: pa.Array, name: str) -> pa.Array:
    return column


class RowColumns:
    """Builds the columns of a schema from rows; ``_getters`` return the value of each column in a row, ``_nothing`` is
    a row without any.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._names, self._types = schema.names, schema.types
        self._exact = [exact(dataType) for dataType in self._types]
        self._checked = [withYears if hasTimes(dataType) else _unchanged for dataType in self._types]
        self._getters: list[Callable[[Any], Any]] = [methodcaller("get", name) for name in self._names]
        self._nothing: Any = {}

    def built(self, rows: list[Any], errors: dict[int, str]) -> list[pa.Array]:
        """Return a column for each field; rows with an error, known or found here, are null."""
        while True:
            known = len(errors)
            columns = [self._column(place, rows, errors) for place in range(len(self._types))]
            if len(errors) == known:
                return columns
            for place in errors:
                rows[place] = self._nothing

    def _column(self, column: int, rows: list[Any], errors: dict[int, str]) -> pa.Array:
        values = list(map(self._getters[column], rows))
        name, convert, dataType = self._names[column], self._exact[column], self._types[column]
        if convert is not None:
            for place, value in enumerate(values):
                try:
                    values[place] = None if value is None else convert(value)
                except (*FAULTS, AttributeError) as error:
                    values[place], errors[place] = None, f"'{name}' {faultOf(error)}"[:MAX_CLAUSE]
        try:
            return self._checked[column](pa.array(values, dataType), name)
        except (*FAULTS, pa.ArrowException):
            for place, value in enumerate(values):
                try:
                    self._checked[column](pa.array([value], dataType), name)
                except (*FAULTS, pa.ArrowException) as error:
                    fault = faultOf(error)
                    named = (
                        fault if fault.startswith(f"'{name}'") else f"'{name}' is no {typeWritten(dataType)}: {fault}"
                    )
                    values[place], errors[place] = None, named[:MAX_CLAUSE]
            return pa.array(values, dataType)


class Maps(RowColumns):
    """Decodes maps of one format by one schema."""

    def __init__(self, payloadFormat: Format, schema: pa.Schema) -> None:
        super().__init__(schema)
        names, types = self._names, self._types
        self._strict = StrictFields(payloadFormat, list(schema))
        self._empty = payloadFormat.empty
        if any(map(_REFUSED.search, names)):
            # A dictionary for each row takes half as long again as a Struct.
            dataType = annotation(pa.struct(list(schema)))
            self._make: Callable[..., Any] = lambda *values: dict(zip(names, values, strict=True))
        else:
            rename = {f"f{place}": name for place, name in enumerate(names)}
            fields = [(each, annotation(dataType) | None, None) for each, dataType in zip(rename, types, strict=True)]
            # Millions of these are short-lived, and have no reference cycles.
            self._make = dataType = msgspec.defstruct("Row", fields, rename=rename, gc=False)
            self._getters = [attrgetter(each) for each in rename]
        self._decode = payloadFormat.decoder(dataType)
        self._nothing = self._make(*[None] * len(schema))

    def columns(self, payloads: Sequence[bytes | None], errors: dict[int, str]) -> list[pa.Array]:
        """Return a column for each field; rows that do not fit, and those of None, are null, the former with errors."""
        return self.built(
            self._rows([self._empty if payload is None else payload for payload in payloads], errors), errors
        )

    def _rows(self, payloads: Sequence[bytes], errors: dict[int, str]) -> list[Any]:
        rows: list[Any] = []
        walk = map(self._decode, payloads)
        while True:
            try:
                # After a failed row, the loop continues with the next one; the results so far remain.
                rows.extend(walk)
                return rows
            except FAULTS:
                place = len(rows)
                try:
                    rows.append(self._make(*self._strict.read(payloads[place])))
                except Misfit as misfit:
                    errors[place] = str(misfit)
                    rows.append(self._nothing)
