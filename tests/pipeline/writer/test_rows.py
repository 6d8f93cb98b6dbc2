"""Rows as records, in portions."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.errors import RowRefused
from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa

    from fleximq.pipeline.writer.rows import RECORDS, Rows, valuesOf


def records(columns: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """Return the records of one batch."""
    batch = pa.record_batch(columns)
    return [record for portion in Rows(**options).portions([batch]) for record in portion]


class RecordsTests(SynchronousTestCase):
    """What becomes of a row."""

    def test_topicAndValueAreEnough(self) -> None:
        found = records({"topic": ["a", "b"], "value": [b"1", b"2"], "offset": [7, 8]})
        self.assertEqual(found, [{"topic": "a", "value": b"1"}, {"topic": "b", "value": b"2"}])

    def test_optionIsTheTopicOfRowsWithoutOne(self) -> None:
        self.assertEqual(records({"value": ["x"]}, topic="all"), [{"topic": "all", "value": "x"}])
        found = records({"topic": ["a", None], "value": ["x", "y"]}, topic="all")
        self.assertEqual([record["topic"] for record in found], ["a", "all"])

    def test_rowWithoutATopicIsRefused(self) -> None:
        for topics in (["a", None], [None, None]):
            with self.assertRaisesRegex(RowRefused, "a row has no topic"):
                records({"topic": pa.array(topics, pa.string()), "value": ["x", "y"]})

    def test_keyIsAHeaderAndRowsWithoutBothHaveNone(self) -> None:
        headers = pa.array([[("a", "1")], None, [], [("key", "old")]], pa.map_(pa.string(), pa.string()))
        found = records({"topic": ["t"] * 4, "value": ["x"] * 4, "headers": headers, "key": [b"k", None, None, b"new"]})
        self.assertEqual(
            [record.get("headers") for record in found], [{"a": "1", "key": b"k"}, None, None, {"key": b"new"}]
        )

    def test_originalValueKeepsItsBytesAndContent(self) -> None:
        """An original value stays the bytes it is; its content says what they are, or else its dialect does."""
        columns = {
            "topic": ["t"] * 6,
            "value": pa.array([b"\x01", b"\x01", b"a", b"a", b"x", None], pa.binary()),
            "dialect": ["fleximq", "blipmq", "minimq", "identity", "other", "broker"],
        }
        found = [(record["payload"], record["content"]) for record in records(columns, original=True)]
        guessed = [(b"\x01", 0x100), (b"\x01", 0x101), (b"a", 0x102), (b"a", 0x102), (b"x", 0x101), (b"", 0x100)]
        self.assertEqual(found, guessed)
        said = columns | {"content": pa.array([1, 0, None, 0x702, 2, 0x100], pa.int32())}
        found = [(record["payload"], record["content"]) for record in records(said, original=True)]
        self.assertEqual([content for _, content in found], [1, 0, 0x102, 0x702, 2, 0x100])
        self.assertNotIn("value", records(said, original=True)[0])

    def test_nullIsNilOfAnyType(self) -> None:
        for dataType in (pa.binary(), pa.string(), pa.int64(), pa.struct([("a", pa.int64())])):
            found = records({"topic": ["t"], "value": pa.array([None], dataType)})
            self.assertEqual(found, [{"topic": "t", "value": None}])

    def test_packedBytesAreSentAsTheirValue(self) -> None:
        values = [msgpack.packb({"a": [1, None]}), b"", None]
        found = records({"topic": ["t"] * 3, "value": pa.array(values, pa.binary())}, packed=True)
        self.assertEqual([record["value"] for record in found], [{"a": [1, None]}, None, None])

    def test_bytesThatAreNotOneMessagePackValueAreRefused(self) -> None:
        for value in (b"\xc1", b"\x01\x02", b"\x92\x01"):
            with self.assertRaisesRegex(RowRefused, "no MessagePack"):
                records({"topic": ["t"], "value": [value]}, packed=True)

    @given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.binary(max_size=40)), max_size=60))
    def test_allRowsAreThereOnceInOrderHoweverCut(self, rows: list[tuple[str, bytes | None]]) -> None:
        topics, values = [row[0] for row in rows], [row[1] for row in rows]
        batch = pa.record_batch({"topic": pa.array(topics, pa.string()), "value": pa.array(values, pa.binary())})
        portions = list(Rows(portion=100).portions([batch, batch.slice(0, 0), batch]))
        found = [(record["topic"], record["value"]) for portion in portions for record in portion]
        self.assertEqual(found, rows + rows)
        self.assertTrue(all(portions))


class PortionTests(SynchronousTestCase):
    """How much is sent at once."""

    def portions(self, number: int, size: int, portion: int) -> list[int]:
        """Return how many rows each portion of two equal batches has."""
        batch = pa.record_batch({"topic": ["t"] * number, "value": [b"x" * size] * number})
        return [len(each) for each in Rows(portion=portion).portions([batch, batch])]

    def test_portionEndsWithTheRowThatFillsIt(self) -> None:
        self.assertEqual(self.portions(10, 75, 400), [4, 4, 4, 4, 4])  # a row counts 100 bytes
        self.assertEqual(self.portions(10, 75, 401), [5, 5, 5, 5])

    def test_rowLargerThanAPortionIsAlone(self) -> None:
        self.assertEqual(self.portions(2, 5000, 1024), [1, 1, 1, 1])

    def test_portionHasNoMoreRecordsThanTheBrokerTakes(self) -> None:
        self.assertEqual(self.portions(RECORDS, 0, 1 << 30), [RECORDS, RECORDS])
        self.assertEqual(self.portions(RECORDS - 1, 0, 1 << 30), [RECORDS, RECORDS - 2])

    def test_headersFillAPortion(self) -> None:
        headers = pa.array([[("a", "x" * 1000)]] * 4, pa.map_(pa.string(), pa.string()))
        batch = pa.record_batch({"topic": ["t"] * 4, "value": [b""] * 4, "headers": headers})
        self.assertEqual([len(each) for each in Rows(portion=1500).portions([batch])], [2, 2])

    def test_unpackedValuesFillAPortion(self) -> None:
        batch = pa.record_batch({"topic": ["t"] * 4, "value": [{"a": "x" * 1000}] * 4})
        self.assertEqual([len(each) for each in Rows(portion=1500).portions([batch])], [2, 2])


class ValuesTests(SynchronousTestCase):
    """What MessagePack gets for the types of columns."""

    def one(self, value: Any, dataType: pa.DataType) -> Any:
        """Return what becomes of one value, alone and inside a struct, an array and a map, which all have to agree."""
        alone = valuesOf(pa.array([value], dataType))[0]
        struct = valuesOf(pa.array([{"f": value}, None], pa.struct([("f", dataType)])))
        self.assertEqual(struct, [{"f": alone}, None])
        self.assertEqual(valuesOf(pa.array([{"f": value}], pa.struct([("f", dataType)]))), [{"f": alone}])
        self.assertEqual(valuesOf(pa.array([[value, None]], pa.list_(dataType))), [[alone, None]])
        self.assertEqual(valuesOf(pa.array([[("k", value)]], pa.map_(pa.string(), dataType))), [{"k": alone}])
        self.assertEqual(msgpack.unpackb(msgpack.packb(alone), strict_map_key=False), alone)
        return alone

    def test_plainValuesStay(self) -> None:
        for value, dataType in (
            (-5, pa.int8()), (1 << 62, pa.int64()), (1.5, pa.float64()), (True, pa.bool_()), ("ü", pa.string()),
            (b"\xff", pa.binary()),
        ):  # fmt: skip
            self.assertEqual(self.one(value, dataType), value)

    def test_timesAreTextsWithMicroseconds(self) -> None:
        time = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
        self.assertEqual(self.one(time, pa.timestamp("us")), "2026-01-02T03:04:05.000006")
        utc = time.replace(tzinfo=datetime.UTC)
        self.assertEqual(self.one(utc, pa.timestamp("us", tz="UTC")), "2026-01-02T03:04:05.000006Z")
        self.assertEqual(self.one(utc, pa.timestamp("us", tz="Europe/Berlin")), "2026-01-02T03:04:05.000006Z")

    def test_datesAndDecimalsAreTextsAndDurationsMicroseconds(self) -> None:
        self.assertEqual(self.one(datetime.date(2026, 1, 2), pa.date32()), "2026-01-02")
        self.assertEqual(self.one(decimal.Decimal("1.50"), pa.decimal128(5, 2)), "1.50")
        self.assertEqual(self.one(datetime.timedelta(seconds=1, microseconds=2), pa.duration("us")), 1_000_002)

    def test_keysOfMapsAreConverted(self) -> None:
        table = pa.array([[(datetime.date(2026, 1, 2), 1)]], pa.map_(pa.date32(), pa.int64()))
        self.assertEqual(valuesOf(table), [{"2026-01-02": 1}])

    def test_sliceOfStructsHasItsOwnRows(self) -> None:
        whole = pa.array([{"a": each} for each in range(5)])
        self.assertEqual(valuesOf(whole.slice(2, 2)), [{"a": 2}, {"a": 3}])
