"""Writes the result of a query as an aligned table, CSV, or lines of JSON. Bytes become text if they are UTF-8 or one
MessagePack value (then its JSON), else hexadecimal; with a column ``dialect``, that of ``value`` decides which is tried
first.
"""

import csv
import json
import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from typing import Any, TextIO, TypeAlias

import pyarrow as pa

from fleximq.values.printable import jsonLine, printable
from fleximq.wire.messagepack_json import toJson

OUTPUT_FORMATS = ("table", "csv", "json")
#: Maximum terminal columns of one value in a table.
WIDEST = 80
_NULL = "NULL"
_EPOCH = datetime(1970, 1, 1)
#: Microseconds of a day, and days of 400 years.
_DAY, _PERIOD = 86_400_000_000, 146_097
_NUMBERS: tuple[Callable[[pa.DataType], bool], ...] = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


#: Rows to show, which are taken one batch at a time if they are a stream.
Rows: TypeAlias = pa.Table | pa.RecordBatchReader


def show(rows: Rows, outputFormat: str, out: TextIO) -> None:
    """Write all rows in one of :data:`OUTPUT_FORMATS`; of a stream, a table needs all in memory."""
    {"table": _table, "csv": _csv, "json": _json}[outputFormat](rows, out)


def textOf(written: bytes, packed: bool = False) -> str:
    """Return bytes as text; ``packed``: MessagePack is more likely than text."""
    for attempt in (_packed, _utf8) if packed else (_utf8, _packed):
        with suppress(ValueError):
            found = attempt(written)
            if found is not None:
                return found
    return written.hex()


def _utf8(written: bytes) -> str | None:
    text = written.decode()
    return text if all(each.isprintable() or each in "\t\r\n" for each in text) else None


def _packed(written: bytes) -> str | None:
    return toJson(written).decode() if written else None


