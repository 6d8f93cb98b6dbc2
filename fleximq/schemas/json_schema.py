"""Checks JSON by a JSON Schema (drafts 4 to 2020-12) with jsonschema-rs.

Time is bounded: its regular expressions are those of an engine without backtracking, so a pattern with look-around or
back references is refused with the schema; documents may be nested 64 deep; ``$ref`` reaches into the same file only.
"""

import re
from typing import Any

import msgspec

from fleximq.errors import SettingError
from fleximq.schemas.misfit import Misfit, missingExtra

try:
    import jsonschema_rs
except ImportError as error:
    raise missingExtra(error) from error

#: How deep documents, and schemas, may be nested.
MAX_DEPTH = 64
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
    """Reads payloads of JSON that fit a schema, which is ``schema``. Raises SettingError for a schema that cannot be
    used.
    """

    def __init__(self, text: str) -> None:
        try:
            self.schema: Any = msgspec.json.decode(text)
            if isDeeper(self.schema, MAX_DEPTH):
                raise SettingError(f"its JSON Schema is nested deeper than {MAX_DEPTH}")
            self._check = jsonschema_rs.validator_for(
                self.schema,
                mask=_VALUE,
                offline=True,
                validate_formats=True,
                pattern_options=jsonschema_rs.RegexOptions(),
            ).validate
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, *_FAULTS) as error:
            words = " ".join(str(error).split("\n\n")[0].split()).replace(_VALUE, "a value")
            raise SettingError(f"it is no JSON Schema: {words}"[:300]) from None

    def read(self, payload: bytes) -> Any:
        """Return the value of a document."""
        try:
            value = msgspec.json.decode(payload)
        except _FAULTS as error:
            raise Misfit("", f"is no JSON: {_fault(error)}") from None
        if len(_OPENING.findall(payload)) > MAX_DEPTH and isDeeper(value, MAX_DEPTH):
            raise Misfit("", f"is nested deeper than {MAX_DEPTH}")
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raise Misfit for a value that does not fit; it must not be nested deeper than :data:`MAX_DEPTH`."""
        try:
            self._check(value)
        except jsonschema_rs.ValidationError as error:
            raise _misfit(error) from None
        except _FAULTS as error:
            raise Misfit("", f"is no JSON: {_fault(error)}") from None


def isDeeper(value: Any, depth: int) -> bool:
    """Tell whether maps and arrays in a value are nested deeper."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def _fault(error: BaseException) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error) or type(error).__name__


def _misfit(error: Any) -> Misfit:
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
