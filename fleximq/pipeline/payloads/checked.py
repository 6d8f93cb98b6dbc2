"""One payload, value by value: what the quick way of :mod:`maps` has refused is read again, or it is said why not.

Costs some microseconds for each column.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import msgspec
import pyarrow as pa

from fleximq.pipeline.payloads.ddl import typeWritten
from fleximq.pipeline.payloads.typed_values import FAULTS, Format, annotation, exact

#: A clause is cut behind so many characters.
LONGEST = 300
_LARGEST_FLOAT = 3.4028234663852886e38


class Misfit(Exception):
    """A payload does not fit its schema; the text is one clause."""


def said(error: BaseException) -> str:
    """Return what is wrong with bytes that raised one of :data:`FAULTS`."""
    if isinstance(error, UnicodeError):
        return "a text in it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it is too large"
    text = str(error).partition(" - at ")[0]
    return text.replace("Expected", "expected", 1) if text.startswith("Expected") else text


class Fields:
    """Reads the fields of a map, each by itself."""

    def __init__(self, format: Format, fields: Sequence[pa.Field]) -> None:
        raws: Any = {field.name: msgspec.Raw for field in fields}
        self._split = format.decoder(TypedDict("Raws", raws, total=False))  # type: ignore[operator]
        self._format = format
        self._fields = [(field.name, _Value(format, field.type)) for field in fields]

    def read(self, packed: bytes) -> list[Any]:
        """Return the values of a payload's fields, None for those that it does not have.

        A payload that is no map is the value of the only field, if that is called ``value``.

        :raises Misfit: it has something else than the schema says.
        """
        if not packed:
            raise Misfit("the payload is empty")
        if len(self._fields) == 1 and self._fields[0][0] == "value" and not self._format.isMap(packed):
            return [self._fields[0][1].read(packed, "value")]
        try:
            found = self._split(packed)
        except FAULTS as error:
            raise Misfit(f"the payload is no {self._format.name} map: {said(error)}"[:LONGEST]) from None
        return self._each(found, "")

    def nested(self, packed: bytes, where: str) -> dict[str, Any]:
        """Return the fields of a map inside a payload."""
        values = self._each(self._split(packed), f"{where}.")
        return dict(zip((name for name, _ in self._fields), values, strict=True))

    def _each(self, found: dict[str, msgspec.Raw], prefix: str) -> list[Any]:
        return [
            value.read(bytes(found[name]), f"{prefix}{name}") if name in found else None for name, value in self._fields
        ]


class _Value:
    """Reads values of one type."""

    def __init__(self, format: Format, type: pa.DataType) -> None:
        self._format = format
        self._type = typeWritten(type)
        self._read = _reading(format, type)

    def read(self, packed: bytes, where: str) -> Any:
        """Return a value.

        :raises Misfit: it is of another type.
        """
        if self._format.isNull(packed):
            return None
        try:
            return self._read(packed, where)
        except FAULTS as error:
            raise Misfit(f"'{where}' is no {self._type}: {said(error)}"[:LONGEST]) from None


def _reading(format: Format, type: pa.DataType) -> Callable[[bytes, str], Any]:
    if pa.types.is_string(type):
        return lambda packed, where: format.text(packed)
    if pa.types.is_binary(type):
        return lambda packed, where: format.binary(packed)
    if pa.types.is_struct(type):
        return Fields(format, list(type)).nested
    if pa.types.is_list(type):
        return _list(format, type.value_type)
    if pa.types.is_map(type):
        return _map(format, type.item_type)
    if pa.types.is_float32(type):
        return _float(format.decoder(float))
    decode, convert = format.decoder(annotation(type)), exact(type)
    return (lambda packed, where: decode(packed)) if convert is None else lambda packed, where: convert(decode(packed))


def _float(decode: Callable[[bytes], float]) -> Callable[[bytes, str], float]:
    def read(packed: bytes, where: str) -> float:
        value = decode(packed)
        if _LARGEST_FLOAT < abs(value) < float("inf"):
            raise ValueError("it is too large")
        return value

    return read


def _list(format: Format, type: pa.DataType) -> Callable[[bytes, str], list[Any]]:
    split, element = format.decoder(list[msgspec.Raw]), _Value(format, type)

    def read(packed: bytes, where: str) -> list[Any]:
        return [element.read(bytes(each), f"{where}[{place}]") for place, each in enumerate(split(packed))]

    return read


def _map(format: Format, type: pa.DataType) -> Callable[[bytes, str], dict[str, Any]]:
    split, item = format.decoder(dict[str, msgspec.Raw]), _Value(format, type)

    def read(packed: bytes, where: str) -> dict[str, Any]:
        return {name: item.read(bytes(each), f"{where}[...]") for name, each in split(packed).items()}

    return read
