"""Converts rows of Spark to records for the broker, in groups of about the size of one request. Types that MessagePack
lacks become text: times and dates in ISO 8601, decimals with all their digits. This file is hot: a row with a binary
value costs 0.2 us here, one with a struct of five fields 3 us.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fleximq.limits import MEBIBYTE
from fleximq.pipeline.errors import RowRefused
from fleximq.values.message import Content, Message
from fleximq.values.records import contentOf

#: Maximum records of one request, set by the broker.
RECORDS = 50_000
#: Approximate size of a record in addition to topic, value and headers.
_AROUND = 24

#: Content types by dialect. A message of the broker itself may have any, mostly MessagePack.
_BYTES = contentOf(Message(b"", Content.BYTES))
_TEXT, _PACKED = contentOf(Message(b"", Content.TEXT)), contentOf(Message(b"", Content.MESSAGEPACK))
_CONTENTS = {"broker": _PACKED, "fleximq": _PACKED, "minimq": _TEXT, "identity": _TEXT}

_BYTES_TYPES = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)

Record = dict[str, Any]
_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """Converts rows to records, in groups of about ``portion`` bytes, at most one record more. ``topic`` is that of
    rows without one. ``packed``: the bytes of ``value`` are MessagePack already; ``original``: they are payloads as the
    source reads them, to publish unchanged; the column ``content``, or else ``dialect``, has their type.
    """

    topic: str | None = None
    packed: bool = False
    portion: int = MEBIBYTE
    original: bool = False

    def portions(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[Record]]:
        """Yield rows as groups of records: maps with ``topic``, ``value`` (an original one has ``payload`` and the code
        of its ``content`` instead) and perhaps ``headers``. Raises RowRefused for a row without a topic, or a value
        that is no MessagePack although it should.
        """
        held: list[Record] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            records, sizes = self._records(batch)
            ends = np.cumsum(sizes)
            start = before = 0
            while start < len(records):
                full = int(np.searchsorted(ends, before + self.portion - size)) + 1
                stop = min(full, len(records), start + RECORDS - len(held))
                held += records[start:stop]
                size += int(ends[stop - 1]) - before
                start, before = stop, int(ends[stop - 1])
                if size >= self.portion or len(held) >= RECORDS:
                    yield held
                    held, size = [], 0
        if held:
            yield held

    def _records(self, batch: pa.RecordBatch) -> tuple[list[Record], npt.NDArray[np.int64]]:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        values, sizes = self._values(columns["value"])
        topics, topic = self._topics(columns.get("topic"), batch.num_rows)
        if topics is None:
            records = [{"topic": topic, "value": value} for value in values]
            sizes = sizes + len(topic)
        else:
            records = [{"topic": each, "value": value} for each, value in zip(topics, values, strict=True)]
            sizes = sizes + np.fromiter(map(len, topics), np.int64, len(topics))
        if self.original:
            contents = contentsOf(columns.get("content"), columns.get("dialect"), batch.num_rows)
            for record, content in zip(records, contents, strict=True):
                record["payload"] = record.pop("value") or b""
                record["content"] = content
        for place, headers in _headers(columns.get("headers"), columns.get("key")):
            records[place]["headers"] = headers
            sizes[place] += _packedSize(headers)
        return records, sizes

    def _topics(self, column: pa.Array | None, number: int) -> tuple[list[str] | None, str]:
        if column is None or column.null_count:
            if self.topic is None:
                raise RowRefused("a row has no topic: its column 'topic' is null, and there is no option 'topic'")
            if column is None or column.null_count == number:
                return None, self.topic
            column = pc.fill_null(column, self.topic)
        names: list[str] = column.to_pylist()
        first = names[0]
        return (None, first) if names.count(first) == number else (names, "")

    def _values(self, column: pa.Array) -> tuple[list[Any], npt.NDArray[np.int64]]:
        values = valuesOf(column)
        if not any(isBytes(column.type) for isBytes in _BYTES_TYPES):
            return values, np.fromiter(map(_packedSize, values), np.int64, len(values)) + _AROUND
        sizes = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64) + _AROUND
        return ([_unpacked(value) for value in values] if self.packed else values), sizes


def contentsOf(contents: pa.Array | None, dialects: pa.Array | None, number: int) -> list[int]:
    """Return the codes of payloads' content types, from a column or else by their dialects."""
    if dialects is None or dialects.null_count == number:
        guessed = pa.repeat(pa.scalar(_BYTES, pa.int32()), number)
    else:
        encoded = dialects.cast(pa.string()).dictionary_encode()
        codes = [_CONTENTS.get(name, _BYTES) for name in encoded.dictionary.to_pylist()]
        guessed = pc.fill_null(pa.array(codes, pa.int32()).take(encoded.indices), _BYTES)
    found = guessed if contents is None else pc.coalesce(contents.cast(pa.int32()), guessed)
    known: list[int] = found.to_pylist()
    return known


