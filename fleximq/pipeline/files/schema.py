"""The columns of the source, with the names of Spark's Kafka source where it has them too."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from fleximq.pipeline.payloads.ddl import typeWritten

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
COLUMNS = tuple(SCHEMA.names)
#: All columns, those at the end only if they are named.
_ALL = SCHEMA.append(pa.field("content", pa.int32()))
ALL_COLUMNS = tuple(_ALL.names)


def schemaOf(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, in this order."""
    return pa.schema([_ALL.field(name) for name in columns])


def ddlOf(columns: Sequence[str], made: Mapping[str, pa.DataType] | None = None) -> str:
    """Return the schema of these columns as Spark's DDL; ``made``: types of additional columns."""
    types = {**{field.name: field.type for field in _ALL}, **(made or {})}
    return ", ".join(f"{name} {typeWritten(types[name])}" for name in columns)
