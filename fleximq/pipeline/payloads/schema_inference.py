"""Infers a schema from payloads: unknown fields become columns. Costs about 2 us for a map of 5 fields; a sample of a
few thousand is usually enough.

Values have the columns BOOLEAN, BIGINT (STRING, if larger), DOUBLE, STRING, BINARY, TIMESTAMP, ARRAY, and STRUCT for a
map with texts as keys. Other values, and values nested deeper than 32, become STRING, their JSON. Null, an empty array
and an empty map have no column until a payload has more.

The common type of BIGINT and DOUBLE is DOUBLE, of two STRUCTs one with all their fields, of two ARRAYs one of the
common type of their values, and otherwise STRING. A known column stays as it is if it accepts the values: numbers in an
INT, FLOAT or DECIMAL, texts in a DATE, TIMESTAMP, DECIMAL or BINARY, though some of them may not fit.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from functools import partial, reduce
from typing import Any

import msgspec
import pyarrow as pa

from fleximq.pipeline.payloads.ddl import NESTING
from fleximq.pipeline.payloads.decoder import STRUCTURED, Decoder
from fleximq.pipeline.payloads.dialect_payloads import VERBATIM, Identity, divided, packedAt, splitBodies
from fleximq.pipeline.payloads.payload_formats import FAULTS
from fleximq.pipeline.payloads.schema_formats import REGISTRY, registeredFields

#: Maximum number of columns, and of fields of a STRUCT; a map with more keys is better a MAP, which needs a given
#: schema.
MAX_COLUMNS = 1000
MAX_NAME_BYTES = 255

_BIGINT, _DOUBLE, _STRING = pa.int64(), pa.float64(), pa.string()
_MOMENT = pa.timestamp("us", tz="UTC")
#: The type for values of a class.
_CLASSES = {bool: pa.bool_(), float: _DOUBLE, str: _STRING, bytes: pa.binary(), datetime: _MOMENT, int: _BIGINT}
_WHOLE = frozenset((pa.int8(), pa.int16(), pa.int32(), _BIGINT))

Kind = Any
#: Tells whether a known type remains when a value of another type is seen; None: it never does.
_Stays = Callable[[pa.DataType, pa.DataType], bool] | None


def inferred(
    payloadFormat: str,
    values: pa.BinaryArray,
    known: pa.Schema | None = None,
    identity: Identity = VERBATIM,
    dialects: pa.StringArray | None = None,
    contents: pa.Int32Array | None = None,
    widen: bool = True,
    leftOut: dict[str, None] | None = None,
    definition: str = "",
) -> pa.Schema:
    """Return the known columns, perhaps of a wider type, followed by the new columns of payloads; none at all if no
    payload has a field. Raises OptionRefused for an unknown format. A key becomes no column if it is empty, longer than
    :data:`MAX_NAME_BYTES`, or equal to another regardless of case, which Spark could not distinguish. Payloads that are
    no maps are the column ``value``, if there are only those.

    @:param known: without the column of metadata, which is the decoder's own.
    :param widen: False only adds columns: known ones stay as they are.
    :param leftOut: gets the keys that become no columns, those in a STRUCT as ``outer.inner``. With it, keys that
        differ only in case are columns, except in a STRUCT; the caller gives them other names.
    :param definition: that of a format with a schema of its own. Known columns stay as they are.
    """
    if payloadFormat not in (*STRUCTURED, REGISTRY):
        return Decoder(payloadFormat, known, definition=definition).schema
    body, _ = splitBodies(values, dialects, identity, {})
    own, packed = divided(payloadFormat, body, packedAt(payloadFormat, dialects, contents))
    if payloadFormat == REGISTRY:
        found = [fields for fields in registeredFields(definition, own) if len(fields)]
        return reduce(partial(unionSchema, widen=False), found, pa.schema([]) if known is None else known)
    decode = msgspec.msgpack.decode if payloadFormat == "messagepack" else _jsonDecoded
    kinds = _kinds(own, decode) | _kinds(packed, msgspec.msgpack.decode)
    maps = [kind for kind in kinds if isinstance(kind, tuple) and kind[0] == "map"]
    fields = list(known) if known is not None else []
    if not maps and (not fields or [field.name for field in fields] == ["value"]):
        maps = [("map", (("value", kind),)) for kind in kinds]
    seen: list[pa.Field] = reduce(_merged, map(_fieldsOf, maps), [])
    wanted = _merged(fields, seen, _takes if widen else _everything)
    found = _admitted(wanted, fields, leftOut is not None)
    if leftOut is not None:
        leftOut.update(dict.fromkeys(_leftOut(wanted, found)))
    return pa.schema(found)


def unionSchema(one: pa.Schema, other: pa.Schema, widen: bool = True) -> pa.Schema:
    """Return the union of two schemas that were inferred with ``leftOut``."""
    return pa.schema(_admitted(_merged(list(one), list(other), None if widen else _everything), one, True))


def roomy(
    found: Iterable[pa.Field], known: Iterable[pa.Field] | None, integers: Collection[str], path: str = ""
) -> pa.Schema:
    """Return inferred fields with DOUBLE in place of each BIGINT, except in the types of known columns, because no
    format of tables widens BIGINT to DOUBLE later. ``integers`` are the fields that stay BIGINT, with all that they
    contain; those in a STRUCT as ``outer.inner``; ``path`` is that of the STRUCT, with a dot.
    """
    had = {field.name: field.type for field in known or ()}
    fields = []
    for field in found:
        name = f"{path}{field.name}"
        dataType = field.type if name in integers else _roomyType(field.type, had.get(field.name), integers, f"{name}.")
        fields.append(field.with_type(dataType))
    return pa.schema(fields)


def _roomyType(found: pa.DataType, known: pa.DataType | None, integers: Collection[str], path: str) -> pa.DataType:
    if pa.types.is_struct(found):
        return pa.struct(list(roomy(found, known, integers, path)))
    if pa.types.is_list(found):
        return pa.list_(_roomyType(found.value_type, None if known is None else known.value_type, integers, path))
    return _DOUBLE if found == _BIGINT and known is None else found


def _kinds(payloads: Iterable[bytes | None], decode: Callable[..., Any]) -> dict[Kind, None]:
    """Return the distinct kinds of values in order; most payloads of a topic are of one kind."""
    kinds: dict[Kind, None] = {}
    for payload in payloads:
        if payload:
            try:
                kinds[_kindOf(decode(payload), 0)] = None
            except FAULTS:
                continue
    return kinds


#: Reads a number that is too large for a DOUBLE as an infinity; slow, since it calls Python for each number.
_decodedLarge = msgspec.json.Decoder(float_hook=float).decode


def _jsonDecoded(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except msgspec.ValidationError:
        return _decodedLarge(payload)


def _kindOf(value: Any, depth: int) -> Kind:
    """Return the structure of a value: a type, or a tuple with the kinds of its contents."""
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


def _typeOf(kind: Kind) -> pa.DataType | None:
    if not isinstance(kind, tuple):
        return kind
    if kind[0] == "map":
        fields = _merged([], _fieldsOf(kind))
        return pa.struct(fields) if fields else None
    types = [dataType for each in kind[1] if (dataType := _typeOf(each)) is not None]
    return pa.list_(reduce(_common, types)) if types else None


def _fieldsOf(kind: Kind) -> list[pa.Field]:
    return [pa.field(name, dataType) for name, each in kind[1] if (dataType := _typeOf(each)) is not None]


def _merged(known: list[pa.Field], seen: list[pa.Field], stays: _Stays = None) -> list[pa.Field]:
    fields = {field.name: field for field in known}
    for field in seen:
        old = fields.get(field.name)
        fields[field.name] = field if old is None else old.with_type(_common(old.type, field.type, stays))
    return list(fields.values())


def _admitted(fields: Iterable[pa.Field], known: Iterable[pa.Field], twins: bool = False) -> list[pa.Field]:
    """Return fields without new ones that cannot be columns; the known ones are first."""
    old = {field.name: field.type for field in known}
    lowered = {name.lower() for name in old}
    found: list[pa.Field] = []
    for field in fields:
        name, dataType = field.name, _admittedType(field.type, old.get(field.name))
        isName = 0 < len(name.encode()) <= MAX_NAME_BYTES and name.isprintable()
        isNew = len(found) < MAX_COLUMNS and (twins or name.lower() not in lowered) and dataType is not None
        if name in old or (isName and isNew):
            found.append(field.with_type(dataType))
            lowered.add(name.lower())
    return found


def _admittedType(dataType: pa.DataType, known: pa.DataType | None) -> pa.DataType | None:
    if pa.types.is_struct(dataType):
        fields = _admitted(dataType, known if known is not None and pa.types.is_struct(known) else ())
        return pa.struct(fields) if fields else None
    if pa.types.is_list(dataType):
        old = known.value_type if known is not None and pa.types.is_list(known) else None
        inner = _admittedType(dataType.value_type, old)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_map(dataType):
        # Only a given schema has these.
        return pa.map_(pa.string(), _admittedType(dataType.item_type, None if known is None else known.item_type))
    return dataType


def _leftOut(wanted: Iterable[pa.Field], found: Iterable[pa.Field], path: str = "") -> Iterator[str]:
    """Yield the names of fields that were not admitted."""
    types = {field.name: field.type for field in found}
    for field in wanted:
        name, dataType, had = f"{path}{field.name}", field.type, types.get(field.name)
        while had is not None and pa.types.is_list(dataType) and pa.types.is_list(had):
            dataType, had = dataType.value_type, had.value_type
        if had is None:
            yield name
        elif pa.types.is_struct(dataType) and pa.types.is_struct(had):
            yield from _leftOut(dataType, had, f"{name}.")


def _common(known: pa.DataType, seen: pa.DataType, stays: _Stays = None) -> pa.DataType:
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
    if stays is not None and stays(known, seen):
        return known
    numbers = (*_WHOLE, _DOUBLE)
    return _DOUBLE if _DOUBLE in (known, seen) and known in numbers and seen in numbers else _STRING


def _everything(known: pa.DataType, seen: pa.DataType) -> bool:
    return True


def _takes(known: pa.DataType, seen: pa.DataType) -> bool:
    """Return whether a column accepts values of another type unchanged, or may do so."""
    if seen == _BIGINT:
        return known in _WHOLE or pa.types.is_floating(known) or pa.types.is_decimal(known)
    if seen == _DOUBLE:
        return bool(pa.types.is_floating(known) or pa.types.is_decimal(known))
    if seen == _STRING:
        return bool(pa.types.is_temporal(known) or pa.types.is_decimal(known) or pa.types.is_binary(known))
    return False
