"""Decodes payloads of one format, any bytes, into Arrow columns of one schema. A row that does not fit has an error."""

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.payloads.ddl import written
from fleximq.pipeline.payloads.dialect_payloads import (
    METADATA,
    VERBATIM,
    Identity,
    Payloads,
    divided,
    packedAt,
    splitBodies,
)
from fleximq.pipeline.payloads.map_columns import MAX_CLAUSE, Maps
from fleximq.pipeline.payloads.payload_formats import FAULTS, Json, MessagePack
from fleximq.pipeline.payloads.record_columns import Records
from fleximq.schemas.misfit import Misfit
from fleximq.wire.messagepack_json import toJson

#: Formats with columns that are given, or inferred from payloads.
STRUCTURED = ("messagepack", "json")
#: Formats with the schema of a file, and of a registry.
DEFINED = ("avro", "protobuf", "json-schema", "registry")
#: Formats without a schema of their own, and all.
ENCODINGS = (*STRUCTURED, "text", "raw")
FORMATS = (*ENCODINGS, *DEFINED)
#: Formats with the columns of the schema; the others have a single column.
WITH_FIELDS = (*STRUCTURED, *DEFINED)
_MAPS = ("json", "json-schema")
#: The argument that each format with a schema of its own needs.
_NEEDS = {
    "avro": "the file of the schema: avro:FILE",
    "protobuf": "the file of the schema and the message: protobuf:FILE,MESSAGE",
    "json-schema": "the file of the schema: json-schema:FILE",
    "registry": "the URL of the schema registry: registry:https://HOST",
}
_ONE = {"text": pa.string(), "raw": pa.binary()}


class Decoded(NamedTuple):
    """The decoded payloads. ``errors`` has a clause for each row that does not fit, None if all fit. A row that
    does not fit, or has no payload, is null in ``columns``, and in each column of it.
    """

    columns: pa.StructArray
    errors: pa.StringArray | None


