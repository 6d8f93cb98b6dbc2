"""The readers of lake tables, as users call them: each returns all rows, and the offsets that a filter selects."""

import atexit
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import cache, reduce
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import polars
import polars.selectors
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyiceberg import expressions
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fleximq.pipeline.query.tables import lakeTable
from tests.pages import ROOT
from tests.pipeline.lake.hostile.questions import Question, Source
from tests.pipeline.session import sharedSession

#: The rows of a table; and, for each question, the offsets that a filter selects, None if the reader cannot ask it.
Answer = tuple[pa.Table, list[list[int] | None]]
Reader = Callable[[Source, Sequence[Question]], Answer]


def spark(source: Source, questions: Sequence[Question]) -> Answer:
    """Read as ``fleximq-pipeline sql --lake`` does."""
    frame = lakeTable(sharedSession(), source.table)
    found: list[list[int]] = [[] for _ in questions]
    if questions:
        parts = [
            frame.where(_sparkFilter(each)).select(F.lit(place).alias("place"), "offset")
            for place, each in enumerate(questions)
        ]
        for row in reduce(DataFrame.unionAll, parts).collect():
            found[row.place].append(row.offset)
    return frame.toArrow(), [*found]


def _sparkFilter(question: Question) -> Column:
    column = F.col("`" + question.column.replace("`", "``") + "`")
    isDate = pa.types.is_date(question.type) and question.value is not None
    # Python's own days before 1000 cannot be passed on to Java.
    value: Column = F.lit(question.value.isoformat() if isDate else question.value)
    if isDate:
        value = value.cast("date")
    elif pa.types.is_timestamp(question.type):
        value = F.timestamp_micros(value)
    elif pa.types.is_float32(question.type):
        value = value.cast("float")
    choices = {"greater": lambda: column > value, "equal": lambda: column == value, "null": column.isNull}
    return choices[question.kind]()


def polarsReader(source: Source, questions: Sequence[Question]) -> Answer:
    """Read lazily, so that filters are pushed down."""
    if source.format == "delta":
        frame = polars.scan_delta(DeltaTable(source.table))
    elif source.format == "iceberg":
        frame = polars.scan_iceberg(source.iceberg)
    else:
        with open(f"{source.table}/_common_metadata", "rb") as common:
            schema = polars.read_parquet_schema(common)
        frame = polars.scan_parquet(
            source.files,
            schema=schema,
            missing_columns="insert",
            glob=False,
            cast_options=polars.ScanCastOptions(missing_struct_fields="insert"),
        )
    asked = [frame.filter(_polarsFilter(each)).select("offset") for each in questions]
    return frame.collect().to_arrow(), [each.collect()["offset"].to_list() for each in asked]


def _polarsFilter(question: Question) -> polars.Expr:
    column = polars.selectors.by_name(question.column).as_expr()
    value = polars.lit(question.value)
    if pa.types.is_timestamp(question.type):
        value = value.cast(polars.Datetime("us", "UTC"))
    elif pa.types.is_float32(question.type):
        value = value.cast(polars.Float32)
    choices = {"greater": lambda: column > value, "equal": lambda: column == value, "null": column.is_null}
    return choices[question.kind]()


def deltalake(source: Source, questions: Sequence[Question]) -> Answer:
    """Read with deltalake, whose filters are PyArrow's."""
    opened = DeltaTable(source.table).to_pyarrow_dataset()

    def asked(question: Question) -> list[int]:
        column = pc.field(question.column)
        value = pa.scalar(question.value, question.type)
        choices = {"greater": lambda: column > value, "equal": lambda: column == value, "null": column.is_null}
        found: list[int] = opened.to_table(columns=["offset"], filter=choices[question.kind]())["offset"].to_pylist()
        return found

    return opened.to_table(), [asked(each) for each in questions]


def pyiceberg(source: Source, questions: Sequence[Question]) -> Answer:
    """Read with PyIceberg."""

    def asked(question: Question) -> list[int] | None:
        if "." in question.column:
            # A dot is a path in PyIceberg's filters.
            return None
        term = expressions.Reference(question.column)
        if question.value != question.value:
            if question.kind == "greater":
                return None
            chosen: Any = expressions.IsNaN(term=term)
        elif question.kind == "null":
            chosen = expressions.IsNull(term=term)
        else:
            chosen = {"greater": expressions.GreaterThan, "equal": expressions.EqualTo}[question.kind](
                term, question.value
            )
        found: list[int] = source.iceberg.scan(chosen, selected_fields=("offset",)).to_arrow()["offset"].to_pylist()
        return found

    return source.iceberg.scan().to_arrow(), [asked(each) for each in questions]


def duckdb(source: Source, questions: Sequence[Question]) -> Answer:
    """Read in a process of its own, as DuckDB's library reports leaks at its end; it is started once."""
    return _duckdb().answer(source, questions)


class _DuckDB:
    """The process with DuckDB; values are pickled."""

    def __init__(self) -> None:
        words = [sys.executable, "-m", "tests.pipeline.lake.hostile.duckdb_reader"]
        self._process = Popen(words, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd=ROOT)
        atexit.register(self._end)

    def answer(self, source: Source, questions: Sequence[Question]) -> Answer:
        assert self._process.stdin is not None and self._process.stdout is not None
        pickle.dump((source, questions), self._process.stdin)
        self._process.stdin.flush()
        found: Answer | str = pickle.load(self._process.stdout)
        if isinstance(found, str):
            raise RuntimeError(found)
        return found

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


_duckdb = cache(_DuckDB)


#: The readers of each format.
READERS: dict[str, dict[str, Reader]] = {
    "parquet": {"spark": spark, "duckdb": duckdb, "polars": polarsReader},
    "delta": {"spark": spark, "duckdb": duckdb, "polars": polarsReader, "deltalake": deltalake},
    "iceberg": {"spark": spark, "duckdb": duckdb, "polars": polarsReader, "pyiceberg": pyiceberg},
}
