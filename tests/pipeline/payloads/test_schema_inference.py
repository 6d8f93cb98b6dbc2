"""Schemas found in payloads."""

import json
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message import Content
from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa

    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.payloads.ddl import NESTING, parsed, written
    from fleximq.pipeline.payloads.decoder import Decoder
    from fleximq.pipeline.payloads.dialect_payloads import Identity
    from fleximq.pipeline.payloads.schema_inference import MAX_COLUMNS, MAX_NAME_BYTES, inferred, roomy, unionSchema
    from tests.pipeline.payloads.read import binary, codes, rowsOf, texts

pack = msgpack.packb
MOMENT = msgpack.Timestamp(5)


class InferenceCase(SynchronousTestCase):
    """Asks for schemas in DDL."""

    def found(self, *values: Any, known: str | None = None, widen: bool = True) -> str:
        """Return what is found in values that are packed."""
        schema = None if known is None else parsed(known)
        return written(inferred("messagepack", binary([pack(value) for value in values]), schema, widen=widen))


class TypeTests(InferenceCase):
    """What values become."""

    def test_eachValueHasAType(self) -> None:
        for value, dataType in [
            (True, "BOOLEAN"),
            (5, "BIGINT"),
            (-(2**63), "BIGINT"),
            (2**63 - 1, "BIGINT"),
            (2**63, "STRING"),
            (1.5, "DOUBLE"),
            ("x", "STRING"),
            (b"x", "BINARY"),
            (MOMENT, "TIMESTAMP"),
            (msgpack.ExtType(5, b""), "STRING"),
            ([1, None], "ARRAY<BIGINT>"),
            ([[], [1.5], [1]], "ARRAY<ARRAY<DOUBLE>>"),
            ([{"b": 1}, {"c": "x"}], "ARRAY<STRUCT<b: BIGINT, c: STRING>>"),
            ({"b": {"c": 1}}, "STRUCT<b: STRUCT<c: BIGINT>>"),
            ({1: 2}, "STRING"),
        ]:
            self.assertEqual(self.found({"a": value}), f"a {dataType}")
            if not isinstance(value, bytes | tuple) and value is not MOMENT and value != {1: 2}:
                schema = inferred("json", binary([json.dumps({"a": value}).encode()]))
                self.assertEqual(written(schema), f"a {dataType}")

    def test_nullsAndEmptyValuesAreNoColumnYet(self) -> None:
        value: Any
        for value in (None, [], {}, [None, []], {"b": None}):
            self.assertEqual(self.found({"a": value}), "")
            self.assertEqual(self.found({"a": value}, {"a": 1}), "a BIGINT")

    def test_twoTypesHaveOneInCommonInAnyOrder(self) -> None:
        for one, other, dataType in [
            (1, 1.5, "DOUBLE"),
            (1, "x", "STRING"),
            (1.5, True, "STRING"),
            (b"x", "x", "STRING"),
            (MOMENT, "x", "STRING"),
            ([1], 1, "STRING"),
            ([1], [1.5], "ARRAY<DOUBLE>"),
            ([1], ["x"], "ARRAY<STRING>"),
            ({"b": 1}, {"b": 1.5}, "STRUCT<b: DOUBLE>"),
            ({"b": 1}, 5, "STRING"),
        ]:
            for first, second in ((one, other), (other, one)):
                self.assertEqual(self.found({"a": first}, {"a": second}), f"a {dataType}")

    def test_columnsAreInTheOrderFirstSeen(self) -> None:
        self.assertEqual(self.found({"b": 1}, {"a": 1, "c": 1}, {"b": 1}), "b BIGINT, a BIGINT, c BIGINT")

    def test_deepNestingIsATextAndABombIsIgnored(self) -> None:
        value: Any = 1
        for _ in range(NESTING + 20):
            value = [value]
        schema = self.found({"a": value})
        self.assertEqual(written(parsed(schema)), schema)
        self.assertIn("STRING", schema)
        decoded = Decoder("messagepack", parsed(schema)).decode(binary([pack({"a": value})]))
        self.assertIsNone(decoded.errors)
        bomb = b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0"
        self.assertEqual(inferred("messagepack", binary([bomb, pack({"b": 1})])), parsed("b BIGINT"))

    def test_valuesFitTheSchemaFoundInThem(self) -> None:
        values = [
            {"a": 1, "b": "x", "c": [1], "d": {"e": True}},
            {"a": 1.5, "b": 5, "c": [None, "x"], "d": {"f": [MOMENT]}},
            {"a": 2**64 - 1, "b": {"x": 1}, "c": [[1]], "d": None},
        ]
        payloads = binary([pack(value) for value in values])
        decoded = Decoder("messagepack", inferred("messagepack", payloads)).decode(payloads)
        self.assertIsNone(decoded.errors)
        self.assertEqual(decoded.columns.field("a").to_pylist(), ["1", "1.5", str(2**64 - 1)])


