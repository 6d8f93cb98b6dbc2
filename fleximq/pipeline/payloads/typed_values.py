"""Values of a type, decoded by :mod:`msgspec`: neither rounded, guessed nor converted, except as
docs/reference/pipeline.rst lists in "Decoding payloads".
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa

#: Exceptions that decoding hostile bytes can raise.
FAULTS = (ValueError, TypeError, OverflowError, RecursionError, MemoryError, ArithmeticError)
#: The largest FLOAT.
LARGEST_FLOAT = 3.4028234663852886e38
_PLAIN: dict[pa.DataType, Any] = {
    pa.string(): str,
    pa.bool_(): bool,
    **{
        type: Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]
        for type, bits in ((pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32), (pa.int64(), 64))
    },
    # Excludes NaN and the infinities, which are checked one by one.
    pa.float32(): Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)],
    pa.float64(): float,
    pa.binary(): bytes,
    pa.date32(): date,
    pa.timestamp("us", tz="UTC"): datetime,
}

Convert = Callable[[Any], Any]


def annotation(type: pa.DataType) -> Any:
    """Return the Python type by which :mod:`msgspec` decodes a value of an Arrow type."""
    if type in _PLAIN:
        return _PLAIN[type]
    if pa.types.is_decimal(type):
        return Decimal
    if pa.types.is_list(type):
        return list[annotation(type.value_type) | None]  # type: ignore[misc]
    if pa.types.is_map(type):
        return dict[str, annotation(type.item_type) | None]  # type: ignore[misc]
    fields = {field.name: annotation(field.type) | None for field in type}
    return TypedDict("Fields", fields, total=False)  # type: ignore[operator]


def exact(type: pa.DataType) -> Convert | None:
    """Return a function that gives decimals in a value the digits of the type, None if the type has no decimals. It
    raises ValueError for more digits. Arrow must not see such a decimal: it ends the process at 1E-999999999.
    """
    if pa.types.is_decimal(type):
        return _exactDecimal(type.precision, type.scale)
    if pa.types.is_list(type):
        each = exact(type.value_type)
        return None if each is None else lambda values: [None if value is None else each(value) for value in values]
    if pa.types.is_map(type):
        item = exact(type.item_type)
        return None if item is None else _exactItems({}, item)
    if pa.types.is_struct(type):
        fields = {field.name: made for field in type if (made := exact(field.type)) is not None}
        return _exactItems(fields, None) if fields else None
    return None


def _exactDecimal(precision: int, scale: int) -> Convert:
    context = Context(prec=precision, traps=[InvalidOperation, Inexact])
    one = Decimal((0, (1,), -scale))

    def convert(value: Decimal) -> Decimal:
        try:
            if value.is_finite():
                return context.quantize(value, one)
        except (InvalidOperation, Inexact):
            pass
        raise ValueError(f"does not fit a DECIMAL({precision},{scale})")

    return convert


def _exactItems(named: Mapping[str, Convert], others: Convert | None) -> Convert:
    def convert(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value if value is None or (made := named.get(name, others)) is None else made(value)
            for name, value in values.items()
        }

    return convert
