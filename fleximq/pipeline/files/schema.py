"""The columns of the source, with the names of Spark's Kafka source where it has them too."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

#: All default columns in order, for Arrow.
SCHEMA = pa.schema(
    [
        ("journal", pa.string()),
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("publisher", pa.int64()),
        ("dialect", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
#: The same for Spark.
DDL = {
    "journal": "STRING",
    "topic": "STRING",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "publisher": "BIGINT",
    "dialect": "STRING",
    "headers": "MAP<STRING, STRING>",
    "key": "BINARY",
    "value": "BINARY",
}
COLUMNS = tuple(DDL)
#: Columns that are read only if named, for Arrow and for Spark.
_NAMED = pa.schema([("content", pa.int32())])
_NAMED_DDL = {"content": "INT"}
#: All columns that can be named.
ALL_COLUMNS = (*COLUMNS, *_NAMED_DDL)
_NO_MORE: Mapping[str, str] = MappingProxyType({})


def schemaOf(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, in this order."""
    return pa.schema([(SCHEMA if name in DDL else _NAMED).field(name) for name in columns])


def ddlOf(columns: Sequence[str], made: Mapping[str, str] = _NO_MORE) -> str:
    """Return the schema of these columns as Spark's DDL; ``made``: types of additional columns."""
    types = {**DDL, **_NAMED_DDL, **made}
    return ", ".join(f"{name} {types[name]}" for name in columns)
