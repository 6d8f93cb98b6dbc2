"""Payloads as columns: what fits, what does not, and which bytes are read how."""

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from math import copysign, inf, isnan, nan, nextafter
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message import Content
from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa

    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.payloads.ddl import parsed
    from fleximq.pipeline.payloads.decoder import ENCODINGS, Decoder
    from fleximq.pipeline.payloads.dialect_payloads import Identity
    from fleximq.pipeline.payloads.map_columns import MAX_CLAUSE
    from tests.pipeline.payloads.read import binary, codes, decode, rowsOf, texts, valueOf

pack = msgpack.packb
LARGEST_FLOAT = 3.4028234663852886e38
INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def packed(value: Any) -> bytes:
    """Return a map with one value."""
    result: bytes = pack({"a": value})
    return result


def jsoned(value: Any) -> bytes:
    """Return an object with one value."""
    return json.dumps({"a": value}).encode()


class TypeCase(SynchronousTestCase):
    """Asks about one value at a time."""

    def fits(self, dataType: str, expected: Any, *payloads: bytes, payloadFormat: str = "messagepack") -> None:
        """A value becomes this one."""
        for payload in payloads:
            found = valueOf(payloadFormat, dataType, payload)
            self.assertEqual((found, found.__class__), (expected, expected.__class__), payload)

    def fails(self, dataType: str, *payloads: bytes, payloadFormat: str = "messagepack") -> None:
        """A value is said not to fit, in a clause that names its column."""
        for payload in payloads:
            found = valueOf(payloadFormat, dataType, payload)
            self.assertIsInstance(found, str, payload)
            self.assertIn("'a", found, payload)


