"""The columns of a JSON Schema (docs/guides/schemas.rst, "Types"). Values of several types are texts: their JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from fleximq.pipeline.payloads.ddl import NESTING
from fleximq.pipeline.payloads.record_columns import MOMENT, VALUE
from fleximq.schemas.json_schema_references import References, refers

MAX_FIELDS = 10_000
_TEXT = pa.string()
_PLAIN = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64(), "string": _TEXT}
_FORMATS = {"date-time": MOMENT, "date": pa.date32()}


def jsonFields(schema: Any, others: Mapping[str, Any] | None = None) -> pa.Schema:
    """Return the columns of documents that fit a schema: the properties of objects, else ``value``. ``others`` are the
    schemas that it refers to, by their URIs.
    """
    found = _Walk(References(schema, others)).typeOf(schema, 0, frozenset())
    return pa.schema(list(found) if pa.types.is_struct(found) else [pa.field(VALUE, found)])


class _Walk:
    """The walk through one schema; a reference whose target is unknown gives a text."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._left = MAX_FIELDS

    def typeOf(self, schema: Any, depth: int, inside: frozenset[int]) -> pa.DataType:
        self._left -= 1
        if not isinstance(schema, Mapping) or depth > NESTING or id(schema) in inside or self._left < 0:
            return _TEXT
        inside |= {id(schema)}
        # Properties beside a reference are added to those of its target.
        if refers(schema) and (self._references.isOld or "properties" not in schema):
            return self.typeOf(self._references.targetOf(schema), depth, inside)
        kinds = [each for each in _kinds(schema) if each != "null"]
        for name in ("anyOf", "oneOf"):
            others = [each for each in schema.get(name, ()) if each != {"type": "null"}]
            if len(others) == 1 and not kinds:
                return self.typeOf(others[0], depth, inside)
            if others:
                return _TEXT
        kind = kinds[0] if len(kinds) == 1 else "number" if set(kinds) == {"integer", "number"} else ""
        if kind == "object" or (not kinds and not {"properties", "allOf"}.isdisjoint(schema)):
            return self._object(schema, depth, inside)
        if kind == "array":
            return pa.list_(self.typeOf(schema.get("items"), depth + 1, inside))
        if kind == "string":
            if schema.get("contentEncoding") == "base64":
                return pa.binary()
            return _FORMATS.get(str(schema.get("format")), _TEXT)
        return _PLAIN.get(kind, _TEXT)

    def _object(self, schema: Mapping[str, Any], depth: int, inside: frozenset[int]) -> pa.DataType:
        fields: dict[str, pa.DataType] = {}
        for part in self._parts(schema, 0):
            for name, each in part.get("properties", {}).items():
                fields.setdefault(name, self.typeOf(each, depth + 1, inside))
        if fields:
            return pa.struct([pa.field(name, dataType) for name, dataType in fields.items()])
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping):
            return pa.map_(_TEXT, self.typeOf(others, depth + 1, inside))
        return _TEXT

    def _parts(self, schema: Any, depth: int) -> Iterator[Mapping[str, Any]]:
        """Yield a schema and those that it includes by ``allOf``."""
        if not isinstance(schema, Mapping) or depth > NESTING or self._left < 0:
            return
        self._left -= 1
        yield schema
        if refers(schema):
            yield from self._parts(self._references.targetOf(schema), depth + 1)
        for each in schema.get("allOf", ()):
            yield from self._parts(each, depth + 1)


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    if "type" in schema:
        found = schema["type"]
        return [found] if isinstance(found, str) else list(found)
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return list(dict.fromkeys(names.get(type(each), "") for each in values))
