"""Messages as JSON objects."""

import json
from base64 import b64encode
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as some
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.http.operations.message_rows import Alike, headOf, recordRows, rows, valueOf
from fleximq.values.message import Content, Message
from fleximq.values.records import StoredBatch, contentOf
from fleximq.wire.messagepack_json import toJson

MESSAGEPACK = contentOf(Message(b"", Content.MESSAGEPACK))
TEXT = contentOf(Message(b"", Content.TEXT))


def read(value: bytes) -> Any:
    """Return a value with its encoding, as a reader finds it."""
    found = json.loads(b'{"value":%b}' % value)
    return found["value"] if len(found) == 1 else found


def base64(content: bytes) -> dict[str, str]:
    """Return what a reader finds for bytes."""
    return {"value": b64encode(content).decode(), "encoding": "base64"}


class ValueTests(SynchronousTestCase):
    """The value of a payload."""

    def check(self, payload: bytes, value: Any, content: Content = Content.MESSAGEPACK) -> None:
        self.assertEqual(read(valueOf(content, payload)), value)

    def test_messagePackIsItsJson(self) -> None:
        for value in (None, 1, -2.5, "\u2028\r\n", {"a": [True, {}]}, 2**63):
            self.check(msgpack.packb(value), value)

    def test_noPayloadIsNull(self) -> None:
        self.check(b"", None)

    def test_bytesSayThatTheyAreBase64(self) -> None:
        for size in (3, 2000):
            self.check(msgpack.packb(b"x" * size), base64(b"x" * size))
            self.check(b"x" * size, base64(b"x" * size), Content.BYTES)

    def test_textIsAString(self) -> None:
        self.check(b'"\n', '"\n', Content.TEXT)

    def test_whatIsNoValueIsBase64(self) -> None:
        for payload in (b"\xc1", b"\xa1xy", b"\xa2\xff\xfe", b"\x91" * 5000):
            self.check(payload, base64(payload))

    def test_oddKeysAreStrings(self) -> None:
        self.check(msgpack.packb({1: "a", None: "b"}), {"1": "a", "null": "b"})

    def test_aTimestampIsIsoText(self) -> None:
        self.check(msgpack.packb([msgpack.Timestamp(1, 5)]), ["1970-01-01T00:00:01.000000005Z"])

    def test_aLargeValueIsBase64(self) -> None:
        payload = msgpack.packb([0] * 70_000)
        self.check(payload, base64(payload))

    @given(
        some.recursive(
            some.none() | some.booleans() | some.integers(-(2**63), 2**64 - 1) | some.floats() | some.text(),
            lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text() | some.integers(-5, 5), inner),
            max_leaves=8,
        )
    )
    def test_smallValuesReadAsLargeOnes(self, value: Any) -> None:
        packed = msgpack.packb(value)
        self.assertEqual(json.loads(valueOf(Content.MESSAGEPACK, packed)), json.loads(toJson(packed)))

    @given(some.binary(max_size=40))
    def test_anyBytesAreAValue(self, payload: bytes) -> None:
        for content in Content:
            self.assertNotIn(b"\n", valueOf(content, payload))
            read(valueOf(content, payload))


class RowTests(SynchronousTestCase):
    """Objects of messages."""

    def test_aHeaderIsFieldsAndOthers(self) -> None:
        header = msgpack.packb({"message_id": "m", "key": "k", "priority": 9, "mine": [1]})
        self.assertEqual(
            json.loads(headOf("t\n", header) + b"}"),
            {"topic": "t\n", "message_id": "m", "key": "k", "headers": {"priority": 9, "mine": [1]}},
        )

    def test_aStoredMessageHasItsOffsetAndTime(self) -> None:
        payloads = [msgpack.packb(each) for each in ("a", "b")]
        found = rows(Alike("50%d", b"", 1_000_007), [MESSAGEPACK] * 2, payloads, 41, False)
        self.assertEqual(
            [*map(json.loads, found)],
            [{"topic": "50%d", "time": 1.000007, "offset": 41 + place, "value": "ab"[place]} for place in (0, 1)],
        )

    def test_anEventHasTheOffsetAsItsId(self) -> None:
        [event] = rows(Alike("t", b"", 0), [TEXT], [b"a\ndata: b\r\n\r\nid: 9"], 7, True)
        [first, data, *rest] = event.split(b"\n")
        self.assertEqual((first, rest), (b"id: 7", [b"", b""]))
        self.assertEqual(json.loads(data.removeprefix(b"data: "))["value"], "a\ndata: b\r\n\r\nid: 9")
        self.assertNotIn(b"\r", event)

    def test_oneThatIsNotStoredHasNone(self) -> None:
        self.assertEqual(rows(Alike("t", b"", 0), [TEXT], [b"a"], 0, True), [b'data: {"topic":"t","value":"a"}\n\n'])

    def test_kindsMayBeMixed(self) -> None:
        found = rows(Alike("t", b"", 0), [TEXT, MESSAGEPACK], [b"1", b"\x01"], 0, False)
        self.assertEqual([json.loads(each)["value"] for each in found], ["1", 1])

    def test_recordsOfOneBatchMayDiffer(self) -> None:
        batch = StoredBatch(
            [3, 4, 6, 7], [1_000_000] * 4, ["a", "b"], [0, 0, 0, 1], [(5, "")], [0] * 4, [1] * 4, [TEXT] * 4,
            [b""] * 4, [b"w", b"x", b"y", b"z"],
        )  # fmt: skip
        found = [json.loads(each) for each in recordRows(batch, True, False)]
        self.assertEqual(
            [(each["topic"], each["offset"], each["value"], each["time"]) for each in found],
            [("a", 3, "w", 1.0), ("a", 4, "x", 1.0), ("a", 6, "y", 1.0), ("b", 7, "z", 1.0)],
        )
        self.assertNotIn("offset", json.loads(recordRows(batch, False, False)[0]))
