"""The columns of an Avro schema (docs/guides/schemas.rst, "Types")."""

from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from fleximq.pipeline.payloads.ddl import DIGITS
from fleximq.pipeline.payloads.record_columns import MOMENT, VALUE, Typed, listOf, mapOf, structOf
from fleximq.schemas.avro import AvroCodec

_PLAIN = {
    "null": Typed(pa.string()),
    "boolean": Typed(pa.bool_()),
    "int": Typed(pa.int32()),
    "long": Typed(pa.int64()),
    "float": Typed(pa.float32()),
    "double": Typed(pa.float64()),
    "bytes": Typed(pa.binary()),
    "fixed": Typed(pa.binary()),
    "string": Typed(pa.string()),
    "enum": Typed(pa.string()),
}
_UUID = Typed(pa.string(), lambda value: str(UUID(bytes=value) if isinstance(value, bytes) else value))
_ISO = Typed(pa.string(), lambda value: value.isoformat())
_LOGICAL = {
    ("int", "date"): Typed(pa.date32()),
    ("int", "time-millis"): _ISO,
    ("long", "time-micros"): _ISO,
    ("long", "timestamp-millis"): Typed(MOMENT),
    ("long", "timestamp-micros"): Typed(MOMENT),
    ("long", "local-timestamp-millis"): _ISO,
    ("long", "local-timestamp-micros"): _ISO,
    ("string", "uuid"): _UUID,
    ("fixed", "uuid"): _UUID,
}
#: The Python classes of values in a union, by which types without a name are distinguished.
_CLASSES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int, date, time),
    "long": (int, datetime, time),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes, Decimal),
    "fixed": (bytes, Decimal, UUID),
    "string": (str, UUID),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
}
_SAME = (("long", {"int", "long"}), ("double", {"float", "double"}))


class AvroRecords:
    """Reads records of an Avro schema; values of other schemas are the column ``value``."""

    def __init__(self, codec: AvroCodec) -> None:
        self._codec = codec
        self._named: dict[str, Any] = dict(codec.named)
        schema = codec.schema
        self._isRecord = isinstance(schema, Mapping) and schema["type"] == "record"
        typed = self._typed(schema) if self._isRecord else structOf({VALUE: self._typed(schema)})
        self._convert = typed.convert
        self.fields: pa.Schema = pa.schema(list(typed.dataType) if pa.types.is_struct(typed.dataType) else [])

    def read(self, payload: bytes) -> Mapping[str, Any]:
        """See :class:`fleximq.pipeline.payloads.record_columns.IRecords`."""
        value = self._codec.read(payload)
        row: Any = value if self._isRecord else {VALUE: value}
        return row if self._convert is None else self._convert(row)  # type: ignore[no-any-return]

    def _typed(self, schema: Any) -> Typed:
        if isinstance(schema, str):
            return _PLAIN[schema] if schema in _PLAIN else self._typed(self._named[schema])
        if isinstance(schema, list):
            return self._union([each for each in schema if each != "null"])
        kind, logical = schema["type"], schema.get("logicalType")
        if not isinstance(kind, str) or kind in self._named:
            return self._typed(kind)
        if "name" in schema:
            self._named[schema["name"]] = schema
        if kind in ("record", "error"):
            return structOf({each["name"]: self._typed(each["type"]) for each in schema["fields"]})
        if kind == "array":
            return listOf(self._typed(schema["items"]))
        if kind == "map":
            return mapOf(self._typed(schema["values"]))
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = schema.get("precision", 0), schema.get("scale", 0)
            isPlain = 1 <= precision <= DIGITS and 0 <= scale <= precision
            return Typed(pa.decimal128(precision, scale)) if isPlain else Typed(pa.string(), str)
        return _LOGICAL.get((kind, logical), _PLAIN[kind])

    def _union(self, branches: list[Any]) -> Typed:
        """Return the only type, or a STRUCT with a field for each, of which one has a value."""
        if len(branches) < 2:
            return self._typed(branches[0]) if branches else _PLAIN["null"]
        for wide, kinds in _SAME:
            if all(each in kinds for each in branches if isinstance(each, str)) and all(
                isinstance(each, str) for each in branches
            ):
                return _PLAIN[wide]
        names: dict[str, str] = {}
        typed: dict[str, Typed] = {}
        classes: list[tuple[tuple[type, ...], str]] = []
        for each in branches:
            made = self._typed(each)
            full = each if isinstance(each, str) else each.get("name", each["type"])
            kind = each if isinstance(each, str) and each in _PLAIN else self._kind(each)
            short = full.rpartition(".")[2]
            name = full if short in typed else short
            names[full], typed[name] = name, made
            classes.append((_CLASSES[kind], name))
        struct = structOf(typed)

        def convert(value: Any) -> dict[str, Any]:
            if isinstance(value, tuple):
                name, value = names[value[0]], value[1]
            else:
                name = next(name for types, name in classes if type(value) in types)
            change = typed[name].convert
            return {name: value if change is None or value is None else change(value)}

        return Typed(struct.dataType, convert)

    def _kind(self, schema: Any) -> str:
        while not (isinstance(schema, str) and schema in _CLASSES):
            schema = self._named[schema] if isinstance(schema, str) else schema["type"]
        return schema
