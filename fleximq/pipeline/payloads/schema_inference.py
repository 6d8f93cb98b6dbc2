"""A schema found by looking at payloads: what they have that is not known yet becomes columns.

Costs about 2 us a map of 5 fields; a sample of a few thousand will usually do. What a value becomes:

| value | column |
| --- | --- |
| true, false | BOOLEAN |
| whole number | BIGINT; STRING if it is larger than that |
| other number | DOUBLE |
| str | STRING |
| bin | BINARY |
| MessagePack's timestamp | TIMESTAMP |
| array | ARRAY of what its values have in common |
| map with texts as keys | STRUCT |
| anything else, and what is nested deeper than 32 | STRING, its JSON |
| null, empty array, empty map | none, until there is something |

Two types have in common: BIGINT and DOUBLE a DOUBLE, two STRUCTs one of all their fields, two ARRAYs one of what their
values have in common, and any others STRING. A column that is known stays as it is if it takes such values: numbers
in an INT, FLOAT or DECIMAL, texts in a DATE, TIMESTAMP, DECIMAL or BINARY, of which some may not fit then.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa

from fleximq.pipeline.payloads.ddl import NESTING
from fleximq.pipeline.payloads.decoder import STRUCTURED, Decoder
from fleximq.pipeline.payloads.dialect_payloads import VERBATIM, Identity, divided, packedAt, splitBodies
from fleximq.pipeline.payloads.typed_values import FAULTS

#: Columns, and fields of a STRUCT, at most; what has more keys is better a MAP, which a schema can say.
MOST = 1000
#: Bytes of a column's name, at most.
NAME_BYTES = 255

_BIGINT, _DOUBLE, _STRING = pa.int64(), pa.float64(), pa.string()
_MOMENT = pa.timestamp("us", tz="UTC")
#: What type a value of a class has.
_CLASSES = {bool: pa.bool_(), float: _DOUBLE, str: _STRING, bytes: pa.binary(), datetime: _MOMENT, int: _BIGINT}
_WHOLE = frozenset((pa.int8(), pa.int16(), pa.int32(), _BIGINT))

Kind = Any
#: Whether a known type stays where a value of another one comes.
_Stays = Callable[[pa.DataType, pa.DataType], bool]


def inferred(
    format: str,
    values: pa.BinaryArray,
    known: pa.Schema | None = None,
    identity: Identity = VERBATIM,
    dialects: pa.StringArray | None = None,
    contents: pa.Int32Array | None = None,
    widen: bool = True,
) -> pa.Schema:
    """Return the known columns, perhaps of a wider type, and behind them those that payloads have besides.

    There is no column yet if no payload has any. A key becomes none if it is empty, longer than :data:`NAME_BYTES`, or
    equal to another but for its capitals, which Spark could not tell apart. Payloads that are no maps are the column
    ``value``, as long as there are only such.

    Values, dialects and contents are as for :meth:`fleximq.pipeline.payloads.decoder.Decoder.decode`.

    :param known: without the column of metadata, which is the decoder's own.
    :param widen: False only adds columns: what is known stays as it is.
    :raises OptionRefused: there is no such format.
    """
    if format not in STRUCTURED:
        return Decoder(format, known).schema
    body, _ = splitBodies(values, dialects, identity, {})
    own, packed = divided(format, body, packedAt(format, dialects, contents))
    decode = msgspec.msgpack.decode if format == "messagepack" else msgspec.json.decode
    kinds = _kinds(own, decode) | _kinds(packed or (), msgspec.msgpack.decode)
    maps = [kind for kind in kinds if _isMap(kind)]
    fields = list(known) if known is not None else []
    if not maps and (not fields or [field.name for field in fields] == ["value"]):
        maps = [("map", (("value", kind),)) for kind in kinds]
    seen: list[pa.Field] = []
    for kind in maps:
        seen = _merged(seen, _fieldsOf(kind), _nothing)
    return pa.schema(_admitted(_merged(fields, seen, _takes if widen else _everything), fields))


def unionSchema(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return one schema for what two were found for: the columns of both, those of two types as wide as both need.

    Of names that differ only in capitals, those of the first one stay.
    """
    return pa.schema(_admitted(_merged(list(one), list(other), _nothing), one))


def _kinds(payloads: Iterable[bytes | None], decode: Callable[..., Any]) -> dict[Kind, None]:
    """Return what kinds of values there are, in the order of their coming; most payloads of a topic are of one."""
    kinds: dict[Kind, None] = {}
    for payload in payloads:
        if payload:
            try:
                kinds[_kindOf(decode(payload), 0)] = None
            except FAULTS:
                continue
    return kinds


