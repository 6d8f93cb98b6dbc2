"""The payload formats with maps, and decoders of a type. Values are neither rounded, guessed nor converted, except as
docs/reference/pipeline.rst lists in "Decoding payloads".
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fleximq.wire.messagepack_json import toJson

#: Exceptions that decoding hostile bytes can raise.
FAULTS = (ValueError, TypeError, OverflowError, RecursionError, MemoryError, ArithmeticError)
#: The first and the last microsecond of the years 1 to 9999, since 1970.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999
LARGEST_FLOAT = 3.4028234663852886e38
_PLAIN: dict[pa.DataType, Any] = {
    pa.string(): str,
    pa.bool_(): bool,
    **{
        dataType: Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]
        for dataType, bits in ((pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32), (pa.int64(), 64))
    },
    # Excludes NaN and the infinities, which are checked one by one.
    pa.float32(): Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)],
    pa.float64(): float,
    pa.binary(): bytes,
    pa.date32(): date,
    pa.timestamp("us", tz="UTC"): datetime,
}

Convert = Callable[[Any], Any]
_SPACE = b" \t\r\n"


class Json:
    """The format ``json``: one value in UTF-8, with optional white space around it."""

    name = "JSON"
    empty = b"{}"

    def decoder(self, dataType: Any) -> Callable[[Any], Any]:
        """Return a decoder for exactly one value of a type."""
        return msgspec.json.Decoder(dataType).decode

    def isMap(self, packed: bytes) -> bool:
        """Return whether the first character opens an object."""
        return packed.lstrip(_SPACE)[:1] == b"{"

    def isNull(self, packed: bytes) -> bool:
        """Return whether it is null."""
        return packed.strip(_SPACE) == b"null"

    def text(self, packed: bytes) -> str:
        """Return a string as it is, other values as JSON without white space; numbers retain their digits."""
        if packed.lstrip(_SPACE)[:1] == b'"':
            return msgspec.json.decode(packed, type=str)
        return msgspec.json.format(packed, indent=-1).decode()

    def binary(self, packed: bytes) -> bytes:
        """Decode a string of base64."""
        return msgspec.json.decode(packed, type=bytes)


#: The first bytes of values.
_MAPS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
_BINS = frozenset((0xC4, 0xC5, 0xC6))
_STRINGS = frozenset((*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB))


class MessagePack:
    """The format ``messagepack``."""

    name = "MessagePack"
    empty = b"\x80"

    def decoder(self, dataType: Any) -> Callable[[Any], Any]:
        """Return a decoder for exactly one value of a type."""
        return msgspec.msgpack.Decoder(dataType).decode

    def isMap(self, packed: bytes) -> bool:
        """Return whether the first byte begins a map."""
        return not _MAPS.isdisjoint(packed[:1])

    def isNull(self, packed: bytes) -> bool:
        """Return whether it is nil."""
        return packed == b"\xc0"

    def text(self, packed: bytes) -> str:
        """Return a str as it is, a bin as its text or else as base64, a timestamp in ISO 8601, other values as JSON."""
        if not _BINS.isdisjoint(packed[:1]):
            content = msgspec.msgpack.decode(packed, type=bytes)
            try:
                return content.decode()
            except UnicodeDecodeError:
                return b64encode(content).decode()
        if not _STRINGS.isdisjoint(packed[:1]):
            return msgspec.msgpack.decode(packed, type=str)
        text = toJson(packed)
        # Values without a JSON type become strings.
        return msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode()

    def binary(self, packed: bytes) -> bytes:
        """Return a bin as it is, and a str as its UTF-8."""
        if not _STRINGS.isdisjoint(packed[:1]):
            return msgspec.msgpack.decode(packed, type=str).encode()
        return msgspec.msgpack.decode(packed, type=bytes)


Format = Json | MessagePack


def annotation(dataType: pa.DataType) -> Any:
    """Return the Python type by which :mod:`msgspec` decodes a value of an Arrow type."""
    if dataType in _PLAIN:
        return _PLAIN[dataType]
    if pa.types.is_decimal(dataType):
        return Decimal
    if pa.types.is_list(dataType):
        return list[annotation(dataType.value_type) | None]  # type: ignore[misc]
    if pa.types.is_map(dataType):
        return dict[str, annotation(dataType.item_type) | None]  # type: ignore[misc]
    return mapOf({field.name: annotation(field.type) | None for field in dataType})


def mapOf(fields: dict[str, Any]) -> Any:
    """Return the Python type of a map with some of these keys."""
    # msgspec compares keys with UTF-8 that Python may have stored with a name; its encoder makes Python store it.
    # Without, it misses names that are not ASCII, and takes the value of the empty key for them.
    msgspec.json.encode(list(fields))
    return TypedDict("Fields", fields, total=False)  # type: ignore[operator]


def exact(dataType: pa.DataType) -> Convert | None:
    """Return a function that gives decimals in a value the digits of the type, None if the type has no decimals. It
    raises ValueError for more digits, with which Arrow ends the process, for example at 1E-999999999.
    """
    if pa.types.is_decimal(dataType):
        context = Context(prec=dataType.precision, traps=[InvalidOperation, Inexact])
        return partial(_exactDecimal, context, Decimal((0, (1,), -dataType.scale)))
    if pa.types.is_list(dataType):
        each = exact(dataType.value_type)
        return None if each is None else lambda values: [None if value is None else each(value) for value in values]
    if pa.types.is_map(dataType):
        item = exact(dataType.item_type)
        return None if item is None else partial(_exactItems, {}, item)
    if pa.types.is_struct(dataType):
        fields = {field.name: made for field in dataType if (made := exact(field.type)) is not None}
        return partial(_exactItems, fields, None) if fields else None
    return None


def _exactDecimal(context: Context, one: Decimal, value: Decimal) -> Decimal:
    try:
        if value.is_finite():
            return context.quantize(value, one)
    except (InvalidOperation, Inexact):
        pass
    raise ValueError(f"does not fit a DECIMAL({context.prec},{-one.adjusted()})")


def _exactItems(named: Mapping[str, Convert], others: Convert | None, values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if value is None or (made := named.get(name, others)) is None else made(value)
        for name, value in values.items()
    }


def hasTimes(dataType: pa.DataType) -> bool:
    """Tell whether a type is TIMESTAMP, or has one inside."""
    inner = [dataType.field(place).type for place in range(dataType.num_fields)]
    return pa.types.is_timestamp(dataType) or any(map(hasTimes, inner))


def withYears(column: pa.Array, name: str) -> pa.Array:
    """Return the column of this name; raises ValueError for a time outside the years 1 to 9999 in UTC: most readers of
    a table cannot represent it, nor can Iceberg's statistics.
    """
    dataType = column.type
    if pa.types.is_timestamp(dataType):
        bounds = pc.min_max(column.cast(pa.int64())).as_py()
        if bounds["min"] is not None and not _FIRST_TIME <= bounds["min"] <= bounds["max"] <= _LAST_TIME:
            raise ValueError(f"'{name}' has a TIMESTAMP outside the years 1 to 9999 in UTC")
    elif pa.types.is_map(dataType):
        withYears(column.items, name)
    elif dataType.num_fields:
        for inner in column.flatten() if pa.types.is_struct(dataType) else [column.flatten()]:
            withYears(inner, name)
    return column