class KnownTests(InferenceCase):
    """What becomes of a schema that is known."""

    def test_newColumnsComeLastAlsoInAStruct(self) -> None:
        self.assertEqual(self.found({"b": 1, "a": 1}, known="a BIGINT, z DATE"), "a BIGINT, z DATE, b BIGINT")
        for widen in (True, False):
            found = self.found(
                {"s": {"b": 1}, "l": [{"d": 1}]}, known="s STRUCT<a: INT>, l ARRAY<STRUCT<c: INT>>", widen=widen
            )
            self.assertEqual(found, "s STRUCT<a: INT, b: BIGINT>, l ARRAY<STRUCT<c: INT, d: BIGINT>>")

    def test_typeIsWidenedByTheTableOrStays(self) -> None:
        for known, value, wider in [
            ("BIGINT", 1.5, "DOUBLE"),
            ("INT", 1.5, "DOUBLE"),
            ("INT", 2**40, "INT"),
            ("BIGINT", "x", "STRING"),
            ("DOUBLE", 1, "DOUBLE"),
            ("FLOAT", 1.5, "FLOAT"),
            ("DOUBLE", "x", "STRING"),
            ("BOOLEAN", 1, "STRING"),
            ("DECIMAL(5,2)", 1.5, "DECIMAL(5,2)"),
            ("DECIMAL(5,2)", "1", "DECIMAL(5,2)"),
            ("TIMESTAMP", "x", "TIMESTAMP"),
            ("DATE", "x", "DATE"),
            ("DATE", 5, "STRING"),
            ("BINARY", "x", "BINARY"),
            ("BINARY", 5, "STRING"),
            ("STRING", [1], "STRING"),
            ("ARRAY<INT>", [1.5], "ARRAY<DOUBLE>"),
            ("ARRAY<INT>", {"b": 1}, "STRING"),
            ("MAP<STRING, INT>", {"b": 1}, "MAP<STRING, INT>"),
            ("MAP<STRING, INT>", {"b": 1.5}, "MAP<STRING, DOUBLE>"),
            ("MAP<STRING, INT>", [1], "STRING"),
            ("STRUCT<b: INT>", {"b": "x"}, "STRUCT<b: STRING>"),
            ("STRUCT<b: INT>", "x", "STRING"),
        ]:
            self.assertEqual(self.found({"a": value}, known=f"a {known}"), f"a {wider}", (known, value))
            self.assertEqual(self.found({"a": value}, known=f"a {known}", widen=False), f"a {known}")

    def test_namesThatSparkCannotTellApartAreNoColumns(self) -> None:
        self.assertEqual(self.found({"A": 1, "a": "x", "É": 1, "é": 1}, known="a BIGINT"), "a STRING, `É` BIGINT")
        self.assertEqual(self.found({"": 1, "n" * (MAX_NAME_BYTES + 1): 1, "\0": 1, "a\nb": 1, 5: 1}), "")
        self.assertEqual(self.found({"": 1, "a\nb": 1}), "")
        self.assertEqual(len(inferred("messagepack", binary([pack({"n" * MAX_NAME_BYTES: 1})]))), 1)

    def test_twinsAreColumnsOfATableButNotOfAStruct(self) -> None:
        values = binary([pack({"Id": 1, "id": "x", "s": [{"B": 1, "b": 2}], "": 1, "t": {"": 1}})])
        leftOut: dict[str, None] = {}
        schema = inferred("messagepack", values, leftOut=leftOut)
        self.assertEqual(written(schema), "Id BIGINT, id STRING, s ARRAY<STRUCT<B: BIGINT>>")
        self.assertEqual(list(leftOut), ["s.b", "", "t"])
        self.assertEqual(parsed(written(schema), twins=True), schema)

    def test_twoFoundSchemasAreUnited(self) -> None:
        one = parsed("a BIGINT, c BIGINT, s STRUCT<x: INT>")
        other = parsed("A STRING, c DOUBLE, s STRUCT<X: INT, y: INT>, b DATE")
        self.assertEqual(
            written(unionSchema(one, other)), "a BIGINT, c DOUBLE, s STRUCT<x: INT, y: INT>, A STRING, b DATE"
        )

    def test_columnsAreLimited(self) -> None:
        values = binary([pack({f"c{number}": 1}) for number in range(MAX_COLUMNS + 5)])
        schema = inferred("messagepack", values)
        self.assertEqual(schema.names, [f"c{number}" for number in range(MAX_COLUMNS)])
        self.assertEqual(inferred("messagepack", values, schema), schema)


