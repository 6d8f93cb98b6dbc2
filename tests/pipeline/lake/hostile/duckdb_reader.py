"""Reads tables with DuckDB, one after the other; questions and answers are pickled on standard input and output."""

import pickle
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from tests.pipeline.lake.hostile.questions import Question, Source


def read(source: Source, questions: Sequence[Question]) -> tuple[pa.Table, list[list[int]]]:
    """Return all rows, and the offsets that each filter selects."""
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    if source.format == "parquet":
        # Each path is a pattern.
        files = ", ".join(_quoted(re.sub(r"[*?[]", r"[\g<0>]", path)) for path in source.files)
        relation = f"read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
    else:
        relation = "opened"
        isDelta = source.format == "delta"
        opened = DeltaTable(source.table).to_pyarrow_dataset() if isDelta else source.iceberg.scan().to_arrow()
        connection.register(relation, opened)

    def asked(question: Question) -> list[int]:
        found = connection.execute(f'select "offset" from {relation} where {_filter(question)}').fetchall()
        return [offset for (offset,) in found]

    return connection.execute(f"select * from {relation}").to_arrow_table(), [asked(each) for each in questions]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _filter(question: Question) -> str:
    column = '"' + question.column.replace('"', '""') + '"'
    if question.kind == "null":
        return f"{column} is null"
    return f"{column} {'>' if question.kind == 'greater' else '='} {_literal(question.value, question.type)}"


def _literal(value: Any, dataType: pa.DataType) -> str:
    if pa.types.is_timestamp(dataType):
        return f"make_timestamptz({value})"
    if isinstance(value, bool | int | Decimal):
        return str(value)
    if isinstance(value, float):
        return f"'{value}'::{'FLOAT' if pa.types.is_float32(dataType) else 'DOUBLE'}"
    return _quoted(str(value))


if __name__ == "__main__":
    with suppress(EOFError):
        while True:
            asked = pickle.load(sys.stdin.buffer)
            try:
                answer: object = read(*asked)
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.buffer.flush()
