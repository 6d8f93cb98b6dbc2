"""The keys of rows as bytes, and the records that remove the row of their key.

Values of a column are compared by their text, so that the key of an empty message can name the row that it removes.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.payloads.dialect_payloads import packedAt

#: The column of the message's own key.
MESSAGE_KEY = "key"
#: Payloads longer than this are no tombstones: they are not even looked at.
_LONGEST = 32
#: The MessagePack values that count as empty: nil, and each form of an empty str or bin.
NOTHING = (b"", b"\xc0", b"\xa0", b"\xd9\0", b"\xda\0\0", b"\xdb\0\0\0\0", b"\xc4\0", b"\xc5\0\0", b"\xc6\0\0\0\0")
#: The formats of payloads in which it is a removal as well.
JSON = ("json", "json-schema")
#: JSON's null, and the same as a MessagePack str or bin.
NULL = b"null"
NULLS = tuple(first + NULL for first in (b"\xa4", b"\xd9\4", b"\xc4\4"))


def keysOf(rows: pa.RecordBatch | pa.Table, column: str) -> pa.BinaryArray:
    """Return the key of each row in this column, null where it has none; all are null if the column is missing, or
    is a list, map or struct.
    """
    if column not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.binary())
    found = rows.column(column)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    return keysIn(found)


def keysIn(values: pa.Array) -> pa.BinaryArray:
    """Return values of any type as keys: bytes as they are, others as text; all are null for lists, maps or structs."""
    if pa.types.is_nested(values.type):
        return pa.nulls(len(values), pa.binary())
    if pa.types.is_floating(values.type):
        # Both zeros are one number.
        values = pc.add(values, pa.scalar(0.0, values.type))
    if pa.types.is_timestamp(values.type):
        # Spark has them in the time zone of its session.
        values = values.cast(pa.timestamp("us", "UTC"))
    return values if values.type == pa.binary() else values.cast(pa.string()).cast(pa.binary())


def tombstonesIn(records: pa.RecordBatch, decode: str) -> pa.BooleanArray:
    """Tell which records of the source have an empty payload, or null, in a table with this format of payloads."""
    values = records.column("value")
    short = pc.fill_null(pc.less_equal(pc.binary_length(values), _LONGEST), True).to_numpy(zero_copy_only=False)
    found = np.zeros(records.num_rows, bool)
    places = np.flatnonzero(short)
    if not len(places):
        return pa.array(found)
    few = records.take(pa.array(places))
    packed = None
    if decode != "messagepack":
        # Of messages in another format, those of FlexiMQ clients may be MessagePack.
        packed = packedAt("json", few.column("dialect"), few.column("content"))
    isPacked = np.full(len(places), decode == "messagepack") if packed is None else packed.to_numpy(False)
    isJson = decode in JSON
    for place, payload, msgpack in zip(places, few.column("value").to_pylist(), isPacked, strict=True):
        found[place] = not payload or (_isPackedNothing(payload, isJson) if msgpack else isJson and _isNull(payload))
    return pa.array(found)


def _isNull(payload: bytes) -> bool:
    return payload.strip(b" \t\r\n") in (b"", NULL)


def _isPackedNothing(payload: bytes, isJson: bool) -> bool:
    return payload in NOTHING or (isJson and payload in NULLS)
