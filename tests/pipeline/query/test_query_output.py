"""How an answer is written: as a table, as CSV and as JSON."""

import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    import msgpack
    import pyarrow as pa
    from hypothesis import given
    from hypothesis import strategies as st

    from fleximq.pipeline.query.query_output import WIDEST, show, textOf, widthOf

#: 2^62 microseconds and 2^30 days after 1970.
FAR_TIME, FAR_DAY = "148108-07-06 14:00:27.387904+00", "2941775-04-07"


def shown(table: "pa.Table", outputFormat: str) -> str:
    """Return what is written."""
    out = io.StringIO()
    show(table, outputFormat, out)
    return out.getvalue()


class TextTests(SynchronousTestCase):
    """What bytes are as text."""

    def test_bytesAreUtf8OrMessagePackOrHexadecimal(self) -> None:
        for written, text in (
            (b"hello", "hello"),
            ("grüße\n".encode(), "grüße\n"),
            (b"", ""),
            (msgpack.packb({"a": [1, None]}), '{"a":[1,null]}'),
            (msgpack.packb("hi"), '"hi"'),
            (b"\x05", "5"),
            (b"\xff\xfe", "fffe"),
            (b"\x00\x01", "0001"),
            (msgpack.packb({"a": 1}) + b"\xc1", "81a16101c1"),
        ):
            self.assertEqual(textOf(written), text)

    def test_dialectDecidesWhatCouldBeBoth(self) -> None:
        self.assertEqual((textOf(b"A"), textOf(b"A", packed=True)), ("A", "65"))
        self.assertEqual(textOf(b"no MessagePack", packed=True), "no MessagePack")

    if not skip:

        @given(st.binary(), st.booleans())
        def test_anyBytesAreSomeText(self, written: bytes, packed: bool) -> None:
            self.assertIsInstance(textOf(written, packed), str)


class ShownTests(SynchronousTestCase):
    """The same rows in each format."""

    def rows(self) -> "pa.Table":
        """Return values of many types, and a row of nulls."""
        columns = {
            "name": pa.array(["a,b", None]),
            "n": pa.array([1, None], pa.int64()),
            "ratio": pa.array([0.5, None]),
            "sum": pa.array([Decimal("12.30"), None], pa.decimal128(10, 2)),
            "isIt": pa.array([True, None]),
            "day": pa.array([date(2024, 2, 29), None]),
            "time": pa.array([datetime(2024, 1, 2, 3, 4, 5, 600_000, UTC), None], pa.timestamp("us", "UTC")),
            "bytes": pa.array([b"\xff\xfe", None]),
            "map": pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.string())),
            "struct": pa.array([{"x": [1, None], "y": b"z"}, None]),
        }
        return pa.table(columns)

    def test_jsonHasAnObjectInEachLine(self) -> None:
        first, second = map(json.loads, shown(self.rows(), "json").splitlines())
        self.assertEqual(
            first,
            {
                "name": "a,b", "n": 1, "ratio": 0.5, "sum": 12.3, "isIt": True, "day": "2024-02-29",
                "time": "2024-01-02T03:04:05.600Z", "bytes": "fffe", "map": {"k": "v"},
                "struct": {"x": [1, None], "y": "z"},
            },
        )  # fmt: skip
        self.assertEqual(set(second.values()), {None})

    def test_csvHasNothingForNullAndQuotesForEmptyText(self) -> None:
        lines = shown(self.rows(), "csv").splitlines()
        self.assertEqual(lines[0], "name,n,ratio,sum,isIt,day,time,bytes,map,struct")
        self.assertEqual(
            next(csv.reader([lines[1]])),
            ["a,b", "1", "0.5", "12.30", "true", "2024-02-29", "2024-01-02T03:04:05.600Z", "fffe",
             '{"k": "v"}', '{"x": [1, null], "y": "z"}'],
        )  # fmt: skip
        self.assertEqual(lines[2], "," * 9)
        self.assertEqual(shown(pa.table({"a": ["", None, 'q"', " "]}), "csv"), 'a\n""\n\n"q"""\n" "\n')

    def test_tableAlignsNumbersAndTellsNullFromTheTextNull(self) -> None:
        table = pa.table({"text": ["a", "NULL", None, "日本"], "n": [1, 22, None, -3]})
        self.assertEqual(
            shown(table, "table"),
            "text       n\n------  ----\na          1\n'NULL'    22\nNULL    NULL\n日本      -3\n",
        )

    def test_signsThatBreakALineAreEscapedAndLongTextIsCut(self) -> None:
        table = pa.table({"text": ["a\nb\x1b[31m", "x" * (WIDEST + 1), "y" * WIDEST]})
        lines = shown(table, "table").splitlines()[2:]
        self.assertEqual(lines[0], r"a\nb\x1b[31m")
        self.assertEqual(lines[1], "x" * (WIDEST - 1) + "…")
        self.assertEqual(lines[2], "y" * WIDEST)

    def test_valueIsShownByItsDialect(self) -> None:
        table = pa.table({"dialect": ["fleximq", "minimq"], "value": [b"A", b"A"]})
        self.assertEqual(shown(table, "csv"), "dialect,value\nfleximq,65\nminimq,A\n")

    def test_numbersThatJsonLacksAreNullAndFarTimesHaveDuckdbsForm(self) -> None:
        far, day = pa.array([1 << 62], pa.timestamp("us", "UTC")), pa.array([1 << 30], pa.date32())
        nested = pa.StructArray.from_arrays([far, day], ["t", "d"])
        within = pa.table({"s": nested, "l": pa.ListArray.from_arrays([0, 1], far), "d": day})
        self.assertEqual(
            json.loads(shown(within, "json")),
            {"s": {"t": FAR_TIME, "d": FAR_DAY}, "l": [FAR_TIME], "d": FAR_DAY},
        )
        table = pa.table({"n": [float("nan"), float("inf")], "t": pa.array([1 << 62, 0], pa.timestamp("us", "UTC"))})
        self.assertEqual(
            shown(table, "json"), f'{{"n":null,"t":"{FAR_TIME}"}}\n{{"n":null,"t":"1970-01-01T00:00:00.000Z"}}\n'
        )
        self.assertEqual(shown(table.select(["n"]), "csv"), "n\nnan\ninf\n")

    def test_columnsOfOneNameAreAllWritten(self) -> None:
        table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
        self.assertEqual(shown(table, "csv"), "a,a\n1,2\n")

    def test_wideCharactersTakeTwoColumnsAndMarksNone(self) -> None:
        self.assertEqual([widthOf(text) for text in ("abc", "日本", "e\u0301", "")], [3, 4, 1, 0])
