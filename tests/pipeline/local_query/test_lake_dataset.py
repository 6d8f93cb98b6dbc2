"""Queries over the tables of a lake, without Spark."""

from io import StringIO
from json import loads
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.lake.tables import DAY, TIME, commit, makeTable, rows
from tests.pipeline.local_query.needed import missing as skip

if not skip:
    import pyarrow as pa

    from fleximq.pipeline.errors import LakeRefused, OptionRefused
    from fleximq.pipeline.lake.table.columns import TableColumns
    from fleximq.pipeline.local_query.command import QueryRequest, runQuery

#: The row of each offset: its topic, the day, and the payload's field.
_SEEN = [(1, "t", "2023-11-14", 1.5), (2, "t", "2023-11-14", None), (3, "t/u~dlq", "2023-11-15", 2.5)]


class LakeTests(SynchronousTestCase):
    """Tables of each format and layout."""

    if skip:
        skip = skip

    def found(self, lake: str, query: str) -> list[Any]:
        """Return the rows of a query."""
        out = StringIO()
        runQuery(QueryRequest(query, lake=lake, format="json"), out, self.fail)
        return [tuple(loads(line).values()) for line in out.getvalue().splitlines()]

    def made(self, tableFormat: str, layout: str | None = None) -> str:
        """Return a lake with a table ``readings`` of three rows, in two batches."""
        lake = str(Path(self.mktemp()).absolute() / "x=1 [y]")
        columns = TableColumns("json", pa.schema([("celsius", pa.float64())]), byTopic=layout == "topic")
        makeTable(f"{lake}/readings", tableFormat, layout, columns)
        commit(f"{lake}/readings", 0, rows([1, 2], schema=columns.schema, celsius=[1.5, None]), schema=columns.schema)
        later = rows([3], "t/u~dlq", TIME + DAY, columns.schema, celsius=[2.5])
        commit(f"{lake}/readings", 1, later, schema=columns.schema)
        return lake

    def test_eachFormatAndLayoutHasItsRowsWithTheColumnsOfTheFolders(self) -> None:
        for tableFormat, layout in (("parquet", None), ("parquet", "topic"), ("delta", None), ("iceberg", None)):
            lake = self.made(tableFormat, layout)
            query = 'select "offset", topic, date, celsius from readings order by 1'
            self.assertEqual(self.found(lake, query), _SEEN, tableFormat)
            self.assertEqual(self.found(lake, "select topic from readings where date = '2023-11-15'"), [("t/u~dlq",)])
            self.assertEqual(
                self.found(lake, 'select "offset" from readings where celsius > 1 order by 1'), [(1,), (3,)]
            )
            if layout == "topic":
                self.assertEqual(
                    self.found(lake, "select \"offset\" from readings where fleximq_topic = 't/u~dlq'"), [(3,)]
                )

    def test_filesThatCannotHaveTheRowsAreNotOpened(self) -> None:
        lake = self.made("parquet")
        for path in Path(lake, "readings", "date=2023-11-15").iterdir():
            path.write_bytes(b"no parquet")
        self.assertEqual(self.found(lake, "select count(*) from readings where date < '2023-11-15'"), [(2,)])

    def test_absentTablesAreOneSentence(self) -> None:
        lake = self.made("parquet")
        error = str(self.assertRaises(OptionRefused, self.found, lake, "select * from none"))
        self.assertEqual(error, f"there is no table 'none' in {lake}, only readings")
        makeTable(f"{lake}/empty", "delta")
        error = str(self.assertRaises(LakeRefused, self.found, lake, "select * from empty"))
        self.assertEqual(error, f"the table {lake}/empty has no files yet")
        self.assertRaises(LakeRefused, self.found, f"{lake}/none", "select 1")
