"""Numbers in Avro's encoding that the schema cannot have are faults, wherever they are."""

import json
import sys
from datetime import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.schemas.installed import missing as skip

if not skip:
    import fastavro

    from fleximq.schemas.avro import AvroCodec
    from fleximq.schemas.misfit import Misfit

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
MILLIS, MICROS = {"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}
WIDE, LONG, INDEX, BEFORE = (
    "has more than 32 bits",
    "has a number of more than 64 bits",
    "has no such branch or symbol",
    "does not fit its Avro type: a time of day is negative",
)
#: A text with runs of bytes as a long number has them.
CYRILLIC = "\u0451" * 40


def number(value: int) -> bytes:
    """Return a number in Avro's encoding, of any size."""
    left, made = (value << 1) if value >= 0 else ((-value) << 1) - 1, b""
    while left >= 0x80:
        left, made = left >> 7, made + bytes([left & 0x7F | 0x80])
    return made + bytes([left])


def record(**types: Any) -> dict[str, Any]:
    """Return the schema of a record."""
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": each} for name, each in types.items()]}


INNER = {**record(x="long", y="bytes"), "name": "Inner"}
#: Schemas, payloads as numbers and bytes, and faults.
FAULTS: list[tuple[Any, list[Any], str]] = [
    (record(a="int"), [1 << 31], f"'a' {WIDE}"),
    (record(a="int"), [-(1 << 31) - 1], f"'a' {WIDE}"),
    (record(a={"type": "int"}), [1 << 40], f"'a' {WIDE}"),
    (record(a={"type": "int", "logicalType": "own"}), [1 << 40], f"'a' {WIDE}"),
    ("int", [1 << 40], f"the payload {WIDE}"),
    (record(a=["null", "int"]), [1, 1 << 40], f"'a' {WIDE}"),
    (record(a=["int", "string"]), [0, 1 << 40], f"'a' {WIDE}"),
    (record(b="string", a={"type": "array", "items": "int"}), [0, 1, 1 << 40, 0], f"'a' {WIDE}"),
    (record(a={"type": "map", "values": "int"}), [1, 0, 1 << 40, 0], f"'a' {WIDE}"),
    (
        record(a=["null", {"type": "map", "values": "int"}, {"type": "array", "items": "int"}]),
        [2, 1, 1 << 40, 0],
        f"'a' {WIDE}",
    ),
    (record(a=["null", {**record(i="int"), "name": "I"}]), [1, 1 << 40], f"'a.i' {WIDE}"),
    (
        record(a=["string", {**record(i="int"), "name": "I"}, {**record(j="I"), "name": "J"}]),
        [2, 1 << 40],
        f"'a.j.i' {WIDE}",
    ),
    (record(a=ENUM), [-1], f"'a' {INDEX}"),
    (record(a=ENUM), [-2], f"'a' {INDEX}"),
    (record(a=ENUM, b="E"), [0, -1], f"'b' {INDEX}"),
    (ENUM, [-1], f"the payload {INDEX}"),
    (record(a=MILLIS), [-1], f"'a' {BEFORE}"),
    (record(a=["null", MILLIS]), [1, -86_399_999], f"'a' {BEFORE}"),
    (record(a=MICROS), [-1], f"'a' {BEFORE}"),
    (MICROS, [-1], f"the payload {BEFORE}"),
    (record(a=["null", "string"]), [-2], f"'a' {INDEX}"),
    (record(a={"type": "array", "items": ["null", ENUM]}), [2, 0, 1, -1, 0], f"'a' {INDEX}"),
    (["null", "string"], [-2], f"the payload {INDEX}"),
    (record(a="long"), [1 << 63], f"'a' {LONG}"),
    (record(a="long"), [(1 << 64) + 5], f"'a' {LONG}"),
    (record(a="long"), [b"\x80" * 30 + b"\2"], f"'a' {LONG}"),
    (record(a="string", b="long"), [80, CYRILLIC.encode(), 1 << 70], f"'b' {LONG}"),
    (
        record(a={"type": "array", "items": INNER}, b="Inner"),
        [-1, 7, 3, 9, b"\xff" * 9, 0, 1 << 70, 0],
        f"'b.x' {LONG}",
    ),
    (record(a={"type": "map", "values": ["null", "long"]}), [1, 9, b"\xff" * 9, 1, 1 << 70, 0], "'a' is not UTF-8"),
    (record(a={"type": "map", "values": ["null", "long"]}), [1, 0, 1, 1 << 70, 0], f"'a' {LONG}"),
    (record(a={"type": "fixed", "name": "F", "size": 9}, b="long"), [b"\xff" * 9, 1 << 70], f"'b' {LONG}"),
]
WHOLE: list[tuple[Any, list[Any], Any]] = [
    (record(a="int", b="int"), [(1 << 31) - 1, -(1 << 31)], {"a": (1 << 31) - 1, "b": -(1 << 31)}),
    (record(a="long", b="long"), [(1 << 63) - 1, -(1 << 63)], {"a": (1 << 63) - 1, "b": -(1 << 63)}),
    (record(a=["int", "long"]), [1, 1 << 40], {"a": 1 << 40}),
    (record(a="string", b="long"), [80, CYRILLIC.encode(), 5], {"a": CYRILLIC, "b": 5}),
    (record(a=ENUM, b=["null", "E"]), [1, 1, 0], {"a": "B", "b": "A"}),
    (ENUM, [1], "B"),
    (record(a=MILLIS, b=MICROS), [0, 86_399_999_999], {"a": time(), "b": time(23, 59, 59, 999_999)}),
    (["null", "string"], [0], None),
    (
        record(a={"type": "array", "items": INNER}, b="double", c="boolean", d={"type": "map", "values": "float"}),
        [
            -2,
            30,
            -(1 << 60),
            9,
            b"\xff" * 9,
            5,
            9,
            b"\xff" * 9,
            0,
            b"\xff" * 6 + b"\xef\x7f\1",
            1,
            1,
            b"k",
            b"\0\0\x80\x3f",
            0,
        ],
        {"a": [{"x": -(1 << 60), "y": b"\xff" * 9}, {"x": 5, "y": b"\xff" * 9}], "b": sys.float_info.max, "c": True}
        | {"d": {"k": 1.0}},
    ),
]


def payload(parts: list[Any]) -> bytes:
    """Return numbers and bytes as a payload."""
    return b"".join(each if isinstance(each, bytes) else number(each) for each in parts)


class NumbersTests(SynchronousTestCase):
    """Each place of a number."""

    def test_faults(self) -> None:
        for schema, parts, words in FAULTS:
            codec = AvroCodec([json.dumps(schema)])
            self.assertEqual(str(self.assertRaises(Misfit, codec.read, payload(parts))), words, (schema, parts))

    def test_largestNumbers(self) -> None:
        for schema, parts, value in WHOLE:
            found = AvroCodec([json.dumps(schema)]).read(payload(parts))
            self.assertEqual(found, value, (schema, parts))

    def test_ofOlderWriters(self) -> None:
        """The numbers are those of the writer's schema."""
        for old, new, good, value, bad, words in (
            (record(a="int"), record(a="long"), [7], {"a": 7}, [1 << 31], WIDE),
            (record(a=ENUM), record(a=ENUM), [1], {"a": "B"}, [-1], INDEX),
            (record(a=["null", "int"]), record(a=["null", "long"]), [1, 7], {"a": 7}, [-1, 7], INDEX),
            ("int", "long", [7], 7, [1 << 31], WIDE),
        ):
            new = {**new, "doc": "new"} if isinstance(new, dict) else new
            mark = fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(old), "CRC-64-AVRO")
            prefix = b"\xc3\1" + bytes.fromhex(mark)[::-1]
            codec = AvroCodec([json.dumps(new), json.dumps(old)])
            self.assertEqual(codec.read(prefix + payload(good)), value)
            self.assertIn(words, str(self.assertRaises(Misfit, codec.read, prefix + payload(bad))))