def _rows(table: Rows) -> Iterator[list[Any]]:
    """Yield the rows as JSON values, except for bytes, which are texts already, and numbers, which stay exact."""
    names = table.schema.names
    dialects = names.index("dialect") if names.count("dialect") == 1 else None
    types = [_plain(field.type) for field in table.schema]
    for batch in table.to_batches(max_chunksize=10_000) if isinstance(table, pa.Table) else table:
        columns = [column.cast(_counted(column.type)).to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            isPacked = dialects is not None and values[dialects] == "fleximq"
            yield [
                textOf(value, isPacked and name == "value") if isinstance(value, bytes) else _value(value, dataType)
                for value, name, dataType in zip(values, names, types, strict=True)
            ]


def _plain(dataType: pa.DataType) -> pa.DataType:
    return dataType.value_type if pa.types.is_dictionary(dataType) else dataType


def _counted(dataType: pa.DataType) -> pa.DataType:
    """Return a type with numbers for times and days, since Python's dates have only the years 1 to 9999."""
    if pa.types.is_timestamp(dataType):
        return pa.int64()
    if pa.types.is_date32(dataType):
        return pa.int32()
    if pa.types.is_struct(dataType):
        return pa.struct([field.with_type(_counted(field.type)) for field in dataType])
    if pa.types.is_list(dataType):
        return pa.list_(_counted(dataType.value_type))
    return pa.map_(_counted(dataType.key_type), _counted(dataType.item_type)) if pa.types.is_map(dataType) else dataType


def _value(value: Any, dataType: pa.DataType) -> Any:
    """Return a value of a column that was cast to the counted type."""
    if value is None:
        return None
    if pa.types.is_timestamp(dataType) or pa.types.is_date32(dataType):
        return _moment(value, dataType)
    if isinstance(value, bool | int | float | str | Decimal):
        return value
    if isinstance(value, bytes):
        return textOf(value)
    if pa.types.is_struct(dataType):
        return {name: _value(value[name], dataType.field(name).type) for name in value}
    if pa.types.is_map(dataType):
        return {str(_value(key, dataType.key_type)): _value(each, dataType.item_type) for key, each in value}
    return [_value(each, dataType.value_type) for each in value] if pa.types.is_list(dataType) else str(value)


def _moment(value: int, dataType: pa.DataType) -> str:
    """Return a day, or a time in microseconds, in ISO 8601; outside of the years 1 to 9999 as DuckDB writes it."""
    isDay = pa.types.is_date32(dataType)
    try:
        if isDay:
            return (_EPOCH + timedelta(days=value)).date().isoformat()
        moment = _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return _distant(value, isDay, dataType)
    precision = "microseconds" if value % 1000 else "milliseconds"
    return moment.isoformat(timespec=precision) + ("Z" if dataType.tz is not None else "")


def _distant(value: int, isDay: bool, dataType: pa.DataType) -> str:
    largest = (1 << (31 if isDay else 63)) - 1
    if abs(value) == largest:
        return "infinity" if value > 0 else "-infinity"
    day, time = (value, 0) if isDay else divmod(value, _DAY)
    # The calendar repeats itself every 400 years.
    periods, rest = divmod(day, _PERIOD)
    date = _EPOCH + timedelta(days=rest, microseconds=time)
    year = date.year + 400 * periods
    text = f"{year if year > 0 else 1 - year:04d}-{date:%m-%d}{'' if year > 0 else ' (BC)'}"
    if isDay:
        return text
    fraction = f".{date.microsecond:06d}".rstrip("0.")
    return f"{text} {date:%H:%M:%S}{fraction}{'+00' if dataType.tz is not None else ''}"


def _exact(value: Any) -> Any:
    """Return a value that ``json`` can write: without decimals, and without NaN, which others could not read."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _exact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_exact(each) for each in value]
    return value


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return json.dumps(_exact(value), ensure_ascii=False)
    return str(value)


def _json(table: Rows, out: TextIO) -> None:
    names = table.schema.names
    for row in _rows(table):
        out.write(jsonLine(dict(zip(names, map(_exact, row), strict=True)), (",", ":")) + "\n")


def _csv(table: Rows, out: TextIO) -> None:
    """Write CSV as PostgreSQL does: null is empty, and an empty text is ``""``."""
    csv.writer(out, lineterminator="\n").writerow(table.schema.names)
    for row in _rows(table):
        line = ",".join("" if value is None else _quoted(_cell(value)) for value in row) + "\n"
        out.write(printable(line, lines=True) if out.isatty() else line)


def _quoted(text: str) -> str:
    if text and not set(text) & set(',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def _table(table: Rows, out: TextIO) -> None:
    numbers = [any(isNumber(_plain(field.type)) for isNumber in _NUMBERS) for field in table.schema]
    aligned(table.schema.names, [[_tableCell(value) for value in row] for row in _rows(table)], numbers, out)


def _tableCell(value: Any) -> str:
    if value is None:
        return _NULL
    if value == _NULL:
        return f"'{value}'"
    text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in _cell(value))
    if widthOf(text) <= WIDEST:
        return text
    ends = accumulate(map(widthOf, text))
    return text[: sum(end < WIDEST for end in ends)] + "…"


def widthOf(text: str) -> int:
    """Return the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text if not unicodedata.combining(each))
    return wide + sum(not unicodedata.combining(each) for each in text)


def aligned(names: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool], out: TextIO) -> None:
    """Write cells below their names; numbers are right-aligned, others left-aligned."""
    widths = [max([widthOf(name), *(widthOf(row[at]) for row in rows)]) for at, name in enumerate(names)]

    for cells in (names, ["-" * width for width in widths], *rows):
        padded = []
        for cell, width, isNumber in zip(cells, widths, numbers, strict=True):
            space = " " * (width - widthOf(cell))
            padded.append(space + cell if isNumber else cell + space)
        out.write("  ".join(padded).rstrip() + "\n")
