"""Reads payloads of Apache Avro with fastavro, which trusts the schema. With some schemas, a few bytes would use up
the process's stack or memory: :class:`_Checked` refuses these schemas.

Payloads are records in the binary encoding, or in the single-object encoding, which begins with a mark and the
fingerprint of the writer's schema ("Single object encoding" in Avro's specification). Without the mark, the schema is
the first one.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from fleximq.errors import SettingError
from fleximq.schemas.avro_cost import stepsIn
from fleximq.schemas.misfit import Misfit, missingExtra

try:
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    from fleximq.schemas.avro_numbers import Check, checkLongs, intCheck, strict
except ImportError as error:
    raise missingExtra(error) from error

#: Maximum number of types in a schema, each counted as often as it is used, and how deep they are nested.
MAX_TYPES, MAX_DEPTH = 10_000, 32
#: Maximum bytes of a payload times the most steps for a byte of it, of about 0.1 us: about 0.25 seconds.
MAX_STEPS = 2_500_000
#: Maximum bytes of a decimal: fastavro's conversion takes time by their square.
MAX_DECIMAL = 1000
#: Maximum bytes of a payload; in larger ones the field with the fault is not looked for.
_NAMED = 256 << 10
_MARK = b"\xc3\x01"
_FINGERPRINT = "CRC-64-AVRO"
#: Exceptions of fastavro for bytes that do not fit; RecursionError and MemoryError are not expected, but harmless.
_FAULTS = (
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    OverflowError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    AttributeError,
)

Schema = Any


class _Reading(NamedTuple):
    """A writer's schema for reading, the check of values that are read by it, and its types by their names."""

    schema: Schema
    check: "Check | None"
    named: Mapping[str, Schema]


class AvroCodec:
    """Reads payloads by the first of some schemas; the others are those of older writers, resolved to the first by
    Avro's rules. ``schema`` is the first one, parsed; ``named`` has the types of ``references`` by their names, schemas
    that it may use. Raises SettingError for a schema that cannot be used.
    """

    def __init__(self, texts: Sequence[str], references: Sequence[str] = ()) -> None:
        self.named: dict[str, Schema] = {}
        for text in references:
            _parsed(text, self.named)
        known = [dict(self.named) for _ in texts]
        parsed = [_parsed(text, named) for text, named in zip(texts, known, strict=True)]
        self.schema: Schema = parsed[0]
        self._isRecord = isinstance(self.schema, Mapping) and self.schema["type"] == "record"
        self._writers = {}
        if len(texts) > 1 or not references:
            self._writers = {_fingerprint(text): schema for text, schema in zip(texts, parsed, strict=True)}
        self._most = {
            id(schema): int(MAX_STEPS / max(1.0, stepsIn(schema, named)))
            for schema, named in zip(parsed, known, strict=True)
        }
        self._prefixes = {id(schema): list(_prefixes(schema, self.named)) for schema in parsed}
        # fastavro would parse a schema that is no record again for each payload.
        self._reader = self.schema if self._isRecord else _wrapped(self.schema, self.named)
        self._reading = {
            id(schema): _Reading(
                strict(schema if self._isRecord else _wrapped(schema, self.named)), intCheck(schema, named), named
            )
            for schema, named in zip(parsed, known, strict=True)
        }

    def read(self, payload: bytes) -> Any:
        """Return the value; records are maps, or in a union of several records pairs of name and map."""
        writer, begin = self.schema, 0
        if payload[:2] == _MARK and len(payload) >= 10:
            # The fingerprint is little-endian.
            found = self._writers.get(payload[9:1:-1])
            if found is not None:
                writer, begin = found, 10
        if len(payload) > (most := self._most[id(writer)]):
            raise Misfit("", f"has more than {most:,} bytes, the most with the arrays and maps of its Avro schema")
        stream = BytesIO(payload)
        stream.seek(begin)
        reading = self._reading[id(writer)]
        try:
            value = self._value(stream, reading.schema, None)
            if reading.check is not None:
                reading.check(value if self._isRecord else value["value"], "")
            if writer is not self.schema:
                stream.seek(begin)
                value = self._value(stream, reading.schema, self._reader)
        except _FAULTS as error:
            raise self._misfit(payload, begin, writer, error) from None
        checkLongs(payload, begin, writer, reading.named)
        if stream.tell() < len(payload):
            raise Misfit("", f"has {len(payload) - stream.tell()} bytes after the last field of its Avro schema")
        return value if self._isRecord else value["value"]

    def _value(self, stream: BytesIO, writer: Schema, reader: Schema | None) -> Any:
        return fastavro.schemaless_reader(
            stream, writer, reader, return_named_type=True, return_named_type_override=True
        )

    def _misfit(self, payload: bytes, begin: int, writer: Schema, error: BaseException) -> Misfit:
        """Return the fault with the first field that cannot be read: the last one of the shortest record that fails."""
        # To find the field, a payload is read a few more times.
        prefixes = self._prefixes[id(writer)] if len(payload) <= _NAMED else []
        faults: dict[int, BaseException] = {}

        def fails(place: int) -> bool:
            stream = BytesIO(payload)
            stream.seek(begin)
            try:
                fastavro.schemaless_reader(stream, prefixes[place][1], None)
                return False
            except _FAULTS as fault:
                faults[place] = fault
                return True

        # A record that fails does so with further fields too.
        place = bisect_left(range(len(prefixes)), True, key=fails)
        return Misfit(prefixes[place][0], _words(faults[place])) if place in faults else Misfit("", _words(error))


