"""Reads the rows of a table with each engine that is installed, by what the table's format says alone, and with our own
queries in SQL.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from tests.pipeline.campaign.changes import PATIENCE
from tests.pipeline.end_to_end import ROOT

#: A row: journal, offset, topic, value, and the columns of the payload.
COLUMNS = ("journal", "offset", "topic", "value", "a", "b")
Row = tuple[Any, ...]


def rowsBy(table: str, tableFormat: str, width: int, hasSpark: bool) -> Iterator[tuple[str, list[Row]]]:
    """Yield the name of each engine with so many columns of the rows that it finds, by journal and offset."""
    for name, found in {"parquet": _parquet, "delta": _delta, "iceberg": _iceberg}[tableFormat](table):
        columns = [found.column(each).to_pylist() for each in COLUMNS[:width]]
        yield name, _sorted(zip(*columns, strict=True))
    yield "fleximq sql", _asked("fleximq", table, width, "--json")
    if hasSpark:
        # Spark itself, by our list of files.
        yield (
            "spark",
            _asked("fleximq.pipeline", table, width, "--format", "json", "--no-cache", "--master", "local[2]"),
        )


def _sorted(rows: Iterator[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0], row[1]))


def _asked(module: str, table: str, width: int, *words: str) -> list[Row]:
    """Return the answer of a command of ours, in a process of its own."""
    lake, _, name = table.rpartition("/")
    columns = ", ".join(f'"{each}"' if each != "value" else "hex(value) as value" for each in COLUMNS[:width])
    query = f"select {columns} from {name}"
    command = [sys.executable, "-m", module, "sql", "--lake", lake, *words, query]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    if done.returncode:
        raise AssertionError(f"{module} sql ended with {done.returncode}: {done.stderr.decode()[-1000:]}")
    rows = map(json.loads, done.stdout.splitlines())
    found = ({**row, "value": bytes.fromhex(row["value"])} for row in rows)
    return _sorted(tuple(row[each] for each in COLUMNS[:width]) for row in found)


def _parquet(table: str) -> Iterator[tuple[str, pa.Table]]:
    pattern = f"{table}/**/*.parquet"
    if find_spec("polars"):
        import polars

        yield "polars", polars.read_parquet(pattern, hive_partitioning=True, missing_columns="insert").to_arrow()
    if find_spec("duckdb"):
        import duckdb

        with duckdb.connect() as connection:
            if "://" in table:
                import fsspec

                connection.register_filesystem(fsspec.filesystem(table.partition("://")[0]))
            query = f"select * from read_parquet('{pattern}', hive_partitioning=true, union_by_name=true)"
            yield "duckdb", connection.sql(query).to_arrow_table()


def _delta(table: str) -> Iterator[tuple[str, pa.Table]]:
    import deltalake

    opened = deltalake.DeltaTable(table)
    yield "deltalake", opened.to_pyarrow_table()
    yield from _byArrow(opened.to_pyarrow_dataset())
    if find_spec("polars"):
        import polars

        yield "polars", polars.scan_delta(table).collect().to_arrow()


def _iceberg(table: str) -> Iterator[tuple[str, pa.Table]]:
    from fleximq.pipeline.lake.iceberg.catalogs import located

    catalog, name = located(table)
    opened = catalog.load_table(name)
    rows = opened.scan().to_arrow()
    yield "pyiceberg", rows
    yield from _byArrow(rows)
    if find_spec("polars"):
        import polars

        yield "polars", polars.scan_iceberg(opened).collect().to_arrow()


def _byArrow(opened: Any) -> Iterator[tuple[str, pa.Table]]:
    if find_spec("duckdb"):
        import duckdb

        with duckdb.connect() as connection:
            connection.register("opened", opened)
            yield "duckdb", connection.sql("select * from opened").to_arrow_table()