class NumberTests(TypeCase):
    """Numbers, at the limits of their types."""

    def test_wholeNumbersFitUpToTheLimits(self) -> None:
        for dataType, bits in INTEGERS.items():
            low, high = -(1 << bits - 1), (1 << bits - 1) - 1
            for number in (low, low + 1, -1, 0, 1, high - 1, high):
                self.fits(dataType, number, packed(number))
                self.fits(dataType, number, jsoned(number), payloadFormat="json")
            for number in (low - 1, high + 1, high * 10):
                self.fails(dataType, jsoned(number), payloadFormat="json")
                if -(1 << 63) <= number < 1 << 64:
                    self.fails(dataType, packed(number))
            self.fails(dataType, jsoned(10**400), jsoned(-(10**400)), payloadFormat="json")

    def test_nothingElseIsAWholeNumber(self) -> None:
        for dataType in INTEGERS:
            for value in (5.0, "5", True, [5], {"a": 5}):
                self.fails(dataType, packed(value))
                self.fails(dataType, jsoned(value), payloadFormat="json")
            self.fails(dataType, packed(b"5"), packed(msgpack.ExtType(5, b"5")), packed(msgpack.Timestamp(5)))
            self.fails(dataType, b'{"a":1e3}', payloadFormat="json")

    def test_anyNumberFitsADouble(self) -> None:
        for number in (0.0, 1.5, 5e-324, 1.7976931348623157e308):
            for each in (number, -number):
                self.fits("DOUBLE", each, packed(each))
                self.fits("DOUBLE", each, jsoned(each), payloadFormat="json")
        for number in (inf, -inf):
            self.fits("DOUBLE", number, packed(number))
        self.assertTrue(isnan(valueOf("messagepack", "DOUBLE", packed(nan))))
        self.assertEqual(copysign(1, valueOf("messagepack", "DOUBLE", packed(-0.0))), -1)
        self.fits("DOUBLE", float(2**64 - 1), packed(2**64 - 1))
        self.fits("DOUBLE", 7.0, packed(7), b"\x81\xa1a\xca\x40\xe0\x00\x00")
        self.fits("DOUBLE", 1e30, jsoned(10**30), payloadFormat="json")
        self.fails("DOUBLE", jsoned(10**400), b'{"a":1e400}', jsoned("1"), jsoned(True), payloadFormat="json")
        self.fails("DOUBLE", packed("1"), packed(True), packed(b""))

    def test_floatsFitUpToTheLargest(self) -> None:
        for number in (0.5, LARGEST_FLOAT, -LARGEST_FLOAT, inf, -inf):
            self.fits("FLOAT", number, packed(number))
        self.assertTrue(isnan(valueOf("messagepack", "FLOAT", packed(nan))))
        self.assertAlmostEqual(valueOf("messagepack", "FLOAT", packed(0.1)), 0.1, 7)
        for number in (nextafter(LARGEST_FLOAT, inf), 1e39, -1e300):
            self.fails("FLOAT", packed(number), packed([1.0]))
            self.fails("FLOAT", jsoned(number), payloadFormat="json")
        self.fails("ARRAY<FLOAT>", packed([1.0, 1e39]))
        self.fits("ARRAY<FLOAT>", [inf, 0.5], packed([inf, 0.5]))

    def test_jsonHasNoNanAndNoInfinity(self) -> None:
        for text in (b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":01}', b'{"a":+1}', b'{"a":.5}'):
            self.assertIsInstance(valueOf("json", "DOUBLE", text), str)

    def test_onlyTrueAndFalseAreBooleans(self) -> None:
        for value in (True, False):
            self.fits("BOOLEAN", value, packed(value))
            self.fits("BOOLEAN", value, jsoned(value), payloadFormat="json")
        other: Any
        for other in (0, 1, "true", 1.0, []):
            self.fails("BOOLEAN", packed(other))
            self.fails("BOOLEAN", jsoned(other), payloadFormat="json")

    def test_digitsFitIfAllHaveAPlace(self) -> None:
        for text, number in [
            ("1.25", "1.25"), ("-999.99", "-999.99"), ("0", "0.00"), ("1e2", "100.00"), ("5.10", "5.10"),
        ]:  # fmt: skip
            self.fits("DECIMAL(5,2)", Decimal(number), packed(text))
            self.fits("DECIMAL(5,2)", Decimal(number), jsoned(text), payloadFormat="json")
            self.fits("DECIMAL(5,2)", Decimal(number), b'{"a":%b}' % text.encode(), payloadFormat="json")
        self.fits("DECIMAL(5,2)", Decimal("7.00"), packed(7), packed(7.0))
        self.fits("DECIMAL(38,0)", Decimal("9" * 38), jsoned("9" * 38), payloadFormat="json")
        for text in ("1000", "1.255", "NaN", "sNaN", "Infinity", "-Infinity", "x", "", "1" * 5000):
            self.fails("DECIMAL(5,2)", packed(text))
        self.fails("DECIMAL(5,2)", packed(True), packed(b"1"), packed(nan), packed(1e300), packed(0.1 + 0.2))

    def test_hugeExponentsAreRefusedWithoutWork(self) -> None:
        for text in ("1E-999999999", "1E+999999999", "-1E-999999999999999999"):
            self.fails("DECIMAL(38,2)", packed(text))
            self.fails("DECIMAL(38,2)", b'{"a":%b}' % text.encode(), payloadFormat="json")
            self.fails("ARRAY<DECIMAL(5,2)>", packed(["1", text]))
            self.fails("MAP<STRING, DECIMAL(5,2)>", packed({"k": text}))
            self.fails("STRUCT<b: STRUCT<c: DECIMAL(5,2)>>", packed({"b": {"c": text}}))
        self.fits("DECIMAL(5,2)", Decimal("0.00"), packed("0E-999999999"), packed("0E+999999999"))
        self.fits("ARRAY<DECIMAL(5,2)>", [Decimal("1.00"), None], packed(["1", None]))
        self.fits("MAP<STRING, DECIMAL(5,2)>", [("k", Decimal("1.00")), ("l", None)], packed({"k": "1", "l": None}))
        self.fits("STRUCT<b: DECIMAL(5,2), c: INT>", {"b": Decimal("1.00"), "c": 2}, packed({"b": "1", "c": 2}))


class TextTests(TypeCase):
    """Texts and bytes."""

    def test_anyTextIsItself(self) -> None:
        for text in ("", "é", "\0", "😀" * 300, "x" * 70_000, '"', "null"):
            self.fits("STRING", text, packed(text))
            self.fits("STRING", text, jsoned(text), payloadFormat="json")

    def test_otherValuesBecomeTheirJson(self) -> None:
        for value, text in [
            (5, "5"), (2**64 - 1, "18446744073709551615"), (1.5, "1.5"), (True, "true"),
            ([1, {"b": None}], '[1,{"b":null}]'), ({}, "{}"),
        ]:  # fmt: skip
            self.fits("STRING", text, packed(value))
            self.fits("STRING", text, jsoned(value), payloadFormat="json")
        self.fits("STRING", "abc", packed(b"abc"))
        self.fits("STRING", "/w==", packed(b"\xff"))
        self.fits("STRING", "YWI=", packed(msgpack.ExtType(5, b"ab")))
        self.fits("STRING", "null", packed(nan))
        self.fits("STRING", '["eA==",{"1":2}]', packed([b"x", {1: 2}]))
        self.fits("STRING", "2038-01-19T03:14:08Z", packed(msgpack.Timestamp(2**31)))
        self.fits("STRING", "[1.50,1e999]", b'{"a" : [1.50, 1e999 ] }', payloadFormat="json")
        self.fits("ARRAY<STRING>", ["x", "1", "[]", None], packed(["x", 1, [], None]))
        self.fits("MAP<STRING, STRING>", [("k", "1")], packed({"k": 1}))
        self.fits("STRUCT<b: STRING>", {"b": "1"}, jsoned({"b": 1}), payloadFormat="json")

    def test_textThatIsNotUtf8IsRefusedAtAnyDepth(self) -> None:
        self.fails("STRING", b"\x81\xa1a\xa1\xff", b"\x81\xa1a\xd9\x02\xc3\x28", b"\x81\xa1a\x91\xa1\xff")
        self.fails("ARRAY<STRING>", b"\x81\xa1a\x91\xa1\xff")
        self.fails("STRING", b'{"a":"\xff"}', b'{"a":["\xff"]}', payloadFormat="json")
        self.assertIsInstance(valueOf("json", "STRING", b'{"a":"\\ud800"}'), str)

    def test_binaryTakesBytesTextsAndBase64InJson(self) -> None:
        for content in (b"", b"\xff\0", b"x" * 70_000):
            self.fits("BINARY", content, packed(content))
        self.fits("BINARY", "é".encode(), packed("é"))
        self.fails("BINARY", packed(5), packed([]), packed(msgpack.ExtType(5, b"")), b"\x81\xa1a\xa1\xff")
        self.fits("BINARY", b"abc", jsoned("YWJj"), payloadFormat="json")
        self.fails("BINARY", jsoned("YWJ"), jsoned("YW Jj"), jsoned("é"), jsoned(5), payloadFormat="json")


class TimeTests(TypeCase):
    """Times and dates."""

    def test_textsOfRfc3339AreTimestamps(self) -> None:
        moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        for text in (
            "2026-01-02T03:04:05Z", "2026-01-02T04:04:05+01:00", "2026-01-02 03:04:05", "2026-01-02T03:04:05.000Z",
        ):  # fmt: skip
            self.fits("TIMESTAMP", moment, packed(text))
            self.fits("TIMESTAMP", moment, jsoned(text), payloadFormat="json")
        self.fits("TIMESTAMP", moment.replace(microsecond=123457), packed("2026-01-02T03:04:05.1234567Z"))
        self.fits("TIMESTAMP", datetime(1, 1, 1, tzinfo=UTC), packed("0001-01-01T00:00:00Z"))
        last = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
        self.fits("TIMESTAMP", last, packed("9999-12-31T23:59:59.999999Z"))

    def test_timeOfAnotherYearInUtcIsRefused(self) -> None:
        for text in ("9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00"):
            self.fails("TIMESTAMP", packed(text))
            self.fails("TIMESTAMP", jsoned(text), payloadFormat="json")
            self.fails("ARRAY<TIMESTAMP>", packed([text]))
            self.fails("MAP<STRING, STRUCT<a: TIMESTAMP>>", packed({"x": {"a": text}}))

    def test_timestampsOfMessagePackFitToTheMicrosecond(self) -> None:
        for seconds, nanoseconds in ((5, 0), (2**32 + 5, 7000), (-5, 999_999_000)):
            moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanoseconds // 1000)
            self.fits("TIMESTAMP", moment, packed(msgpack.Timestamp(seconds, nanoseconds)))
        self.fails("TIMESTAMP", packed(msgpack.Timestamp(2**60)), packed(msgpack.Timestamp(-(2**60))))
        self.fails("TIMESTAMP", packed(msgpack.ExtType(-1 & 0x7F, b"1234")), b"\x81\xa1a\xc7\x03\xff123")

    def test_numbersAndDatesAreNoTimestamps(self) -> None:
        for value in (0, 1.5, "", "now", "2026-01-02", "2026-13-02T00:00:00Z", "2026-01-02T25:00:00Z", True):
            self.fails("TIMESTAMP", packed(value))
            self.fails("TIMESTAMP", jsoned(value), payloadFormat="json")

    def test_dateIsADayOfTheCalendar(self) -> None:
        for text in ("0001-01-01", "2024-02-29", "9999-12-31"):
            self.fits("DATE", date.fromisoformat(text), packed(text))
            self.fits("DATE", date.fromisoformat(text), jsoned(text), payloadFormat="json")
        self.fails("DATE", packed("2023-02-29"), packed("2026-01-02T00:00:00Z"), packed(5), packed("20260102"))


class NestedTests(TypeCase):
    """Arrays, maps and structs."""

    def test_elementsOfAnArrayAreOfOneTypeOrNull(self) -> None:
        self.fits("ARRAY<INT>", [1, None, 3], packed([1, None, 3]))
        self.fits("ARRAY<ARRAY<INT>>", [[], [1]], jsoned([[], [1]]), payloadFormat="json")
        self.fails("ARRAY<INT>", packed(1), packed({"0": 1}), packed("12"), packed(b"12"))
        self.assertIn("'a[2]' is no INT", valueOf("messagepack", "ARRAY<INT>", packed([1, 2, "3"])))
        self.assertIn("'a[0][1]' is no INT", valueOf("json", "ARRAY<ARRAY<INT>>", jsoned([[1, "2"]])))

    def test_keysOfAMapAreTextsAndTheLastEqualOneCounts(self) -> None:
        self.fits("MAP<STRING, INT>", [("k", 1), ("", None)], packed({"k": 1, "": None}))
        self.fits("MAP<STRING, INT>", [], jsoned({}), payloadFormat="json")
        self.fits("MAP<STRING, INT>", [("k", 2)], b"\x81\xa1a\x82\xa1k\x01\xa1k\x02")
        self.fails("MAP<STRING, INT>", packed([]), packed({1: 1}), packed({b"k": 1}), packed({"k": "1"}))

    def test_missingFieldsAreNullAndOthersIgnored(self) -> None:
        self.fits("STRUCT<b: INT, c: STRING>", {"b": 1, "c": None}, packed({"b": 1, "d": [1, {2: 3}]}))
        self.fits("STRUCT<`b c`: STRUCT<d: INT>>", {"b c": {"d": 1}}, jsoned({"b c": {"d": 1}}), payloadFormat="json")
        self.fits("STRUCT<b: INT>", {"b": None}, packed({}), packed({"B": 1}))
        self.fails("STRUCT<b: INT>", packed([1]), packed({"b": "1"}), packed(5))
        self.assertIn(
            "'a.b.c' is no INT", valueOf("messagepack", "STRUCT<b: STRUCT<c: INT>>", packed({"b": {"c": ""}}))
        )

    def test_nullFitsEveryType(self) -> None:
        for dataType in (
            "STRING", "INT", "DECIMAL(5,2)", "ARRAY<INT>", "MAP<STRING, INT>", "STRUCT<b: INT>", "TIMESTAMP",
        ):  # fmt: skip
            self.assertIsNone(valueOf("messagepack", dataType, packed(None)))
            self.assertIsNone(valueOf("json", dataType, b'{"a": null }'))
            # Beside a value that the quick way does not take, too.
            [row] = rowsOf(decode("messagepack", f"a {dataType}, b STRING", pack({"a": None, "b": 5})))
            self.assertEqual(row, {"a": None, "b": "5"})


class PayloadTests(SynchronousTestCase):
    """Payloads as a whole."""

    def test_missingKeysAreNullAndTheLastEqualOneCounts(self) -> None:
        ddl = "a INT, `b c` STRING"
        for payload, row in [
            (pack({"a": 1, "b c": "x"}), {"a": 1, "b c": "x"}),
            (pack({}), {"a": None, "b c": None}),
            (pack({"A": 1, "z": {"a": 5}}), {"a": None, "b c": None}),
            (b"\x82\xa1a\x01\xa1a\x02", {"a": 2, "b c": None}),
            (b"\x82\xa1a\xa1x\xa1a\x02", {"a": 2, "b c": None}),
        ]:
            self.assertEqual(rowsOf(decode("messagepack", ddl, payload)), [row])
        self.assertEqual(rowsOf(decode("json", ddl, b' {"a":1,"a":2} \n')), [{"a": 2, "b c": None}])

    def test_anyTextIsAKey(self) -> None:
        names = ['a"b', "a\\b", "\n", "\0", "é", "f0", "a.b", "`"]
        schema = pa.schema([(name, pa.int64()) for name in names])
        row = dict(zip(names, range(8), strict=True))
        bad = {**row, "é": "x"}
        for payloadFormat, encode in (("messagepack", pack), ("json", lambda value: json.dumps(value).encode())):
            for chosen in (schema, pa.schema([pa.field("s", pa.struct(list(schema)))])):
                first, second = (row, bad) if chosen is schema else ({"s": row}, {"s": bad})
                rows = rowsOf(
                    Decoder(payloadFormat, chosen).decode(binary([encode(first), encode(second), encode({})]))
                )
                self.assertEqual(rows[0], first)
                self.assertIn("é' is no BIGINT", str(rows[1]))
                self.assertEqual(rows[2], dict.fromkeys(chosen.names))

    def test_nonAsciiNameIsFoundInAStructAndInASlowRow(self) -> None:
        for name in ("größe", "名前", "\U0001f600"):
            key = f'["{name}"]'.encode()[1:-1]
            for more, text in ((b"", ""), (b',"s":5', ", s STRING"), (b',"\\"":5', ', `"` INT')):
                payload = b'{"":"wrong",%s:"flat","u":{"":"wrong",%s:"deep"}%s}' % (key, key, more)
                [row] = rowsOf(decode("json", f"`{name}` STRING, u STRUCT<`{name}`: STRING>{text}", payload))
                assert isinstance(row, dict), row
                self.assertEqual((row[name], row["u"]), ("flat", {name: "deep"}), (name, text))

    def test_payloadThatIsNotExactlyOneMapIsRefused(self) -> None:
        for payload in (
            b"", b"\xc1", b"\xc0", b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
            pack([1]), pack(5), pack("text"), pack({"a": 1}) + b"\0", pack({"a": 1})[:-1], pack({1: 1}),
            pack({None: 1}), b'{"a":1}',
        ):  # fmt: skip
            [row] = rowsOf(decode("messagepack", "a INT, b INT", payload))
            self.assertIsInstance(row, str, payload)
            self.assertTrue(str(row).startswith("the payload is "), row)
        for payload in (
            b"", b" ", b"[1]", b"null", b"5", b'"a"', b'{"a":1}{', b'{"a":1', b"{a:1}", b'\xef\xbb\xbf{"a":1}',
        ):  # fmt: skip
            [row] = rowsOf(decode("json", "a INT, b INT", payload))
            self.assertIsInstance(row, str, payload)
            self.assertTrue(str(row).startswith("the payload is "), row)

    def test_endlessNestingIsAnErrorReadOrIgnored(self) -> None:
        depth = 100_000
        for name in (b"a", b"z"):
            arrays = b"\x81\xa1" + name + b"\x91" * depth + b"\xc0"
            text = b'{"%b":%b%b}' % (name, b"[" * depth, b"]" * depth)
            objects = b'{"a":' * depth + b"1" + b"}" * depth
            for payloadFormat, payload in (("messagepack", arrays), ("json", text), ("json", objects)):
                for dataType in ("STRING", "ARRAY<ARRAY<INT>>", "STRUCT<a: STRUCT<a: STRING>>", "MAP<STRING, STRING>"):
                    [row] = rowsOf(decode(payloadFormat, f"a {dataType}", payload))
                    self.assertIn("nested too deeply", str(row))

    def test_misfitRowIsNullAndTouchesNoOther(self) -> None:
        decoded = decode("messagepack", "a INT, b STRING", *map(packed, (1, "x", 3)), None, pack({"a": 5, "b": "y"}))
        self.assertEqual(decoded.columns.field("a").to_pylist(), [1, None, 3, None, 5])
        self.assertEqual(decoded.columns.field("b").to_pylist(), [None, None, None, None, "y"])
        self.assertEqual(decoded.columns.is_valid().to_pylist(), [True, False, True, False, True])
        assert decoded.errors is not None
        self.assertEqual(
            [error is not None for error in decoded.errors.to_pylist()], [False, True, False, False, False]
        )
        mixed = decode(
            "messagepack", "b STRING, c DECIMAL(3,1)", pack({"b": "x", "c": "1.25"}), pack({"b": "y", "c": 1})
        )
        self.assertEqual(rowsOf(mixed), ["'c' does not fit a DECIMAL(3,1)", {"b": "y", "c": Decimal("1.0")}])
        self.assertEqual(mixed.columns.field("b").to_pylist(), [None, "y"])

    def test_withoutMisfitsThereIsNoColumnOfErrors(self) -> None:
        for payloadFormat in ENCODINGS:
            ddl = "a INT" if payloadFormat in ("messagepack", "json") else None
            for payloads in ((), (None,), (None, None)):
                decoded = decode(payloadFormat, ddl, *payloads)
                self.assertIsNone(decoded.errors)
                self.assertEqual(decoded.columns.to_pylist(), list(payloads))

    def test_onlyColumnValueTakesAPayloadThatIsNoMap(self) -> None:
        for payloadFormat, five, text, map_ in (
            ("messagepack", pack(5), pack("x"), pack({"value": 6, "b": 1})),
            ("json", b" 5", b'"x"', b' {"value":6}'),
        ):
            rows = rowsOf(decode(payloadFormat, "value INT", five, map_, text))
            self.assertEqual(rows[:2], [{"value": 5}, {"value": 6}])
            self.assertIn("'value' is no INT", str(rows[2]))
            self.assertEqual(
                rowsOf(decode(payloadFormat, "value STRING", five, text)), [{"value": "5"}, {"value": "x"}]
            )
            self.assertIn("map", str(rowsOf(decode(payloadFormat, "other INT", five))[0]))
        self.assertEqual(rowsOf(decode("json", "value ARRAY<INT>", b"[1]", b"null")), [{"value": [1]}, {"value": None}])

    def test_payloadsMayBeASliceOfAColumn(self) -> None:
        values = binary([b"\xff", b"a", None, b"b", b"\xff"]).slice(1, 3)
        for payloadFormat in ("text", "raw"):
            decoded = Decoder(payloadFormat).decode(values)
            self.assertIsNone(decoded.errors)
            self.assertEqual(
                [row and row["value"] for row in decoded.columns.to_pylist()], decoded.columns.field(0).to_pylist()
            )
            self.assertEqual(decoded.columns.field(0).cast(pa.binary()).to_pylist(), [b"a", None, b"b"])
        maps = binary([b"", packed(1), packed("x"), b""]).slice(1, 2)
        rows = rowsOf(Decoder("messagepack", parsed("a INT")).decode(maps))
        self.assertEqual((rows[0], str(rows[1])[:13]), ({"a": 1}, "'a' is no INT"))

    def test_errorIsShortAndHasNoWordsOfThePayload(self) -> None:
        name = "n" * 1000
        [row] = rowsOf(decode("messagepack", f"`{name}` STRUCT<`{name}`: INT>", pack({name: {name: "secret"}})))
        self.assertLessEqual(len(str(row)), MAX_CLAUSE)
        [row] = rowsOf(decode("messagepack", "a INT", packed("secret")))
        self.assertNotIn("secret", str(row))


class PlainTests(SynchronousTestCase):
    """Text and bytes."""

    def test_onlyUtf8IsTextAndBytesStayBytes(self) -> None:
        """A schema may name the column."""
        rows = rowsOf(decode("text", None, "é".encode(), b"", b"\xff", b"x", None))
        self.assertEqual(rows, [{"value": "é"}, {"value": ""}, "the payload is not UTF-8", {"value": "x"}, None])
        self.assertEqual(rowsOf(decode("raw", None, b"\xff", b"", None)), [{"value": b"\xff"}, {"value": b""}, None])
        self.assertEqual(rowsOf(decode("text", "line STRING", b"x")), [{"line": "x"}])
        self.assertEqual(rowsOf(decode("raw", "blob BINARY", b"x")), [{"blob": b"x"}])


class DialectTests(SynchronousTestCase):
    """Payloads of several dialects in one topic."""

    payloads = (pack({"a": 1}), pack('{"a":2}'), pack(b'{"a":3}'), b'{"a":4}', pack([1]), b"")
    dialects = ("fleximq", "fleximq", "fleximq", "blipmq", "fleximq", "broker")

    def test_textsOfFlexiMQAreJsonAndOtherValuesMessagePack(self) -> None:
        rows = rowsOf(decode("json", "a INT", *self.payloads, dialects=self.dialects))
        self.assertEqual(rows[:4], [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}])
        self.assertIn("no MessagePack map", str(rows[4]))
        self.assertEqual(rows[5], "the payload is empty")

    def test_textsOfFlexiMQAreTextsAndOtherValuesJson(self) -> None:
        rows = rowsOf(decode("text", None, *self.payloads, pack("\xe9"), dialects=(*self.dialects, "blipmq")))
        self.assertEqual(
            [row and row["value"] for row in rows[:6] if isinstance(row, dict)],
            ['{"a":1}', '{"a":2}', '{"a":3}', '{"a":4}', "[1]", ""],
        )
        self.assertEqual(rows[6], "the payload is not UTF-8")

    def test_knownContentComesBeforeTheDialect(self) -> None:
        decoder = Decoder("json", parsed("a INT"))
        values, dialects = binary([pack({"a": 1}), b'{"a":2}']), texts(["blipmq", "fleximq"])
        rows = rowsOf(decoder.decode(values, dialects, codes([Content.MESSAGEPACK, Content.TEXT])))
        self.assertEqual(rows, [{"a": 1}, {"a": 2}])

    def test_withoutDialectsTheFormatCounts(self) -> None:
        [row] = rowsOf(decode("text", None, pack("x")))
        self.assertEqual(row, "the payload is not UTF-8")
        self.assertEqual(rowsOf(decode("messagepack", "a INT", *self.payloads[:1], dialects=["blipmq"])), [{"a": 1}])


