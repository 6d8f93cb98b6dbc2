"""The result of a query in types of Arrow that hold each value of DuckDB exactly: numbers of 128 bits are decimals,
times are in microseconds, and values of types that Arrow lacks are DuckDB's texts.
"""

from collections.abc import Iterator
from typing import cast

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from fleximq.pipeline.query.table_names import quoted

_NUMBERS = {"boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint"}
#: Types that Arrow has too.
_SAME = _NUMBERS | {"float", "double", "decimal", "varchar", "blob", "enum", "null"}
_TIMES = {"date", "timestamp", "timestamp with time zone"}
_HUGE = {"hugeint", "uhugeint"}
_HUGE_NUMBER = pa.decimal256(39, 0)
#: The name of the result as a view; no topic can have it.
_VIEW = "#"


def exactRows(relation: duckdb.DuckDBPyRelation, rows: int) -> pa.RecordBatchReader:
    """Return the rows of a query in batches; ``rows`` is their maximum number in one."""
    types = relation.types
    texts = [_written(each) for each in types]
    if texts == [str(each) for each in types]:
        return relation.to_arrow_reader(rows)
    # By numbers, since two columns may have one name.
    columns = [f"c{number}" for number in range(len(types))]
    chosen = [
        f"{column}::{text} AS {quoted(name)}"
        for column, text, name in zip(columns, texts, relation.columns, strict=True)
    ]
    query = f'SELECT {", ".join(chosen)} FROM "{_VIEW}" AS result({", ".join(columns)})'
    reader = cast("duckdb.DuckDBPyRelation", relation.query(_VIEW, query)).to_arrow_reader(rows)
    schema = pa.schema([_withHuge(field, each) for field, each in zip(reader.schema, types, strict=True)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.record_batch(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _written(found: DuckDBPyType) -> str:
    """Return the type to which DuckDB casts values of a type before Arrow has them, as SQL."""
    kind = found.id
    if kind in _SAME or kind in _TIMES:
        return str(found)
    if kind in ("timestamp_s", "timestamp_ms"):
        return "TIMESTAMP"
    if kind in ("list", "array"):
        return f"{_written(_inner(found)[0][1])}[]"
    if kind == "struct":
        return f"STRUCT({', '.join(f'{quoted(name)} {_written(each)}' for name, each in _inner(found))})"
    if kind == "map":
        return f"MAP({', '.join(_written(each) for _, each in _inner(found))})"
    if kind == "union" and all(each.id in _SAME for _, each in _inner(found)):
        return str(found)
    return "VARCHAR"


def _inner(found: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    return [(name, each) for name, each in found.children if isinstance(each, DuckDBPyType)]


def _withHuge(field: pa.Field, found: DuckDBPyType) -> pa.Field:
    """Return a field with numbers in the place of the texts of huge ones."""
    kind, dataType = found.id, field.type
    if kind in _HUGE:
        return field.with_type(_HUGE_NUMBER)
    if kind not in ("list", "array", "struct", "map"):
        return field
    fields = [dataType.field(number) for number in range(dataType.num_fields)]
    if kind == "map":
        fields = [dataType.key_field, dataType.item_field]
    made = [_withHuge(each, own) for each, (_, own) in zip(fields, _inner(found), strict=True)]
    if kind == "struct":
        return field.with_type(pa.struct(made))
    return field.with_type(pa.map_(*made) if kind == "map" else pa.list_(*made))
