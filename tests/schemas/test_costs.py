"""Payloads that would take long to read or check are refused by their counted cost; others of their size are not."""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from tests.schemas.installed import missing as skip

if not skip:
    from fleximq.schemas.avro import MAX_DECIMAL, AvroCodec
    from fleximq.schemas.json_schema import JsonSchemaCodec
    from fleximq.schemas.misfit import Misfit

MEBIBYTE = 1 << 20


def nested(levels: int) -> Any:
    """Return an Avro type of records in records, of one byte."""
    inner: Any = "boolean"
    for level in range(levels):
        inner = {"type": "record", "name": f"R{level}", "fields": [{"name": "x", "type": inner}]}
    return inner


def array(items: Any, count: int, item: bytes) -> tuple[dict[str, Any], bytes]:
    """Return an Avro type and a payload with an array."""
    left, length = count << 1, b""
    while left >= 0x80:
        left, length = left >> 7, length + bytes([left & 0x7F | 0x80])
    return {"type": "array", "items": items}, length + bytes([left]) + item * count + b"\0"


def chain(length: int, last: str) -> dict[str, Any]:
    """Return a JSON Schema of references with two alternatives each, so that deciding takes a power of two."""
    defined: dict[str, Any] = {f"a{each}": {"allOf": [{"$ref": f"#/$defs/a{each + 1}"}] * 2} for each in range(length)}
    return {"items": {"$ref": "#/$defs/a0"}, "$defs": {**defined, f"a{length}": {"type": last}}}


class CostTests(SynchronousTestCase):
    """What is refused by its cost, in which words."""

    skip = skip

    def avro(self, schema: Any, payload: bytes) -> str:
        """Return why a payload is refused, "" if it is not."""
        return self.fault(AvroCodec([json.dumps(schema)]), payload)

    def json(self, schema: Any, payload: bytes) -> str:
        """Return why a document is refused, "" if it is not."""
        return self.fault(JsonSchemaCodec(json.dumps(schema)), payload)

    def fault(self, codec: Any, payload: bytes) -> str:
        """Return why a payload is refused."""
        try:
            codec.read(payload)
        except Misfit as misfit:
            return misfit.words
        return ""

    def test_avroItems(self) -> None:
        """The bytes of an array are limited by what each of its items takes."""
        empty = {"type": "record", "name": "E", "fields": [{"name": f"n{each}", "type": "null"} for each in range(99)]}
        wide = {**empty, "fields": [*empty["fields"], {"name": "x", "type": "boolean"}]}
        for items, count, isRead in (
            ("boolean", MEBIBYTE // 2, True),
            (nested(1), 20_000, True),
            (nested(28), 1000, True),
            (nested(28), MEBIBYTE // 2, False),
            (wide, 1000, True),
            (wide, 20_000, False),
            ({"type": "int", "logicalType": "date"}, 20_000, True),
        ):
            fault = self.avro(*array(items, count, b"\0"))
            self.assertEqual(fault == "", isRead, f"{items} {count}: {fault}"[:200])
            if not isRead:
                self.assertRegex(fault, r"has more than [\d,]+ bytes, the most with the arrays and maps of its Avro")

    def test_avroDecimals(self) -> None:
        """A decimal is limited, since its conversion takes time by the square of its bytes."""
        decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9000, "scale": 2}

        def payload(size: int) -> bytes:
            return bytes([size << 1 & 0x7F | 0x80, size >> 6]) + b"\1" * size

        self.assertEqual(self.avro(decimal, payload(MAX_DECIMAL)), "")
        self.assertIn(f"a decimal has more than {MAX_DECIMAL:,} bytes", self.avro(decimal, payload(MAX_DECIMAL + 1)))

    def test_jsonAlternatives(self) -> None:
        """The bytes of a document are limited by the checks of a value, those of references included."""
        ones = b"[" + b"1," * 1400 + b"1]"
        self.assertEqual(self.json(chain(12, "integer"), ones), "")
        self.assertRegex(self.json(chain(12, "integer"), ones * 2), "has more than 2,9[0-9]{2} bytes, the most")
        with self.assertRaises(SettingError) as raised:
            JsonSchemaCodec(json.dumps(chain(24, "integer")))
        self.assertIn("too many checks for a document of 1,000 bytes", str(raised.exception))

    def test_jsonManyAlternatives(self) -> None:
        """A schema of hundreds of alternatives allows documents of usual sizes."""
        kinds = [
            {"type": "object", "properties": {"kind": {"const": each}}, "required": [str(each)]} for each in range(300)
        ]
        document = b'{"299":1,"kind":299,"text":"%s"}' % (b"x" * 60_000)
        self.assertEqual(self.json({"oneOf": kinds}, document), "")

    def test_jsonNumbers(self) -> None:
        """Divisions by fractions, and numbers of hundreds of digits, are counted."""
        ones = b"[" + b"1," * 100_000 + b"1]"
        self.assertEqual(self.json({"items": {"multipleOf": 0.01}}, ones), "")
        self.assertRegex(self.json({"items": {"multipleOf": 1e-300}}, ones), r"has more than [\d,]+ bytes, the most")
        huge = b"[" + b"1e308," * 100_000 + b"1]"
        self.assertEqual(self.json({}, huge), "has more than 20,000 numbers of 10^200 and more")
        self.assertEqual(self.json({}, huge[:60_001] + b"1]"), "")