def _kindOf(value: Any, depth: int) -> Kind:
    """Return what a value is, without what it says: a type, or a tuple with the kinds of what is in it."""
    if value is None:
        return None
    known = type(value)
    if known is dict:
        if depth > NESTING or not all(type(key) is str for key in value):
            return _STRING if depth else None
        return "map", tuple([(key, _kindOf(each, depth + 1)) for key, each in value.items()])
    if known is list:
        return _STRING if depth > NESTING else ("array", tuple({_kindOf(each, depth + 1): None for each in value}))
    if known is int and not -(1 << 63) <= value < 1 << 63:
        return _STRING
    return _CLASSES.get(known, _STRING)


def _isMap(kind: Kind) -> bool:
    return isinstance(kind, tuple) and kind[0] == "map"


def _typeOf(kind: Kind) -> pa.DataType | None:
    """Return the type of a kind; None where nothing is known of it yet."""
    if not isinstance(kind, tuple):
        return kind
    if _isMap(kind):
        fields = _merged([], _fieldsOf(kind), _nothing)
        return pa.struct(fields) if fields else None
    types = [type for each in kind[1] if (type := _typeOf(each)) is not None]
    return pa.list_(reduce(lambda one, other: _common(one, other, _nothing), types)) if types else None


def _fieldsOf(kind: Kind) -> list[pa.Field]:
    return [pa.field(name, type) for name, each in kind[1] if (type := _typeOf(each)) is not None]


def _merged(known: list[pa.Field], seen: list[pa.Field], stays: _Stays) -> list[pa.Field]:
    """Return the known fields with those that were seen."""
    fields = {field.name: field for field in known}
    for field in seen:
        old = fields.get(field.name)
        fields[field.name] = field if old is None else old.with_type(_common(old.type, field.type, stays))
    return list(fields.values())


def _admitted(fields: Iterable[pa.Field], known: Iterable[pa.Field]) -> list[pa.Field]:
    """Return fields without those that are new and cannot be columns; the known ones come first."""
    old = {field.name: field.type for field in known}
    lowered = {name.lower() for name in old}
    found: list[pa.Field] = []
    for field in fields:
        name, type = field.name, _admittedType(field.type, old.get(field.name))
        isNew = len(found) < MOST and name.lower() not in lowered and _isName(name) and type is not None
        if name in old or isNew:
            found.append(field.with_type(type))
            lowered.add(name.lower())
    return found


def _admittedType(type: pa.DataType, known: pa.DataType | None) -> pa.DataType | None:
    """Return the same of a type; None where nothing of it is left."""
    if pa.types.is_struct(type):
        fields = _admitted(type, known if known is not None and pa.types.is_struct(known) else ())
        return pa.struct(fields) if fields else None
    if pa.types.is_list(type):
        inner = _admittedType(
            type.value_type, known.value_type if known is not None and pa.types.is_list(known) else None
        )
        return None if inner is None else pa.list_(inner)
    if pa.types.is_map(type):
        # Only a schema that was given has these.
        return pa.map_(pa.string(), _admittedType(type.item_type, None if known is None else known.item_type))
    return type


def _isName(name: str) -> bool:
    return 0 < len(name.encode()) <= NAME_BYTES and name.isprintable()


def _common(known: pa.DataType, seen: pa.DataType, stays: _Stays) -> pa.DataType:
    """Return the type of what was of one type and now has a value of another."""
    if known == seen:
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(seen):
        return pa.struct(_merged(list(known), list(seen), stays))
    if pa.types.is_list(known) and pa.types.is_list(seen):
        return pa.list_(_common(known.value_type, seen.value_type, stays))
    if pa.types.is_map(known) and pa.types.is_struct(seen):
        item = known.item_type
        for field in seen:
            item = _common(item, field.type, stays)
        return pa.map_(pa.string(), item)
    if stays(known, seen):
        return known
    numbers = (*_WHOLE, _DOUBLE)
    return _DOUBLE if _DOUBLE in (known, seen) and known in numbers and seen in numbers else _STRING


def _nothing(known: pa.DataType, seen: pa.DataType) -> bool:
    """What was only seen does not stay."""
    return False


def _everything(known: pa.DataType, seen: pa.DataType) -> bool:
    """Nothing becomes wider."""
    return True


def _takes(known: pa.DataType, seen: pa.DataType) -> bool:
    """Return whether a column takes values of another type as they are, or may do so."""
    if seen == _BIGINT:
        return known in _WHOLE or pa.types.is_floating(known) or pa.types.is_decimal(known)
    if seen == _DOUBLE:
        return bool(pa.types.is_floating(known) or pa.types.is_decimal(known))
    if seen == _STRING:
        return bool(pa.types.is_temporal(known) or pa.types.is_decimal(known) or pa.types.is_binary(known))
    return False