class MadeTests(SynchronousTestCase):
    """Decoders."""

    def test_formatAndSchemaThatDoNotFitAreRefused(self) -> None:
        for said, payloadFormat, ddl in (
            ("no format 'xml'", "xml", "a INT"),
            ("need a schema", "messagepack", None),
            ("need a schema", "json", None),
            ("one column of type STRING", "text", "a INT"),
            ("one column of type BINARY", "raw", "a BINARY, b BINARY"),
        ):
            schema = None if ddl is None else parsed(ddl)
            self.assertIn(said, str(self.assertRaises(OptionRefused, Decoder, payloadFormat, schema)))
        self.assertRaises(OptionRefused, Decoder, "json", pa.schema([]))
        self.assertRaises(OptionRefused, Decoder, "json", pa.schema([("a", pa.large_string())]))

    def test_schemaIsThatOfTheColumns(self) -> None:
        for payloadFormat, ddl, identity in (
            ("json", "a INT, b STRING", Identity()),
            ("text", None, Identity(metadata=True)),
            ("raw", None, Identity(base64=True)),
        ):
            decoder = Decoder(payloadFormat, None if ddl is None else parsed(ddl), identity)
            self.assertEqual(decoder.decode(binary([b"{}"])).columns.type, pa.struct(list(decoder.schema)))

    def test_decoderCanBePickled(self) -> None:
        decoder = Decoder("json", parsed("a INT"), Identity(True, False))
        again = pickle.loads(pickle.dumps(decoder))
        self.assertEqual(again.schema, decoder.schema)
        values = binary([b'{"a":1}||b=2'])
        self.assertEqual(rowsOf(again.decode(values)), rowsOf(decoder.decode(values)))
