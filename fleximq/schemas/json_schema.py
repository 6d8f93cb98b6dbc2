"""Checks JSON by a JSON Schema (drafts 4 to 2020-12) with jsonschema-rs.

Time is bounded: its regular expressions are those of an engine without backtracking, so a pattern with look-around or
back references is refused with the schema; documents may be nested 64 deep; ``$ref`` reaches into the same file only.
Of large documents, the fault is not named where that could take long (:mod:`fleximq.schemas.json_schema_cost`).
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from fleximq.errors import SettingError
from fleximq.schemas.json_schema_cost import SchemaCost
from fleximq.schemas.json_schema_references import placed
from fleximq.schemas.misfit import Misfit, missingExtra

try:
    import jsonschema_rs
except ImportError as error:
    raise missingExtra(error) from error

#: How deep documents, and schemas, may be nested.
MAX_DEPTH = 64
#: Maximum bytes of a document times the work of its schema at one value: about 0.25 seconds.
MAX_WORK = 12_000_000
#: A schema must allow documents of so many bytes.
MIN_BYTES = 1000
#: Maximum bytes of a document times the checks that building its errors can take: about 0.3 seconds and 50 MiB.
MAX_ERRORS = 200_000
#: Numbers that the library converts slowly, and the work for each: about 13 us.
_HUGE, _HUGE_WORK = re.compile(rb"\d[eE]\+?0*[23]\d\d[\s,\]}]"), 600
_FAULTS = (ValueError, TypeError, RecursionError, MemoryError, OverflowError)
_TYPES = {
    "array": "an array",
    "boolean": "true or false",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_OPENING = re.compile(rb"[\[{]")
#: The text that replaces the value in the library's sentences.
_VALUE = "\0"


class JsonSchemaCodec:
    """Reads payloads of JSON that fit a schema, which is ``schema``. ``references`` are the texts of ``others`` that it
    refers to, by their URIs. Raises SettingError for a schema that cannot be used.
    """

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        try:
            self.schema: Any = msgspec.json.decode(text)
            self.others = {name: msgspec.json.decode(each) for name, each in (references or {}).items()}
            if any(depthOf(each, MAX_DEPTH) > MAX_DEPTH for each in (self.schema, *self.others.values())):
                raise SettingError(f"its JSON Schema is nested deeper than {MAX_DEPTH}")
            named = dict(placed(self.schema, self.others))
            self._validator = jsonschema_rs.validator_for(
                self.schema,
                mask=_VALUE,
                offline=True,
                registry=jsonschema_rs.Registry(named.items()) if named else None,
                validate_formats=True,
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, *_FAULTS) as error:
            words = " ".join(str(error).split("\n\n")[0].split()).replace(_VALUE, "a value")
            raise SettingError(f"it is no JSON Schema: {words}"[:300]) from None
        self._cost = SchemaCost(self.schema, self.others.values())
        self._most = MAX_WORK // self._cost.work
        if self._most < MIN_BYTES:
            raise SettingError(f"its JSON Schema takes too many checks for a document of {MIN_BYTES:,} bytes")

    def read(self, payload: bytes) -> Any:
        """Return the value of a document."""
        if len(payload) > self._most:
            raise Misfit("", f"has more than {self._most:,} bytes, the most with the checks of its schema")
        # Only a large document has many of them.
        if len(payload) > 10_000 and len(_HUGE.findall(payload)) * _HUGE_WORK > MAX_WORK:
            raise Misfit("", f"has more than {MAX_WORK // _HUGE_WORK:,} numbers of 10^200 and more")
        try:
            value = msgspec.json.decode(payload)
        except _FAULTS as error:
            raise Misfit("", f"is no JSON: {_fault(error)}") from None
        # Most documents have fewer maps and arrays than may be nested.
        if self._cost.isRepeated or len(_OPENING.findall(payload)) > MAX_DEPTH:
            depth = depthOf(value, MAX_DEPTH)
            if depth > MAX_DEPTH:
                raise Misfit("", f"is nested deeper than {MAX_DEPTH}")
            if self._cost.isRepeated and len(payload) * self._cost.checks(depth) > MAX_WORK:
                raise Misfit(
                    "", f"is nested too deeply for its {len(payload):,} bytes and the alternatives of its schema"
                )
        try:
            if not self._validator.is_valid(value):
                raise self._misfit(value, len(payload))
        except _FAULTS as error:
            raise Misfit("", f"is no JSON: {_fault(error)}") from None
        return value

    def _misfit(self, value: Any, size: int) -> Misfit:
        """Return the fault of a document of so many bytes."""
        checks = self._cost.checks(depthOf(value, MAX_DEPTH))
        if checks == 1 or size * checks <= MAX_ERRORS:
            try:
                self._validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                return _named(error)
        return Misfit("", "does not fit its JSON Schema, and is too large to say where")


def depthOf(value: Any, most: int) -> int:
    """Return how deep maps and arrays in a value are nested, 0 for one without; ``most`` + 1 for more than that."""
    level = [value]
    for depth in range(most + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return depth
    return most + 1


def _fault(error: BaseException) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error) or type(error).__name__


def _named(error: Any) -> Misfit:
    """Return the fault in our words, which name the field and not its value."""
    path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.instance_path).lstrip(".")
    kind, kinds = error.kind, jsonschema_rs.ValidationErrorKind
    if isinstance(kind, kinds.Type):
        return Misfit(path, f"must be {' or '.join(_TYPES.get(each, each) for each in kind.types)}")
    if isinstance(kind, kinds.Required):
        return Misfit(f"{path}.{kind.property}" if path else str(kind.property), "is missing")
    if isinstance(kind, kinds.AdditionalProperties | kinds.UnevaluatedProperties):
        name = str(next(iter(kind.unexpected), ""))
        return Misfit(f"{path}.{name}" if path else name, "is not a field of the schema")
    words = error.message.replace(_VALUE, "").strip()
    return Misfit(path, words if words[:1].islower() else f"does not fit: {words}")
