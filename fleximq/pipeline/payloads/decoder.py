"""Decodes payloads of one format into columns of one schema; accepts any bytes.

Pure: Arrow in, Arrow out. A row that does not fit gets an error and nulls instead of an exception.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.payloads.ddl import written
from fleximq.pipeline.payloads.dialect_payloads import (
    METADATA,
    VERBATIM,
    Divided,
    Identity,
    divided,
    packedAt,
    splitBodies,
)
from fleximq.pipeline.payloads.map_columns import Maps
from fleximq.pipeline.payloads.payload_formats import Json, MessagePack, Raw, Text

FORMATS = ("messagepack", "json", "text", "raw")
#: Formats with the columns of the schema; the others have a single column.
STRUCTURED = ("messagepack", "json")
_ONE = {"text": pa.string(), "raw": pa.binary()}


class Decoded(NamedTuple):
    """The decoded payloads. ``errors`` has a clause for each row that does not fit, None if all fit. Such a row, and
    one without a payload, is null in ``columns``, and in each column of it.
    """

    columns: pa.StructArray
    errors: pa.StringArray | None


class Decoder:
    """Decodes payloads of one of :data:`FORMATS`; messages of the dialect Identity are split before.

    :param schema: the columns, as :func:`fleximq.pipeline.payloads.ddl.parsed` makes them. ``text`` and ``raw`` need
        none: they have one column, called ``value`` unless the schema says otherwise.
    :raises OptionRefused: the format and the schema contradict each other.
    """

    def __init__(self, format: str, schema: pa.Schema | None = None, identity: Identity = VERBATIM) -> None:
        self.format = format
        self._identity = identity
        body = _bodySchema(format, schema)
        if identity.metadata and METADATA.name in map(str.lower, body.names):
            raise OptionRefused("the column 'metadata' has the metadata of messages, so the schema cannot have one")
        #: The decoded columns in order; metadata are the last.
        self.schema: pa.Schema = body.append(METADATA) if identity.metadata else body
        self._columns = _columnsOf(format, body)
        self._packed = Maps(MessagePack(), body) if format == "json" else None

    def __reduce__(self) -> Any:
        schema = self.schema.remove(len(self.schema) - 1) if self._identity.metadata else self.schema
        return Decoder, (self.format, schema, self._identity)

    def decode(
        self, values: pa.BinaryArray, dialects: pa.StringArray | None = None, contents: pa.Int32Array | None = None
    ) -> Decoded:
        """Decode payloads.

        :param dialects: the column ``dialect``: with it, only messages of the dialect Identity are split.
        :param contents: the column ``content``, which marks payloads as MessagePack; without it, those of FlexiMQ's
            dialect count as MessagePack. The formats ``json`` and ``text`` decode them to the same values or texts.
            Without both columns, all payloads are bytes of the format.
        """
        errors: dict[int, str] = {}
        body, metadata = splitBodies(values, dialects, self._identity, errors)
        packed = packedAt(self.format, dialects, contents)
        if packed is None:
            columns = self._columns.columns(body, errors)
        else:
            columns = self._mixed(divided(self.format, body, packed), errors)
        if metadata is not None:
            columns = [*columns, _without(metadata, errors) if errors else metadata]
        return self._together(columns, values, errors)

    def _mixed(self, payloads: Divided, errors: dict[int, str]) -> list[pa.Array]:
        """Return columns of payloads of which some are MessagePack."""
        columns = self._columns.columns(pa.array(payloads.own, pa.binary()), errors)
        if self._packed is None or payloads.packed is None:
            return columns
        those = pa.array([payload is not None for payload in payloads.packed])
        others = self._packed.columnsOf(payloads.packed, errors)
        return [pc.if_else(those, other, column) for other, column in zip(others, columns, strict=True)]

    def _together(self, columns: list[pa.Array], values: pa.Array, errors: dict[int, str]) -> Decoded:
        fields = list(self.schema)
        if not errors:
            mask = values.is_null() if values.null_count else None
            return Decoded(pa.StructArray.from_arrays(columns, fields=fields, mask=mask), None)
        wrong = np.zeros(len(values), bool)
        wrong[list(errors)] = True
        mask = pa.array(wrong)
        told = pa.array([errors.get(place) for place in range(len(values))], pa.string())
        absent = pc.or_(mask, values.is_null())
        return Decoded(pa.StructArray.from_arrays(columns, fields=fields, mask=absent), told)


def _without(column: pa.Array, errors: Iterable[int]) -> pa.Array:
    places: list[int | None] = list(range(len(column)))
    for place in errors:
        places[place] = None
    return column.take(pa.array(places, pa.int64()))


def _bodySchema(format: str, schema: pa.Schema | None) -> pa.Schema:
    if format not in FORMATS:
        raise OptionRefused(f"there is no format {format!r} of payloads, only {', '.join(FORMATS)}")
    if format in STRUCTURED:
        if schema is None or not len(schema):
            raise OptionRefused(f"payloads in {format} need a schema, which says their columns")
        written(schema)
        return schema
    if schema is None:
        return pa.schema([("value", _ONE[format])])
    if schema.types != [_ONE[format]]:
        type = "STRING" if format == "text" else "BINARY"
        raise OptionRefused(f"payloads in {format} are one column of type {type}, not {written(schema)}")
    return schema


def _columnsOf(format: str, schema: pa.Schema) -> Maps | Text | Raw:
    if format == "messagepack":
        return Maps(MessagePack(), schema)
    if format == "json":
        return Maps(Json(), schema)
    return Text() if format == "text" else Raw()