def _packedSize(value: Any) -> int:
    try:
        return len(msgpack.packb(value))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RowRefused(f"a row cannot be packed as MessagePack: {error}") from error


def _unpacked(value: bytes | None) -> Any:
    if not value:
        return None
    try:
        return msgpack.unpackb(value, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RowRefused(f"the value of a row is no MessagePack, as 'valueFormat' says it is: {error}") from error


def _headers(column: pa.Array | None, keys: pa.Array | None) -> Iterator[tuple[int, Record]]:
    """Yield the indexes of rows that have headers or a key, with both in one map."""
    columns = [None if each is None or each.null_count == len(each) else each for each in (column, keys)]
    if columns == [None, None]:
        return
    number = max(len(each) for each in columns if each is not None)
    maps, ids = ([None] * number if each is None else valuesOf(each) for each in columns)
    for place, (pairs, key) in enumerate(zip(maps, ids, strict=True)):
        headers = pairs or {}
        if key is not None:
            headers["key"] = key
        if headers:
            yield place, headers


def valuesOf(column: pa.Array) -> list[Any]:
    """Return the values of a column as MessagePack has them; None for a null."""
    if pa.types.is_struct(column.type) and not column.null_count:
        # Several times as fast as one by one.
        names = [field.name for field in column.type]
        return [dict(zip(names, row, strict=True)) for row in zip(*map(valuesOf, column.flatten()), strict=True)]
    values: list[Any] = column.to_pylist()
    convert = converter(column.type)
    return values if convert is None else [_orNone(convert, value) for value in values]


def converter(dataType: pa.DataType) -> _Convert | None:
    """Return a function that converts values of this type to types of MessagePack; None if no conversion is needed."""
    if pa.types.is_map(dataType):
        key, item = converter(dataType.key_type), converter(dataType.item_type)
        if key is None and item is None:
            return dict
        return lambda pairs: {key(name) if key else name: _orNone(item, each) if item else each for name, each in pairs}
    if pa.types.is_struct(dataType):
        fields = {field.name: made for field in dataType if (made := converter(field.type)) is not None}
        return partial(_structConverted, fields) if fields else None
    if pa.types.is_list(dataType) or pa.types.is_large_list(dataType) or pa.types.is_fixed_size_list(dataType):
        made = converter(dataType.value_type)
        return None if made is None else lambda values: [_orNone(made, value) for value in values]
    if pa.types.is_timestamp(dataType):
        return _isoTime
    if pa.types.is_date(dataType):
        return datetime.date.isoformat
    if pa.types.is_decimal(dataType) or pa.types.is_time(dataType):
        return str
    if pa.types.is_duration(dataType):
        return lambda value: round(value / datetime.timedelta(microseconds=1))
    return None


def _orNone(convert: _Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _structConverted(fields: Mapping[str, _Convert], values: dict[str, Any]) -> dict[str, Any]:
    for name, convert in fields.items():
        if values[name] is not None:
            values[name] = convert(values[name])
    return values


def _isoTime(value: datetime.datetime) -> str:
    """Return a time in ISO 8601, with microseconds, and with a Z if it is in UTC."""
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
