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

    def test_takenNameGetsUnderscores(self) -> None:
        names = ["a", "Offset", "offset_", "date", "metadata", "key"]
        fields = pa.schema([(name, pa.int64()) for name in names])
        self.assertEqual(TableColumns("json", fields).names, ["a", "Offset_", "offset__", "date_", "metadata_", "key_"])

    def test_namesThatDifferInCapitalsAreColumnsInTheirOrder(self) -> None:
        fields = parsed("userId INT, userid INT, USERID INT", twins=True)
        self.assertEqual(TableColumns("json", fields).names, ["userId", "userid_", "USERID__"])

    def test_fieldNamedAsAFolderOfTopicsIsRenamedButNotInOlderTables(self) -> None:
        fields = parsed("fleximq_topic STRING")
        self.assertEqual(TableColumns("json", fields, byTopic=True).names, ["fleximq_topic_"])
        self.assertEqual(TableColumns("json", fields).names, ["fleximq_topic"])

    def test_columnsOfTheSourceComeFirstAndMetadataLast(self) -> None:
        columns = TableColumns("json", pa.schema([("a", pa.int64())]), True)
        self.assertEqual(columns.schema.names, [*BASE.names, "a", "metadata"])

    def test_newColumnsComeLastAndKnownOnesKeepTheirTypes(self) -> None:
        known = pa.schema([("a", pa.int64()), ("b", pa.string())])
        found = added("t", known, [pa.field("c", pa.bool_()), pa.field("a", pa.int64())])
        self.assertEqual(found, known.append(pa.field("c", pa.bool_())))

    def test_typeIsWidenedWhereAllReadersReadTheFormerOne(self) -> None:
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

    def test_recordedColumnsAreReadBackAndParquetHasTheSchema(self) -> None:
        for fields in (pa.schema([]), pa.schema([("a b", pa.list_(pa.struct([("x", pa.float64())])))])):
            columns = TableColumns("json", fields, True)
            writeColumns(str(self.table), columns)
            self.assertEqual(readColumns(str(self.table)), columns)
            found = pq.read_schema(self.table / "_common_metadata")
            self.assertEqual(found.names, columns.schema.names)

    def test_deltaTableOnlyGetsNewColumns(self) -> None:
        setFormat(str(self.table), {"format": "delta"})
        known = parsed("a INT")
        self.assertEqual(added(str(self.table), known, list(parsed("b INT"))), parsed("a INT, b INT"))
        error = self.assertRaises(LakeRefused, added, str(self.table), known, list(parsed("a BIGINT")))
        self.assertIn("deltalake changes no column's type", str(error))

    def test_columnsMayNotBeRecordedYet(self) -> None:
        self.assertIsNone(readColumns(str(self.table)))

    def test_damagedRecordIsRefused(self) -> None:
        (self.table / "_fleximq" / "schema").write_text("[]")
        self.assertRaisesRegex(LakeRefused, "_fleximq/schema is damaged", readColumns, str(self.table))
