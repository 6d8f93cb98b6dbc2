"""The values that a message must have in the columns of a table, by the table "Decoding payloads" of the reference.

It reads payloads with other libraries than the pipeline does. Where the reference leaves a choice, both are right: the
value, or a dead letter.
"""

import math
import re
from base64 import b64decode, b64encode
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from fleximq.pipeline.payloads.schema_inference import MAX_COLUMNS, MAX_NAME_BYTES
from fleximq.values.message import Content
from tests.pipeline.lake.hostile.column_values import AnyValue, JsonText, Near, isPart, loadedJson, same
from tests.pipeline.lake.hostile.messages import DOTTED, HostileMessage, Pairs, Token

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(\.\d+)?(?:([Zz])|([+-])(\d\d):(\d\d))?")
_LOWEST, _HIGHEST = -62_135_596_800_000_000, 253_402_300_799_999_999


class Misfit(Exception):
    """A value does not fit its column."""


def parsed(message: HostileMessage) -> Any:
    """Return a payload's value, with maps as pairs and JSON's numbers as digits; raises ValueError if it is damaged."""
    if message.content is not Content.MESSAGEPACK:
        return loadedJson(message.payload.decode())
    options: dict[str, Any] = {"strict_map_key": False, "object_pairs_hook": Pairs, "unicode_errors": "surrogatepass"}
    return msgpack.unpackb(message.payload, raw=False, timestamp=0, **options)


def complaint(
    message: HostileMessage, row: dict[str, Any], reason: str | None, schema: pa.Schema, late: frozenset[str]
) -> str:
    """Return why a row is wrong, nothing if it is right: it has the message's values, or a reason and no values.

    :param row: the values by field.
    :param late: columns that the table got after the message, or fields in them, which may be null.
    """
    doubts: list[str] = []
    wanted: dict[str, Any] = {}
    fault = ""
    try:
        found = parsed(message)
    except (ValueError, TypeError, msgpack.UnpackException):
        found = None
    if not isinstance(found, Pairs):
        fault = "the payload is no map"
    else:
        values = dict(found)
        if _isDoubtful(found):
            doubts.append("a text or number that no reader of JSON or MessagePack must accept")
        for field in schema:
            try:
                wanted[field.name] = expected(values.get(field.name), field.type, doubts)
            except Misfit as misfit:
                wanted[field.name] = AnyValue() if field.name in late else misfit
                fault = fault or ("" if field.name in late else f"{field.name!r}: {misfit}")
    if reason is not None:
        if any(row[name] is not None for name in schema.names):
            return "it is a dead letter with values"
        hasCause = fault or doubts or any(isinstance(each, AnyValue) for each in wanted.values())
        return "" if hasCause and reason else f"it is a dead letter without a cause: {reason!r}"
    if fault:
        return f"it is no dead letter, though {fault}"
    for name, value in wanted.items():
        if not (isPart if name in late else same)(row[name], value):
            return f"{name!r} is {row[name]!r:.200}, not {value!r:.200}"
    return ""


def missingColumns(message: HostileMessage, known: pa.Schema, isDotted: bool) -> list[str]:
    """Return the keys of a message that fits for which an inferred table has no column, though it should.

    :param isDotted: whether names with dots, and those beside them, may have none, as in Iceberg.
    """
    values = parsed(message)
    if len(known) >= MAX_COLUMNS or _isDoubtful(values):
        return []
    found = []
    for key, value in dict(values).items():
        isName = 0 < len(key.encode()) <= MAX_NAME_BYTES and key.isprintable()
        hasDot = isDotted and ("." in key or any(name.startswith(f"{key.lower()}.") for name in DOTTED))
        if isName and not hasDot and _hasType(value) and key not in known.names:
            found.append(key)
    return found


def _hasType(value: Any) -> bool:
    """Tell whether a column can be inferred from a value alone."""
    if isinstance(value, Pairs):
        return any(0 < len(key) and key.isprintable() and _hasType(each) for key, each in value)
    return any(map(_hasType, value)) if isinstance(value, list) else value is not None


