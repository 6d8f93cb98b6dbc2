"""The formats of payloads that have a schema of their own: ``avro:FILE``, ``protobuf:FILE,MESSAGE``,
``json-schema:FILE`` and ``registry``.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import pyarrow as pa

from fleximq.errors import SettingError
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.payloads.ddl import parsed, written
from fleximq.pipeline.payloads.record_columns import IRecords
from fleximq.pipeline.payloads.schema_registry import (
    Registered,
    SchemaRegistry,
    descriptorSet,
    messageIndexes,
    registryUrl,
    split,
)
from fleximq.schemas.definition import AVRO, FORMS, JSON_SCHEMA, Definition, definitionOf, packed, unpacked
from fleximq.schemas.misfit import Misfit

REGISTRY = "registry"
SCHEMA_FORMATS = (*FORMS, REGISTRY)


def formatIn(text: str) -> tuple[str, str]:
    """Return the name of a format, and the definition of its schema, which is read: ``avro:FILE`` and so on; other
    formats have none. Raises OptionRefused.
    """
    name, colon, rest = text.strip().partition(":")
    name = name.strip().lower()
    if name == REGISTRY:
        return name, registryUrl(rest)
    if name not in FORMS:
        return text.strip().lower(), ""
    try:
        return name, packed(definitionOf(name, rest))
    except SettingError as error:
        raise OptionRefused(str(error)) from error


def recordsOf(definition: str, payloadFormat: str) -> IRecords:
    """Return the reader of payloads of ``avro``, ``protobuf`` or ``registry``; raises OptionRefused."""
    if payloadFormat == REGISTRY:
        return registryRecords(definition)
    found: IRecords = _refusing(lambda: _records(unpacked(definition)))
    return found


@lru_cache(64)
def fieldsOf(definition: str) -> pa.Schema:
    """Return the columns of a schema in a file; raises OptionRefused."""
    found = unpacked(definition)
    if found.form != JSON_SCHEMA:
        fields = recordsOf(definition, found.form).fields
    else:
        from fleximq.pipeline.payloads.json_schema_columns import jsonFields

        fields = jsonFields(jsonCodec(definition).schema)
    # Columns that payloads cannot have, as names that differ only in capitals, are refused.
    return parsed(written(fields))


def jsonCodec(definition: str) -> Any:
    """Return the check of documents by a JSON Schema; raises OptionRefused."""
    return _refusing(unpacked(definition).codec)


def _refusing(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except SettingError as error:
        raise OptionRefused(str(error)) from error


def _records(definition: Definition) -> IRecords:
    codec: Any = definition.codec()
    if definition.form == AVRO:
        from fleximq.pipeline.payloads.avro_columns import AvroRecords

        return AvroRecords(codec)
    from fleximq.pipeline.payloads.protobuf_columns import ProtobufRecords

    return ProtobufRecords(codec)


class _JsonRecords:
    """Reads documents of one JSON Schema of a registry into its columns; each schema may have others."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from fleximq.pipeline.payloads.json_schema_columns import jsonFields
        from fleximq.pipeline.payloads.map_columns import StrictFields
        from fleximq.pipeline.payloads.payload_formats import Json
        from fleximq.schemas.json_schema import JsonSchemaCodec

        self._codec = JsonSchemaCodec(text, references)
        self.fields: pa.Schema = parsed(written(jsonFields(self._codec.schema, self._codec.others)))
        self._strict = StrictFields(Json(), list(self.fields))

    def read(self, payload: bytes) -> Mapping[str, Any]:
        """See :class:`fleximq.pipeline.payloads.record_columns.IRecords`."""
        from fleximq.pipeline.payloads import map_columns

        self._codec.read(payload)
        try:
            return dict(zip(self.fields.names, self._strict.read(payload), strict=True))
        except map_columns.Misfit as misfit:
            raise Misfit("", str(misfit)) from None