class Decoder:
    """Decodes payloads of one of :data:`ENCODINGS`; messages of the dialect Identity are split before. ``text`` and
    ``raw`` need no schema: they have one column, called ``value`` unless it says otherwise. Formats with a
    ``definition`` (:mod:`fleximq.pipeline.payloads.schema_formats`) have its columns if no schema is given. Raises
    OptionRefused if the schema does not suit the format.
    """

    def __init__(
        self,
        payloadFormat: str,
        schema: pa.Schema | None = None,
        identity: Identity = VERBATIM,
        definition: str = "",
    ) -> None:
        self.format = payloadFormat
        self._identity = identity
        self._definition = definition
        body = _bodySchema(payloadFormat, schema, definition)
        #: The decoded columns in order, with metadata as the last; a field of payloads may have the same name.
        self.schema: pa.Schema = body.append(METADATA) if identity.metadata else body
        self._packed = Maps(MessagePack(), body) if payloadFormat in _MAPS else None
        self._check: Any = None
        self._maps: Maps | Records | None = None
        if payloadFormat in DEFINED and payloadFormat not in _MAPS:
            from fleximq.pipeline.payloads.schema_formats import recordsOf

            self._maps = Records(recordsOf(definition, payloadFormat), body)
        elif payloadFormat in WITH_FIELDS:
            self._maps = Maps(MessagePack() if payloadFormat == "messagepack" else Json(), body)
        if payloadFormat == "json-schema":
            from fleximq.pipeline.payloads.schema_formats import jsonCodec

            self._check = jsonCodec(definition)

    def __reduce__(self) -> Any:
        schema = self.schema.remove(len(self.schema) - 1) if self._identity.metadata else self.schema
        return Decoder, (self.format, schema, self._identity, self._definition)

    def decode(
        self, values: pa.BinaryArray, dialects: pa.StringArray | None = None, contents: pa.Int32Array | None = None
    ) -> Decoded:
        """Decode payloads; with the column ``dialect``, only messages of the dialect Identity are split.
        :param contents: the column ``content``, which marks payloads as MessagePack; without it, those of FlexiMQ's
            dialect count as MessagePack. The formats ``json`` and ``text`` decode them to the same values or texts.
            Without both columns, all payloads are bytes of the format.
        """
        errors: dict[int, str] = {}
        body, metadata = splitBodies(values, dialects, self._identity, errors)
        packed = packedAt(self.format, dialects, contents)
        if packed is None:
            columns = self._columns(body, errors)
        else:
            own, maps = divided(self.format, body, packed)
            self._refuse(maps, errors)
            columns = self._columns(pa.array(own, pa.binary()), errors)
            if self._packed is not None:
                others = self._packed.columns(maps, errors)
                those = pa.array([payload is not None for payload in maps])
                columns = [pc.if_else(those, other, column) for other, column in zip(others, columns, strict=True)]
        if metadata is not None:
            if errors:
                kept = [None if place in errors else place for place in range(len(metadata))]
                metadata = metadata.take(pa.array(kept, pa.int64()))
            columns = [*columns, metadata]
        told = None
        absent = values.is_null() if values.null_count else None
        if errors:
            told = pa.array([errors.get(place) for place in range(len(values))], pa.string())
            absent = pc.or_(told.is_valid(), values.is_null())
        return Decoded(pa.StructArray.from_arrays(columns, fields=list(self.schema), mask=absent), told)

    def _refuse(self, maps: Payloads, errors: dict[int, str]) -> None:
        """Refuse MessagePack values in place of bytes, and those that do not fit a JSON Schema."""
        if self.format not in DEFINED:
            return
        for place, payload in enumerate(maps):
            if payload is None:
                continue
            try:
                if self._check is None:
                    raise Misfit("", "is no bytes but another value of MessagePack")
                self._check.read(toJson(payload))
            except (Misfit, *FAULTS) as error:
                errors[place], maps[place] = str(error)[:MAX_CLAUSE], None

    def _columns(self, values: pa.Array, errors: dict[int, str]) -> list[pa.Array]:
        if self._maps is not None:
            payloads = values.to_pylist()
            if self._check is not None:
                for place, payload in enumerate(payloads):
                    try:
                        if payload is not None:
                            self._check.read(payload)
                    except Misfit as misfit:
                        errors[place], payloads[place] = str(misfit)[:MAX_CLAUSE], None
            return self._maps.columns(payloads, errors)
        return _texts(values, errors) if self.format == "text" else [values]


def _bodySchema(payloadFormat: str, schema: pa.Schema | None, definition: str) -> pa.Schema:
    if payloadFormat not in FORMATS:
        raise OptionRefused(f"there is no format {payloadFormat!r} of payloads, only {', '.join(FORMATS)}")
    if payloadFormat in DEFINED and not definition:
        raise OptionRefused(f"payloads in {payloadFormat} need {_NEEDS[payloadFormat]}")
    if payloadFormat in DEFINED and payloadFormat != "registry" and schema is None:
        from fleximq.pipeline.payloads.schema_formats import fieldsOf

        return fieldsOf(definition)
    if payloadFormat in WITH_FIELDS:
        if schema is None or not len(schema):
            raise OptionRefused(f"payloads in {payloadFormat} need a schema, which says their columns")
        written(schema)
        return schema
    if schema is None:
        return pa.schema([("value", _ONE[payloadFormat])])
    if schema.types != [_ONE[payloadFormat]]:
        dataType = "STRING" if payloadFormat == "text" else "BINARY"
        raise OptionRefused(f"payloads in {payloadFormat} are one column of type {dataType}, not {written(schema)}")
    return schema


def _texts(values: pa.Array, errors: dict[int, str]) -> list[pa.Array]:
    """Return payloads as one column of texts; one that is not UTF-8 is null and has an error."""
    try:
        return [values.cast(pa.string())]
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for place, value in enumerate(values.to_pylist()):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError:
                errors[place] = "the payload is not UTF-8"
                texts.append(None)
        return [pa.array(texts, pa.string())]
