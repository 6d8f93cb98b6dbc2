"""The columns of a table."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.table.columns import BASE, TableColumns, added, readColumns, writeColumns
    from fleximq.pipeline.lake.table.format import setFormat
    from fleximq.pipeline.payloads.ddl import parsed


class ColumnsTests(SynchronousTestCase):
    """Fields of payloads beside the source's columns."""

    def test_names(self) -> None:
        """A name that is taken, whatever its capitals, has an underscore behind it, or more of them."""
        names = ["a", "Offset", "offset_", "date", "metadata", "key"]
        fields = pa.schema([(name, pa.int64()) for name in names])
        self.assertEqual(TableColumns("json", fields).names, ["a", "Offset_", "offset__", "date_", "metadata_", "key_"])

    def test_twins(self) -> None:
        """Names that differ only in capitals are columns of their own, in the order in which they were found."""
        fields = parsed("userId INT, userid INT, USERID INT", twins=True)
        self.assertEqual(TableColumns("json", fields).names, ["userId", "userid_", "USERID__"])

    def test_byTopic(self) -> None:
        """A field named as the folders of topics has another name where there are some; an older table keeps it."""
        fields = parsed("fleximq_topic STRING")
        self.assertEqual(TableColumns("json", fields, byTopic=True).names, ["fleximq_topic_"])
        self.assertEqual(TableColumns("json", fields).names, ["fleximq_topic"])

    def test_schema(self) -> None:
        """First come the source's columns, then the payloads', metadata last."""
        columns = TableColumns("json", pa.schema([("a", pa.int64())]), True)
        self.assertEqual(columns.schema.names, [*BASE.names, "a", "metadata"])

    def test_added(self) -> None:
        """Columns that are new come behind those that are known; a known one keeps its type."""
        known = pa.schema([("a", pa.int64()), ("b", pa.string())])
        found = added("t", known, [pa.field("c", pa.bool_()), pa.field("a", pa.int64())])
        self.assertEqual(found, known.append(pa.field("c", pa.bool_())))

    def test_widened(self) -> None:
        """A type becomes wider where Spark, Arrow and Iceberg read the former one in it, also within others."""
        for had, wanted, wider in (
            ("TINYINT", "SMALLINT", "SMALLINT"),
            ("INT", "BIGINT", "BIGINT"),
            ("FLOAT", "DOUBLE", "DOUBLE"),
            ("DECIMAL(5,2)", "DECIMAL(9,2)", "DECIMAL(9,2)"),
            ("ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<BIGINT>"),
            ("STRUCT<x: INT, y: INT>", "STRUCT<x: BIGINT, z: DATE>", "STRUCT<x: BIGINT, y: INT, z: DATE>"),
            ("BIGINT", "DOUBLE", None),
            ("INT", "DOUBLE", None),
            ("BIGINT", "INT", None),
            ("DECIMAL(5,2)", "DECIMAL(9,3)", None),
            ("STRUCT<x: BIGINT>", "STRUCT<x: DOUBLE>", None),
            ("ARRAY<BIGINT>", "ARRAY<STRING>", None),
        ):
            known, fields = parsed(f"a {had}"), list(parsed(f"a {wanted}"))
            if wider is not None:
                self.assertEqual(added("t", known, fields), parsed(f"a {wider}"))
                continue
            error = self.assertRaises(LakeRefused, added, "t", known, fields)
            self.assertIn(f"the table t has a {had} and cannot take a {wanted}: only whole numbers", str(error))
            self.assertIn("filled by fleximq-pipeline backfill NEW --from t", str(error))


class RecordedTests(SynchronousTestCase):
    """What is recorded of them."""

    def setUp(self) -> None:
        self.table = Path(self.mktemp()).absolute()
        (self.table / "_fleximq").mkdir(parents=True)

    def test_thereAndBack(self) -> None:
        """They are read as they were written, and readers of Parquet find the whole schema."""
        for fields in (pa.schema([]), pa.schema([("a b", pa.list_(pa.struct([("x", pa.float64())])))])):
            columns = TableColumns("json", fields, True)
            writeColumns(str(self.table), columns)
            self.assertEqual(readColumns(str(self.table)), columns)
            found = pq.read_schema(self.table / "_common_metadata")
            self.assertEqual(found.names, columns.schema.names)

    def test_delta(self) -> None:
        """A table of Delta Lake only gets new columns."""
        setFormat(str(self.table), {"format": "delta"})
        known = parsed("a INT")
        self.assertEqual(added(str(self.table), known, list(parsed("b INT"))), parsed("a INT, b INT"))
        error = self.assertRaises(LakeRefused, added, str(self.table), known, list(parsed("a BIGINT")))
        self.assertIn("deltalake changes no column's type", str(error))

    def test_none(self) -> None:
        """Nothing may be recorded yet."""
        self.assertIsNone(readColumns(str(self.table)))

    def test_damaged(self) -> None:
        """What is no record is damage."""
        (self.table / "_fleximq" / "schema").write_text("[]")
        error = self.assertRaises(LakeRefused, readColumns, str(self.table))
        self.assertIn("_fleximq/schema is damaged", str(error))
