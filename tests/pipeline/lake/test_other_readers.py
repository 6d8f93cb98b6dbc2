"""Readers of each format find the same rows in each layout: DuckDB, polars, deltalake, PyIceberg and Spark."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.pages import ROOT
from tests.pipeline.installed import missing as skip
from tests.pipeline.lake.test_layouts import LayoutCase

_NEEDED = ("duckdb", "polars", "deltalake", "pyiceberg", "sqlalchemy")
if not skip and (absent := [name for name in _NEEDED if find_spec(name) is None]):
    skip = f"{absent[0]} is not installed"

if not skip:
    import polars
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.iceberg import catalogOf
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from fleximq.pipeline.query.tables import lakeTable
    from tests.pipeline.session import sharedSession

_COLUMNS = ["journal", "topic", "offset", "timestamp", "publisher", "dialect", "value"]


class ParquetReadersTests(LayoutCase):
    """Plain files by day; some of them are merged."""

    def readers(self) -> dict[str, Any]:
        """Return the rows that each reader finds, as Arrow tables, by the reader's name."""
        levels = "*" if self.layout is None else "*/*"
        files = f"{self.table}/{levels}/*.parquet"
        return {
            "duckdb": self.duckdb(f"select * from read_parquet('{files}', hive_partitioning=true)"),
            "polars": polars.read_parquet(files, hive_partitioning=True).to_arrow(),
            "spark": sharedSession().read.parquet(self.table).toArrow(),
        }

    def test_eachReaderFindsEveryRowOnceWithAllColumns(self) -> None:
        list(compact(self.table, CompactionGoal(1 << 20, -1e9, 2)))
        self.publish(4)
        found = {name: self.sorted(rows) for name, rows in self.readers().items()}
        found["lake"] = self.sorted(lakeTable(sharedSession(), self.table).toArrow())
        first = found["lake"]
        self.assertEqual([row["offset"] for row in first], list(range(1, 101)))
        for name, rows in found.items():
            self.assertEqual(rows, first, name)

    def duckdb(self, query: str, *before: str) -> "pa.Table":
        """Return the result of a query, in a process of its own: its library reports leaks at the end of each."""
        path = self.mktemp()
        words = ("import duckdb", *before, f"duckdb.sql({query!r}).write_parquet({path!r})")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", "\n".join(words)], env=environment, check=True, stderr=subprocess.DEVNULL)
        return pq.ParquetFile(path).read()

    def sorted(self, rows: "pa.Table") -> list[dict[str, Any]]:
        """Return rows by offset."""
        number = rows.schema.get_field_index("timestamp")
        moments = rows.column("timestamp").cast(pa.timestamp("us", tz="UTC"))
        rows = rows.set_column(number, "timestamp", moments).select(_COLUMNS)
        found: list[dict[str, Any]] = rows.sort_by("offset").to_pylist()
        return found


class ParquetByTopicReadersTests(ParquetReadersTests):
    """Plain files by topic and day."""

    layout = "topic"


class DeltaReadersTests(ParquetReadersTests):
    """A Delta table by day."""

    format = "delta"

    def readers(self) -> dict[str, Any]:
        """Return the rows that each reader finds, as Arrow tables, by the reader's name."""
        opened = DeltaTable(self.table).to_pyarrow_dataset()
        return {
            "deltalake": opened.to_table(),
            "duckdb": self.duckdb(
                "select * from opened",
                f"import deltalake; opened = deltalake.DeltaTable({self.table!r}).to_pyarrow_dataset()",
            ),
            "polars": polars.read_delta(self.table).to_arrow(),
        }


class DeltaByNameReadersTests(DeltaReadersTests):
    """A Delta table of the version before, by topic and day."""

    def record(self) -> None:
        """The version before recorded no layout."""
        Path(self.table, "_fleximq", "format").write_text('{"format": "delta"}')


class IcebergReadersTests(ParquetReadersTests):
    """An Iceberg table by day."""

    format = "iceberg"

    def readers(self) -> dict[str, Any]:
        """Return the rows that each reader finds, as Arrow tables, by the reader's name."""
        lake = self.table.rpartition("/")[0]
        table = catalogOf(lake, None).load_table(("lake", "messages"))
        return {
            "pyiceberg": table.scan().to_arrow(),
            "duckdb": self.duckdb(
                "select * from opened",
                "from fleximq.pipeline.lake.iceberg import catalogOf",
                f"found = catalogOf({lake!r}, None).load_table(('lake', 'messages'))",
                "opened = found.scan().to_arrow()",
            ),
            "polars": polars.scan_iceberg(table).collect().to_arrow(),
        }


class IcebergByTopicReadersTests(IcebergReadersTests):
    """An Iceberg table by topic and day."""

    layout = "topic"