class _Messages:
    """Reads payloads of Protocol Buffers that name their message; the columns are those of the file's first message."""

    def __init__(self, registered: Registered) -> None:
        self._descriptors = descriptorSet(registered)
        self._known: dict[tuple[int, ...], Any] = {}
        self.fields: pa.Schema = self._of((0,)).fields

    def read(self, payload: bytes) -> Mapping[str, Any]:
        """See :class:`fleximq.pipeline.payloads.record_columns.IRecords`."""
        indexes, content = messageIndexes(payload)
        found: Mapping[str, Any] = self._of(indexes).read(content)
        return found

    def _of(self, indexes: tuple[int, ...]) -> Any:
        from fleximq.pipeline.payloads.protobuf_columns import ProtobufRecords
        from fleximq.schemas.protobuf import ProtobufCodec

        if indexes not in self._known:
            try:
                self._known[indexes] = ProtobufRecords(ProtobufCodec(self._descriptors, "", indexes))
            except SettingError:
                raise Misfit("", f"names the message {list(indexes)}, which its schema does not have") from None
        return self._known[indexes]

    def fieldsFor(self, payload: bytes) -> pa.Schema:
        """Return the columns of a payload's message; raises Misfit."""
        fields: pa.Schema = self._of(messageIndexes(payload)[0]).fields
        return fields


def _registered(found: Registered) -> Any:
    try:
        if found.form == "AVRO":
            from fleximq.pipeline.payloads.avro_columns import AvroRecords
            from fleximq.schemas.avro import AvroCodec

            made: Any = AvroRecords(AvroCodec([found.text], list(dict.fromkeys(found.references.values()))))
        elif found.form == "PROTOBUF":
            made = _Messages(found)
        elif found.form == "JSON":
            made = _JsonRecords(found.text, found.references)
        else:
            raise SettingError(f"it is of the type {found.form}")
        # Columns that no table can have make the schema unusable.
        parsed(written(made.fields))
        return made
    except OptionRefused as error:
        raise SettingError(str(error)) from None


class RegistryRecords:
    """Reads payloads by the schemas that they name."""

    #: No schema is known before a payload.
    fields = pa.schema([])

    def __init__(self, url: str) -> None:
        self._registry = SchemaRegistry(url, _registered)

    def read(self, payload: bytes) -> Mapping[str, Any]:
        """See :class:`fleximq.pipeline.payloads.record_columns.IRecords`; raises RegistryGone."""
        number, content = split(payload)
        found: Mapping[str, Any] = self._registry.get(number).read(content)
        return found

    def fieldsFor(self, payload: bytes) -> pa.Schema:
        """Return the columns of the schema that a payload names; raises Misfit and RegistryGone."""
        number, content = split(payload)
        found = self._registry.get(number)
        fields: pa.Schema = found.fieldsFor(content) if isinstance(found, _Messages) else found.fields
        return fields


#: One for each registry of a process: its schemas serve all tables.
registryRecords = lru_cache(16)(RegistryRecords)


def registeredFields(url: str, payloads: Iterable[bytes | None]) -> list[pa.Schema]:
    """Return the columns of each schema that payloads name, with room for whole numbers up to BIGINT and others up to
    DOUBLE, because later schemas may have wider types; raises RegistryGone.
    """
    records = registryRecords(url)
    found: dict[int, pa.Schema] = {}
    for payload in payloads:
        if payload is not None:
            with suppress(Misfit):
                fields = records.fieldsFor(payload)
                found.setdefault(id(fields), fields)
    return [pa.schema([field.with_type(_wide(field.type)) for field in fields]) for fields in found.values()]


def _wide(dataType: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(dataType):
        return pa.struct([field.with_type(_wide(field.type)) for field in dataType])
    if pa.types.is_list(dataType):
        return pa.list_(_wide(dataType.value_type))
    if pa.types.is_map(dataType):
        return pa.map_(pa.string(), _wide(dataType.item_type))
    return pa.int64() if pa.types.is_integer(dataType) else pa.float64() if pa.types.is_floating(dataType) else dataType
