"""The values of a reader's columns in one form, and their comparison with wanted values."""

import json
import math
from typing import Any

import msgpack
import pyarrow as pa

from tests.pipeline.lake.hostile.messages import Pairs, Token


class Near(int):
    """A time that may be rounded up or down."""


class JsonText:
    """The JSON of a value, with white space, escapes and equal keys in any way."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def isIn(self, found: Any) -> bool:
        """Tell whether a text is JSON of the value."""
        try:
            return _sameJson(loadedJson(found), self._value)
        except ValueError:
            return False


class AnyValue:
    """The reference leaves open how a value is written."""


def canonical(array: pa.Array, dataType: pa.DataType) -> list[Any]:
    """Return a column's values as ``dataType`` says, though a reader may have others: times in microseconds, maps as
    dictionaries, which some readers have as lists.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        return [each for chunk in array.chunks for each in canonical(chunk, dataType)]
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    valid = array.is_valid().to_pylist()
    if pa.types.is_timestamp(dataType):
        return list(array.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()) if array.type != pa.null() else valid
    if pa.types.is_struct(dataType):
        names = [field.name for field in dataType]
        found = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        fields = [canonical(found[field.name], field.type) for field in dataType]
        return [dict(zip(names, row, strict=True)) if ok else None for ok, *row in zip(valid, *fields, strict=True)]
    if pa.types.is_list(dataType) or pa.types.is_map(dataType):
        return _nested(array, dataType, valid)
    return list(array.to_pylist())


def _nested(array: pa.Array, dataType: pa.DataType, valid: list[bool]) -> list[Any]:
    starts = array.offsets.to_pylist()
    if pa.types.is_list(dataType):
        inner = canonical(array.values, dataType.value_type)
    else:
        keys, items = (array.keys, array.items) if pa.types.is_map(array.type) else array.values.flatten()
        inner = list(zip(keys.to_pylist(), canonical(items, dataType.item_type), strict=True))
    parts = [inner[start:end] if ok else None for ok, start, end in zip(valid, starts, starts[1:], strict=False)]
    return [part if part is None or pa.types.is_list(dataType) else dict(part) for part in parts]


def same(found: Any, wanted: Any) -> bool:
    """Tell whether a value is the wanted one; NaN is equal to NaN, and -0.0 is not 0.0."""
    if isinstance(wanted, AnyValue):
        return True
    if isinstance(wanted, JsonText):
        return wanted.isIn(found)
    if isinstance(wanted, Near):
        return found is not None and abs(found - wanted) <= 1
    if isinstance(wanted, tuple):
        return found in wanted
    if isinstance(wanted, float) and isinstance(found, float):
        return (math.isnan(wanted) and math.isnan(found)) or (
            found == wanted and math.copysign(1, found) == math.copysign(1, wanted)
        )
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, dict) and isinstance(found, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    return type(found) is type(wanted) and bool(found == wanted)


def isPart(found: Any, wanted: Any) -> bool:
    """Tell whether a value is the wanted one, or null, in whole or in fields of it."""
    if found is None:
        return True
    if isinstance(wanted, dict) and isinstance(found, dict):
        return found.keys() == wanted.keys() and all(isPart(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(isPart, found, wanted))
    return same(found, wanted)


def loadedJson(text: str) -> Any:
    """Return the value of JSON, with maps as pairs and numbers as digits; raises ValueError."""

    def refused(word: str) -> Any:
        raise ValueError(word)

    return json.loads(text, parse_float=Token, parse_int=Token, parse_constant=refused, object_pairs_hook=Pairs)


def _sameJson(found: Any, value: Any) -> bool:
    """Tell whether parsed JSON is a value, whose bytes and times have become texts, and NaN null."""
    if isinstance(value, Pairs):
        have, wanted = (dict(found), dict(value)) if isinstance(found, Pairs) else (None, {})
        return (
            have is not None
            and have.keys() == wanted.keys()
            and all(_sameJson(have[key], wanted[key]) for key in wanted)
        )
    if isinstance(value, list):
        return isinstance(found, list) and len(found) == len(value) and all(map(_sameJson, found, value))
    if isinstance(value, bytes | msgpack.Timestamp):
        return isinstance(found, str)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return bool(found == value)
    if isinstance(value, float) and not math.isfinite(value):
        return found is None
    return isinstance(found, Token) and (int(found) == value if isinstance(value, int) else float(found) == value)
