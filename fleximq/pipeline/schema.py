"""The columns of what is read. Names are those of Spark's Kafka source where it has them."""

from collections.abc import Sequence

import pyarrow as pa

#: All columns in their order, as Arrow has them.
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


def schemaOf(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, in this order."""
    return pa.schema([SCHEMA.field(name) for name in columns])


def ddlOf(columns: Sequence[str]) -> str:
    """Return the schema of these columns as Spark reads it."""
    return ", ".join(f"{name} {DDL[name]}" for name in columns)
