"""The columns of a message of Protocol Buffers (docs/guides/schemas.rst, "Types")."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf.json_format import MessageToJson

from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.payloads.record_columns import MOMENT, Convert, Typed, listOf, mapOf
from fleximq.schemas.misfit import Misfit
from fleximq.schemas.protobuf import ProtobufCodec

#: The maximum number of fields, each counted as often as its message is used.
MAX_FIELDS = 10_000
#: The maximum number of values in one payload: a message inside without bytes has a value for each of its fields.
MAX_VALUES = 1_000_000
_UNSIGNED = Typed(pa.decimal128(20, 0), Decimal)
#: The types of fields by their numbers in descriptor.proto.
_PLAIN = {
    1: Typed(pa.float64()),
    2: Typed(pa.float32()),
    **dict.fromkeys((3, 16, 18), Typed(pa.int64())),
    **dict.fromkeys((4, 6), _UNSIGNED),
    **dict.fromkeys((5, 15, 17), Typed(pa.int32())),
    **dict.fromkeys((7, 13), Typed(pa.int64())),
    8: Typed(pa.bool_()),
    9: Typed(pa.string()),
    12: Typed(pa.binary()),
}
_WRAPPED = {
    "DoubleValue": _PLAIN[1],
    "FloatValue": _PLAIN[2],
    "Int64Value": _PLAIN[3],
    "UInt64Value": _UNSIGNED,
    "Int32Value": _PLAIN[5],
    "UInt32Value": _PLAIN[13],
    "BoolValue": _PLAIN[8],
    "StringValue": _PLAIN[9],
    "BytesValue": _PLAIN[12],
}
_KNOWN = "google.protobuf."
_ENUM, _NANO = 14, Decimal(1_000_000_000)


def _json(message: Any) -> str:
    try:
        text: str = MessageToJson(message, indent=None, preserving_proto_field_name=True)
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise Misfit(message.DESCRIPTOR.name, f"has no JSON: {error}") from None


def _moment(message: Any) -> int:
    """Return microseconds since 1970, which Arrow accepts as a timestamp."""
    return int(message.seconds) * 1_000_000 + int(message.nanos) // 1000


def _unwrapped(inner: Typed) -> Typed:
    change = inner.convert
    return Typed(inner.dataType, lambda message: message.value if change is None else change(message.value))


_SPECIAL = {
    f"{_KNOWN}Timestamp": Typed(MOMENT, _moment),
    f"{_KNOWN}Duration": Typed(
        pa.decimal128(21, 9), lambda message: Decimal(message.seconds) + Decimal(message.nanos) / _NANO
    ),
    **{f"{_KNOWN}{name}": _unwrapped(inner) for name, inner in _WRAPPED.items()},
    **dict.fromkeys(
        [f"{_KNOWN}{name}" for name in ("Struct", "Value", "ListValue", "Any", "FieldMask", "Empty")],
        Typed(pa.string(), _json),
    ),
}


class ProtobufRecords:
    """Reads messages; one inside itself is a text, its JSON."""

    def __init__(self, codec: ProtobufCodec) -> None:
        self._codec = codec
        self._fields = 0
        self._values = 0
        typed = self._message(codec.type, ())
        self._convert: Callable[[Any], Any] = typed.convert or dict
        self.fields: pa.Schema = pa.schema(list(typed.dataType) if pa.types.is_struct(typed.dataType) else [])

    def read(self, payload: bytes) -> Mapping[str, Any]:
        """See :class:`fleximq.pipeline.payloads.record_columns.IRecords`."""
        self._values = 0
        return self._convert(self._codec.read(payload))  # type: ignore[no-any-return]

    def _message(self, descriptor: Any, inside: tuple[str, ...]) -> Typed:
        name = descriptor.full_name
        if inside and name in _SPECIAL:
            return _SPECIAL[name]
        if name in inside or not descriptor.fields:
            return Typed(pa.string(), _json)
        self._fields += len(descriptor.fields)
        if self._fields > MAX_FIELDS:
            raise OptionRefused(f"the message {inside[0] if inside else name} has more than {MAX_FIELDS:,} fields")
        found = [(each, self._field(each, (*inside, name))) for each in descriptor.fields]
        fields = [(each.name, each.has_presence, typed.convert) for each, typed in found]
        dataType = pa.struct([pa.field(each.name, typed.dataType) for each, typed in found])
        return Typed(dataType, lambda message: self._valuesOf(message, fields))

    def _valuesOf(self, message: Any, fields: list[tuple[str, bool, Convert]]) -> dict[str, Any]:
        self._values += len(fields)
        if self._values > MAX_VALUES:
            raise Misfit("", f"has more than {MAX_VALUES:,} values in its messages")
        found: dict[str, Any] = {}
        for name, hasPresence, convert in fields:
            if hasPresence and not message.HasField(name):
                found[name] = None
            else:
                value = getattr(message, name)
                found[name] = value if convert is None else convert(value)
        return found

    def _field(self, field: Any, inside: tuple[str, ...]) -> Typed:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            return mapOf(self._single(inner.fields_by_name["value"], inside), _keyText)
        single = self._single(field, inside)
        if not field.is_repeated:
            return single
        made = listOf(single)
        # The library's own containers are no lists.
        return made if made.convert is not None else Typed(made.dataType, list)

    def _single(self, field: Any, inside: tuple[str, ...]) -> Typed:
        if field.type == _ENUM:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return Typed(pa.string(), lambda number: names.get(number, str(number)))
        return _PLAIN[field.type] if field.message_type is None else self._message(field.message_type, inside)


def _keyText(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