def expected(value: Any, dataType: pa.DataType, doubts: list[str]) -> Any:
    """Return the value in a column; raises Misfit. ``doubts`` gets reasons why it may be a dead letter as well."""
    if value is None:
        return None
    if pa.types.is_list(dataType):
        return [expected(each, dataType.value_type, doubts) for each in _of(value, list, Pairs)]
    if pa.types.is_map(dataType):
        return {_text(key): expected(each, dataType.item_type, doubts) for key, each in dict(_of(value, Pairs)).items()}
    if pa.types.is_struct(dataType):
        values = dict(_of(value, Pairs))
        return {field.name: expected(values.get(field.name), field.type, doubts) for field in dataType}
    if dataType == pa.string():
        return _string(value, doubts)
    if pa.types.is_floating(dataType):
        return _float(value, dataType, doubts)
    if pa.types.is_integer(dataType):
        whole = int(value) if isinstance(value, Token) and re.fullmatch(r"-?\d+", value) else _of(value, int, bool)
        return _checked(whole, -(1 << dataType.bit_width - 1) <= whole < 1 << dataType.bit_width - 1)
    if pa.types.is_decimal(dataType):
        return _decimal(value, dataType, doubts)
    if pa.types.is_timestamp(dataType):
        return _moment(value, doubts)
    if dataType == pa.date32():
        text = _of(value, str, Token)
        try:
            return _checked(date.fromisoformat(text), re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None)
        except ValueError:
            raise Misfit(f"{text!r:.50} is no date") from None
    return _of(value, bool) if dataType == pa.bool_() else _binary(value, doubts)


def _of(value: Any, kind: type, other: type | None = None) -> Any:
    if not isinstance(value, kind) or (other is not None and isinstance(value, other)):
        raise Misfit(f"{value!r:.50} is no {kind.__name__}")
    return value


def _checked(value: Any, isRight: bool) -> Any:
    if not isRight:
        raise Misfit(f"{value!r:.50} is out of range")
    return value


def _text(value: Any) -> str:
    found: str = _of(value, str, Token)
    return str(_checked(found, not any("\ud800" <= each <= "\udfff" for each in found)))


def _string(value: Any, doubts: list[str]) -> Any:
    if isinstance(value, str):
        return str(value) if isinstance(value, Token) else _text(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    return AnyValue() if isinstance(value, msgpack.Timestamp) else JsonText(value)


def _float(value: Any, dataType: pa.DataType, doubts: list[str]) -> float:
    if isinstance(value, bool) or not isinstance(value, Token | int | float):
        raise Misfit(f"{value!r:.50} is no number")
    try:
        found = float(value)
    except OverflowError:
        raise Misfit("it is too large") from None
    if isinstance(value, Token) and not float(value) and re.fullmatch(r"-\d+", value):
        return 0.0
    if not isinstance(value, float) and math.isinf(found):
        doubts.append("a number too large for a double")
    if dataType == pa.float32():
        _checked(value, not math.isfinite(found) or abs(found) <= 3.4028234663852886e38)
        return float(np.float32(found))
    return found


def _decimal(value: Any, dataType: pa.DataType, doubts: list[str]) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Misfit(f"{value!r:.50} is no number")
    if isinstance(value, float):
        doubts.append("a float has no exact digits")
    context = Context(prec=dataType.precision, traps=[InvalidOperation, Inexact])
    try:
        found = Decimal(repr(value) if isinstance(value, float) else value)
        return context.quantize(_checked(found, found.is_finite()), Decimal((0, (1,), -dataType.scale)))
    except (InvalidOperation, Inexact):
        raise Misfit(f"{value!r:.50} is no {dataType}") from None


def _moment(value: Any, doubts: list[str]) -> int:
    if isinstance(value, msgpack.Timestamp):
        found = value.seconds * 1_000_000 + value.nanoseconds // 1000
    else:
        match = _MOMENT.fullmatch(_of(value, str, Token))
        if match is None:
            raise Misfit(f"{value!r:.50} is no time")
        days, clock, fraction, _, sign, hours, minutes = match.groups()
        naive = datetime.fromisoformat(f"{days}T{clock}").replace(tzinfo=UTC)
        east = (int(hours) * 60 + int(minutes)) * (-1 if sign == "-" else 1) if sign else 0
        since = naive - datetime(1970, 1, 1, tzinfo=UTC)
        found = since // timedelta(microseconds=1) - east * 60_000_000 + int(float(fraction or 0) * 1_000_000)
    if not _LOWEST + 1 <= found < _HIGHEST:
        doubts.append("a time at or beyond the bounds of the years 1 to 9999")
    return Near(found)


def _binary(value: Any, doubts: list[str]) -> Any:
    if isinstance(value, bytes):
        return value
    text = _text(value)
    try:
        # Only JSON has bytes as base64; the caller compares both.
        return text.encode(), b64decode(text, validate=True)
    except ValueError:
        doubts.append("a text that is no base64")
        return (text.encode(),)


def _isDoubtful(value: Any) -> bool:
    if isinstance(value, Pairs):
        return any(not isinstance(key, str) or _isDoubtful(key) or _isDoubtful(each) for key, each in value)
    if isinstance(value, list):
        return any(map(_isDoubtful, value))
    if isinstance(value, Token):
        return not math.isfinite(float(value))
    if isinstance(value, msgpack.Timestamp):
        return not -62_135_596_800 <= value.seconds < 253_402_300_799
    return isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value)