class PayloadTests(InferenceCase):
    """Which payloads are looked at."""

    def test_payloadThatIsNoMapCountsOnlyAlone(self) -> None:
        self.assertEqual(self.found(5, {"a": 1}, "x"), "a BIGINT")
        self.assertEqual(self.found(5, 1.5), "value DOUBLE")
        self.assertEqual(self.found("x", known="value DOUBLE"), "value STRING")
        self.assertEqual(self.found(5, known="a BIGINT"), "a BIGINT")
        self.assertEqual(self.found(), "")
        self.assertEqual(inferred("json", binary([None, b"", b"{", b"\xff"])), pa.schema([]))

    def test_tooLargeNumberIsADoubleAndOtherFieldsAreFound(self) -> None:
        schema = inferred("json", binary([b'{"a":1e400,"b":"x","c":{"d":[-1e999],"e":1}}']))
        self.assertEqual(written(schema), "a DOUBLE, b STRING, c STRUCT<d: ARRAY<DOUBLE>, e: BIGINT>")

    def test_textAndBytesHaveOneColumn(self) -> None:
        self.assertEqual(written(inferred("text", binary([b"\xff"]))), "value STRING")
        self.assertEqual(inferred("raw", binary([]), parsed("blob BINARY")), parsed("blob BINARY"))
        self.assertRaises(OptionRefused, inferred, "xml", binary([]))

    def test_payloadsAreSeenAsTheDecoderSeesThem(self) -> None:
        values = binary([pack({"a": 1}), pack('{"b":1}'), b'{"c":1}', b'{"d":1}||e=f'])
        dialects = texts(["fleximq", "fleximq", "minimq", "identity"])
        identity = Identity(metadata=True)
        schema = inferred("json", values, None, identity, dialects)
        self.assertEqual(written(schema), "b BIGINT, c BIGINT, d BIGINT, a BIGINT")
        rows = rowsOf(Decoder("json", schema, identity).decode(values, dialects))
        self.assertEqual([isinstance(row, dict) for row in rows], [True] * 4)
        contents = codes([Content.TEXT] * 2 + [Content.MESSAGEPACK] * 2)
        self.assertEqual(inferred("json", values, None, identity, dialects, contents), pa.schema([]))


class RoomyTests(SynchronousTestCase):
    """Types that leave room for later values."""

    def test_wholeNumbersAreDoublesUnlessKnownOrNamed(self) -> None:
        found = parsed("a BIGINT, b STRING, l ARRAY<BIGINT>, s STRUCT<x: BIGINT, y: STRUCT<z: BIGINT>>, k BIGINT")
        for known, integers, wanted in (
            ("", (), "a DOUBLE, b STRING, l ARRAY<DOUBLE>, s STRUCT<x: DOUBLE, y: STRUCT<z: DOUBLE>>, k DOUBLE"),
            ("k BIGINT, l ARRAY<BIGINT>, s STRUCT<x: BIGINT>", (),
             "a DOUBLE, b STRING, l ARRAY<BIGINT>, s STRUCT<x: BIGINT, y: STRUCT<z: DOUBLE>>, k BIGINT"),
            ("", ("a", "s.y", "l"),
             "a BIGINT, b STRING, l ARRAY<BIGINT>, s STRUCT<x: DOUBLE, y: STRUCT<z: BIGINT>>, k DOUBLE"),
        ):  # fmt: skip
            self.assertEqual(written(roomy(found, parsed(known) if known else None, integers)), wanted)

    def test_withoutWidenAUnionKeepsTheFirstTypes(self) -> None:
        one, other = parsed("a BIGINT, s STRUCT<x: INT>"), parsed("a STRING, s STRUCT<x: STRING, y: DATE>, b INT")
        self.assertEqual(written(unionSchema(one, other, False)), "a BIGINT, s STRUCT<x: INT, y: DATE>, b INT")