def _words(error: BaseException) -> str:
    # fastavro takes a byte of an empty text where a number is cut off.
    if isinstance(error, EOFError) or str(error).startswith("string index"):
        return "is cut off"
    if isinstance(error, UnicodeError):
        return "is not UTF-8"
    if isinstance(error, LookupError):
        return "has no such branch or symbol"
    return f"does not fit its Avro type: {error}"


def _parsed(text: str, named: dict[str, Schema]) -> Schema:
    """Return a parsed schema, and add its types to those known by name."""
    try:
        known = dict(named)
        schema = fastavro.parse_schema(json.loads(text), named_schemas=known)
        _Checked(named).least(schema, (), 0)
        return schema
    except (SchemaParseException, UnknownType, *_FAULTS) as error:
        why = f"the type {error.name!r} is unknown" if isinstance(error, UnknownType) else str(error)
        raise SettingError(f"it is no Avro schema: {why}"[:300]) from None


def _wrapped(schema: Schema, named: Mapping[str, Schema]) -> Schema:
    """Return a record with a value."""
    made = {"type": "record", "name": "fleximq.Value", "fields": [{"name": "value", "type": schema}]}
    return fastavro.parse_schema(made, named_schemas=dict(named))


def _fingerprint(text: str) -> bytes:
    canonical = fastavro.schema.to_parsing_canonical_form(json.loads(text))
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, _FINGERPRINT))


def _prefixes(schema: Schema, named: Mapping[str, Schema]) -> Iterator[tuple[str, Schema]]:
    """Yield records with the first field of a schema, the first two, and so on, each with the path of the last; the
    fields of a record in it are added one by one.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        return
    for path, fields in _growing(schema, 0):
        try:
            made = {"type": "record", "name": "Prefix", "fields": fields}
            yield path, strict(fastavro.parse_schema(made, named_schemas=dict(named)))
        except (SchemaParseException, UnknownType):
            # A name that a shortened record does not define.
            continue


def _growing(schema: Mapping[str, Any], depth: int) -> Iterator[tuple[str, list[Any]]]:
    done: list[Any] = []
    for field in schema["fields"]:
        inner = field["type"]
        if depth < 4 and isinstance(inner, Mapping) and inner.get("type") == "record":
            for path, fields in _growing(inner, depth + 1):
                shortened = {"type": "record", "name": f"Prefix{depth}", "fields": fields}
                yield f"{field['name']}.{path}", [*done, {"name": field["name"], "type": shortened}]
        done.append({"name": field["name"], "type": inner})
        yield field["name"], list(done)


class _Checked:
    """Refuses schemas with which few bytes could cost much: a type that contains itself, an array of items without
    bytes, or too many types. ``named`` has the types by name; those of the schema are added.
    """

    def __init__(self, named: dict[str, Schema]) -> None:
        self._named = named
        self._types = 0

    def least(self, schema: Schema, inside: tuple[str, ...], depth: int) -> int:
        """Return 0 if a value may have no bytes, else 1."""
        self._types += 1
        if self._types > MAX_TYPES:
            raise SettingError(f"its Avro schema has more than {MAX_TYPES:,} types")
        if depth > MAX_DEPTH:
            raise SettingError(f"its Avro schema is nested deeper than {MAX_DEPTH}")
        if isinstance(schema, str):
            if schema in inside:
                raise SettingError(f"its Avro schema has the type {schema!r} inside itself, which is not supported")
            return self.least(self._named[schema], inside, depth) if schema in self._named else int(schema != "null")
        if isinstance(schema, list):
            for each in schema:
                self.least(each, inside, depth + 1)
            return 1
        kind = schema["type"]
        if "name" in schema:
            self._named[schema["name"]] = schema
        if kind in ("record", "error"):
            within = (*inside, schema["name"])
            return max([self.least(each["type"], within, depth + 1) for each in schema["fields"]], default=0)
        if kind == "array" and not self.least(schema["items"], inside, depth + 1):
            raise SettingError("its Avro schema has an array of items without bytes, which could be any number")
        if kind == "map":
            self.least(schema["values"], inside, depth + 1)
        if kind == "fixed":
            return min(1, int(schema["size"]))
        return self.least(kind, inside, depth) if not isinstance(kind, str) or kind in self._named else 1


def _boundValues() -> None:
    """Have fastavro refuse long decimals, and negative times of day, which it would read as other times; an application
    in this process may have replaced its readers.
    """
    for name, isWrong, fault in (
        ("bytes-decimal", _isLong, f"a decimal has more than {MAX_DECIMAL:,} bytes"),
        ("fixed-decimal", _isLong, f"a decimal has more than {MAX_DECIMAL:,} bytes"),
        ("int-time-millis", _isNegative, "a time of day is negative"),
        ("long-time-micros", _isNegative, "a time of day is negative"),
    ):
        fastavro.read.LOGICAL_READERS[name] = _bounded(fastavro.read.LOGICAL_READERS[name], isWrong, fault)


def _bounded(read: Callable[..., Any], isWrong: Callable[[Any], bool], fault: str) -> Callable[..., Any]:
    def bounded(data: Any, writer: Any = None, reader: Any = None) -> Any:
        if isWrong(data):
            raise ValueError(fault)
        return read(data, writer, reader)

    return bounded


def _isLong(data: bytes) -> bool:
    return len(data) > MAX_DECIMAL


def _isNegative(data: int) -> bool:
    return data < 0


_boundValues()
