"""Schemas in Spark's DDL."""

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa
    from hypothesis import given
    from hypothesis import strategies as st
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructType

    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.payloads.ddl import NESTING, parsed, typeWritten, written
    from tests.pipeline.session import sharedSession

    _SIMPLE = [
        pa.string(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
        pa.binary(), pa.date32(), pa.timestamp("us", tz="UTC"), pa.decimal128(1, 0), pa.decimal128(38, 38),
    ]  # fmt: skip

    def _structs(types: "st.SearchStrategy[pa.DataType]") -> "st.SearchStrategy[pa.DataType]":
        return _fields(types).map(lambda fields: pa.struct(list(fields)))

    def _fields(types: "st.SearchStrategy[pa.DataType]") -> "st.SearchStrategy[pa.Schema]":
        names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4, unique_by=str.lower)
        return names.flatmap(
            lambda chosen: st.tuples(*[types] * len(chosen)).map(
                lambda found: pa.schema(list(zip(chosen, found, strict=True)))
            )
        )

    TYPES = st.recursive(
        st.sampled_from(_SIMPLE),
        lambda inner: st.one_of(
            inner.map(pa.list_), inner.map(lambda item: pa.map_(pa.string(), item)), _structs(inner)
        ),
        max_leaves=6,
    )
    SCHEMAS = _fields(TYPES)


class ParsedTests(SynchronousTestCase):
    """What texts mean."""

    def test_everyTypeHasItsNamesInAnyCase(self) -> None:
        for texts, dataType in [
            ("STRING string", pa.string()),
            ("BOOLEAN", pa.bool_()),
            ("TINYINT byte", pa.int8()),
            ("SMALLINT short", pa.int16()),
            ("INT integer", pa.int32()),
            ("BIGINT long", pa.int64()),
            ("FLOAT real", pa.float32()),
            ("DOUBLE", pa.float64()),
            ("BINARY", pa.binary()),
            ("DATE", pa.date32()),
            ("TIMESTAMP", pa.timestamp("us", tz="UTC")),
            ("DECIMAL dec Numeric decimal(10) decimal(10,0)", pa.decimal128(10, 0)),
            ("DECIMAL(38,38)", pa.decimal128(38, 38)),
            ("ARRAY<INT> array<int>", pa.list_(pa.int32())),
            ("MAP<STRING,INT>", pa.map_(pa.string(), pa.int32())),
            ("STRUCT<a:INT>", pa.struct([("a", pa.int32())])),
        ]:
            for text in texts.split():
                self.assertEqual(parsed(f"x {text}"), pa.schema([("x", dataType)]), text)

    def test_spacesColonsCommentsAndBackquotesAreAsInSpark(self) -> None:
        schema = pa.schema([("a", pa.int32()), ("b c`", pa.struct([("x", pa.string()), ("y", pa.list_(pa.date32()))]))])
        for text in (
            "a INT, `b c``` STRUCT<x: STRING, y: ARRAY<DATE>>",
            " a:int,`b c```:struct<x string,y array < date > >\n",
            "a INT COMMENT 'its', `b c``` STRUCT<x: STRING COMMENT 'a, b \\' c', y: ARRAY<DATE>> COMMENT ''",
        ):
            self.assertEqual(parsed(text), schema, text)

    def test_columnMayBeNamedAsAType(self) -> None:
        self.assertEqual(parsed("date DATE, `array` STRING").names, ["date", "array"])

    def test_wrongSchemaIsOneSentence(self) -> None:
        for text, said in {
            "": "has no columns",
            "a": "nothing where a type",
            "a MONEY": "type MONEY",
            "a INT b INT": "'b' behind 'a'",
            "a INT,": "nothing where a column's name",
            ", a INT": "',' where a column's name",
            "a INT, A STRING": "'A' twice",
            "a INT NOT NULL": "cannot be NOT NULL",
            "a INT COMMENT b": "comment of 'a'",
            "a ARRAY": "instead of '<' behind ARRAY",
            "a ARRAY<INT": "nothing instead of '>'",
            "a ARRAY<INT>>": "'>' behind 'a'",
            "a MAP<INT, INT>": "keys of a MAP",
            "a MAP<STRING>": "instead of ','",
            "a STRUCT<>": "has no fields",
            "a STRUCT<b: INT": "nothing behind 'b'",
            "a STRUCT<b: INT, b: INT>": "'b' twice",
            "a DECIMAL(0)": "DECIMAL(0,0)",
            "a DECIMAL(39,1)": "1 to 38 digits",
            "a DECIMAL(5,6)": "DECIMAL(5,6)",
            "a DECIMAL(x)": "number of digits",
            "a DECIMAL(5": "nothing instead of ')'",
            "a 'INT'": "where a type",
            "a INT; drop": "';' behind 'a'",
            "`` INT": "where a column's name",
            "a " + "ARRAY<" * 40 + "INT" + ">" * 40: "deeper than",
        }.items():
            error = str(self.assertRaises(OptionRefused, parsed, text))
            self.assertIn(said, error, text)
            self.assertNotIn("\n", error)

    def test_typesAreNestedUpToTheLimit(self) -> None:
        for depth, fits in ((NESTING - 1, True), (NESTING, True), (NESTING + 1, False)):
            text = "a " + "ARRAY<" * depth + "INT" + ">" * depth
            if fits:
                self.assertEqual(written(parsed(text)), text)
            else:
                self.assertRaises(OptionRefused, parsed, text)

    def test_thereMayBeAnyNumberOfColumns(self) -> None:
        names = [f"c{number}" for number in range(3000)]
        self.assertEqual(parsed(", ".join(f"{name} INT" for name in names)).names, names)


class WrittenTests(SynchronousTestCase):
    """Schemas as texts."""

    def test_writtenSchemaIsReadBack(self) -> None:
        @given(SCHEMAS)
        def check(schema: "pa.Schema") -> None:
            self.assertEqual(parsed(written(schema)), schema)

        check()

    def test_anyTextIsASchemaOrRefused(self) -> None:
        @given(
            st.one_of(st.text(), st.lists(st.sampled_from("a INT < > , : ( ) ` ' ARRAY MAP STRUCT STRING 5".split())))
        )
        def check(text: "str | list[str]") -> None:
            try:
                schema = parsed(text if isinstance(text, str) else " ".join(text))
            except OptionRefused:
                return
            self.assertEqual(parsed(written(schema)), schema)

        check()

    def test_typesThatPayloadsLackAreRefused(self) -> None:
        for dataType in (
            pa.null(), pa.large_string(), pa.timestamp("ns"), pa.struct([]), pa.map_(pa.int32(), pa.int32()),
        ):  # fmt: skip
            self.assertRaises(OptionRefused, typeWritten, dataType)
            self.assertRaises(OptionRefused, written, pa.schema([("a", pa.list_(dataType))]))


class SparkTests(SynchronousTestCase):
    """The same in Spark."""

    def test_sparkReadsTheSameTypes(self) -> None:
        session = sharedSession()
        text = (
            "s STRING, b BOOLEAN, t TINYINT, h SMALLINT, i INT, n BIGINT, f FLOAT, d DOUBLE, x BINARY, day DATE, "
            "at TIMESTAMP, c DECIMAL(7,3), a ARRAY<MAP<STRING, INT>>, `st``r u` STRUCT<`x y`: INT, `1`: STRUCT<z: INT>>"
        )
        schema = parsed(text)
        self.assertEqual(written(schema), text)
        self.assertIsNotNone(session)
        self.assertEqual(StructType.fromDDL(text), from_arrow_type(pa.struct(list(schema))))
