"""Payloads with schemas in files become columns, each type and each fault."""

import io
import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing
from tests.schemas.files import ORDER, ORDER_JSON, ORDER_PROTO, written
from tests.schemas.installed import missing as missingSchemas

skip = missing or missingSchemas

if not skip:
    import fastavro

    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.payloads import ddl, protobuf_columns
    from fleximq.pipeline.payloads.decoder import Decoder
    from fleximq.pipeline.payloads.schema_formats import formatIn
    from fleximq.schemas.definition import compiled
    from fleximq.values.message import Content
    from tests.pipeline.payloads import read
    from tests.pipeline.payloads.read import binary, codes, texts


def rowsOf(decoded: Any) -> list[Any]:
    """Return for each row its values, or its error."""
    return list(read.rowsOf(decoded))


FAR = 'import "http://127.0.0.1/x.proto";'


def decoderOf(text: str) -> "Decoder":
    """Return the decoder of a format as an option names it."""
    payloadFormat, definition = formatIn(text)
    # As it travels to the tasks.
    made: Decoder = pickle.loads(pickle.dumps(Decoder(payloadFormat, definition=definition)))
    return made


def avro(schema: Any, value: Any) -> bytes:
    """Return a value in Avro's binary encoding."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def record(**types: Any) -> dict[str, Any]:
    """Return the schema of a record."""
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": each} for name, each in types.items()]}


class AvroTests(SynchronousTestCase):
    """``avro:FILE``."""

    def decoded(self, schema: Any, *payloads: bytes) -> tuple[str, list[Any]]:
        """Return the columns, and the rows of payloads."""
        decoder = decoderOf(f"avro:{written(self, 'schema.avsc', schema)}")
        return ddl.written(decoder.schema), rowsOf(decoder.decode(binary(payloads)))

    def test_record(self) -> None:
        value = {"id": 7, "total": Decimal("21.50"), "address": {"city": "Graz"}, "note": None}
        columns, rows = self.decoded(ORDER, avro(ORDER, value))
        self.assertEqual(columns, "id BIGINT, total DECIMAL(10,2), address STRUCT<city: STRING>, note STRING")
        self.assertEqual(rows, [value])

    def test_logicalTypes(self) -> None:
        def logical(kind: str, name: str) -> dict[str, str]:
            return {"type": kind, "logicalType": name}

        schema = record(
            day=logical("int", "date"),
            at=logical("long", "timestamp-micros"),
            millis=logical("long", "timestamp-millis"),
            local=logical("long", "local-timestamp-micros"),
            clock=logical("int", "time-millis"),
            unique=logical("string", "uuid"),
            long_decimal={"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 1},
        )
        moment = datetime(2026, 1, 31, 12, 30, 0, 5000, UTC)
        value = {
            "day": date(2026, 1, 31),
            "at": moment,
            "millis": moment,
            "local": moment.replace(tzinfo=None),
            "clock": time(12, 30),
            "unique": UUID(int=5),
            "long_decimal": Decimal("1.5"),
        }
        columns, [row] = self.decoded(schema, avro(schema, value))
        self.assertEqual(
            columns,
            "day DATE, at TIMESTAMP, millis TIMESTAMP, local STRING, clock STRING, unique STRING, long_decimal STRING",
        )
        self.assertEqual(
            row,
            value
            | {"local": "2026-01-31T12:30:00.005000", "clock": "12:30:00", "long_decimal": "1.5"}
            | {"unique": "00000000-0000-0000-0000-000000000005"},
        )

    def test_nested(self) -> None:
        schema = record(
            kind={"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
            again="Kind",
            seal={"type": "fixed", "name": "Seal", "size": 2},
            counts={"type": "map", "values": "int"},
            many={
                "type": "array",
                "items": record(when={"type": "long", "logicalType": "local-timestamp-millis"}) | {"name": "In"},
            },
        )
        when = datetime(2026, 1, 1)
        value = {"kind": "B", "again": "A", "seal": b"ab", "counts": {"x": 1}, "many": [{"when": when}]}
        columns, [row] = self.decoded(schema, avro(schema, value))
        self.assertEqual(
            columns,
            "kind STRING, again STRING, seal BINARY, counts MAP<STRING, INT>, many ARRAY<STRUCT<when: STRING>>",
        )
        self.assertEqual(row, value | {"counts": [("x", 1)], "many": [{"when": "2026-01-01T00:00:00"}]})

    def test_unions(self) -> None:
        one, other = record(a="int") | {"name": "x.One"}, record(a="int") | {"name": "x.Other"}
        schema = record(
            number=["null", "int", "long"], real=["float", "double"], mixed=["null", "string", "long", one, other]
        )
        payloads = [
            avro(schema, {"number": 1 << 40, "real": 1.5, "mixed": mixed})
            for mixed in (None, "text", 5, ("x.Other", {"a": 3}))
        ]
        columns, rows = self.decoded(schema, *payloads)
        self.assertEqual(
            columns,
            "number BIGINT, real DOUBLE, "
            "mixed STRUCT<string: STRING, long: BIGINT, One: STRUCT<a: INT>, Other: STRUCT<a: INT>>",
        )
        nothing = {"string": None, "long": None, "One": None, "Other": None}
        self.assertEqual(
            [row["mixed"] for row in rows],
            [None, nothing | {"string": "text"}, nothing | {"long": 5}, nothing | {"Other": {"a": 3}}],
        )
        self.assertEqual((rows[0]["number"], rows[0]["real"]), (1 << 40, 1.5))

    def test_noRecord(self) -> None:
        self.assertEqual(self.decoded('"string"', b"\x04ab"), ("value STRING", [{"value": "ab"}]))

    def test_namesTheField(self) -> None:
        good = avro(ORDER, {"id": 7, "total": Decimal("21.50"), "address": {"city": "Graz"}, "note": None})
        _, rows = self.decoded(
            ORDER, good[:1], good[:2], good[:5], good[:-1], good + b"x", b"", good[:4] + b"\x04\xff\xff\0"
        )
        self.assertEqual(
            rows,
            [
                "'total' is cut off",
                "'total' is cut off",
                "'address.city' is cut off",
                "'note' is cut off",
                "the payload has 1 bytes after the last field of its Avro schema",
                "'id' is cut off",
                "'address.city' is not UTF-8",
            ],
        )

    def test_decimalOfMoreDigits(self) -> None:
        schema = record(a={"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1})
        _, rows = self.decoded(schema, b"\x06\x7f\xff\xff")
        self.assertEqual(rows, ["'a' does not fit a DECIMAL(2,1)"])

    def test_olderWriters(self) -> None:
        """The first schema is the reader's; a fingerprint chooses the writer's, and Avro's rules fill the columns."""
        old = record(a="int")
        new = {
            **record(a="long"),
            "fields": [{"name": "b", "type": "string", "default": "?"}, *record(a="long")["fields"]],
        }
        files = [written(self, "schema.avsc", each) for each in (new, old)]
        mark = (
            b"\xc3\x01"
            + bytes.fromhex(fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(old), "CRC-64-AVRO"))[
                ::-1
            ]
        )
        decoder = decoderOf(f"avro:{','.join(files)}")
        rows = rowsOf(decoder.decode(binary([mark + avro(old, {"a": 5}), avro(new, {"a": 6, "b": "x"})])))
        self.assertEqual(rows, [{"b": "?", "a": 5}, {"b": "x", "a": 6}])

    def test_bytesFromFlexiMQ(self) -> None:
        """A client of FlexiMQ sends bytes as MessagePack's bin; another value does not fit."""
        decoder = decoderOf(f"avro:{written(self, 'schema.avsc', record(a='int'))}")
        values = binary([msgpack.packb(b"\x0a"), msgpack.packb({"a": 5}), b"\x0a"])
        contents = codes([Content.MESSAGEPACK, Content.MESSAGEPACK, Content.BYTES])
        found = decoder.decode(values, texts(["fleximq", "fleximq", "blipmq"]), contents)
        self.assertEqual(
            rowsOf(found), [{"a": 5}, "the payload is no bytes but another value of MessagePack", {"a": 5}]
        )

    def test_refusedSchemas(self) -> None:
        many: Any = record(a="int")
        for level in range(14):
            many = {**record(a=many, b=f"R{level}"), "name": f"R{level + 1}"}
            many["fields"][0]["type"] = {**many["fields"][0]["type"], "name": f"R{level}"}
        for schema, words in (
            (record(a="unknown"), "the type 'unknown' is unknown"),
            (record(next=["null", "R"]), "has the type 'R' inside itself, which is not supported"),
            (
                record(a={"type": "array", "items": "null"}),
                "an array of items without bytes, which could be any number",
            ),
            (many, "has more than 10,000 types"),
            ("[", "cannot be used"),
            (record(A="int", a="int"), "twice"),
        ):
            file = written(self, "schema.avsc", schema)
            error = self.assertRaises(OptionRefused, lambda file=file: decoderOf(f"avro:{file}"))
            self.assertIn(words, str(error))
        error = self.assertRaises(OptionRefused, decoderOf, "avro:/nowhere.avsc")
        self.assertEqual(str(error), "the schema /nowhere.avsc cannot be read: no such file or directory")


class ProtobufTests(SynchronousTestCase):
    """``protobuf:FILE,MESSAGE``."""

    def setUp(self) -> None:
        self.file = written(self, "order.proto", ORDER_PROTO)
        self.decoder = decoderOf(f"protobuf:{self.file},shop.Order")

    def message(self, text: str) -> bytes:
        """Return a message from protobuf's text format."""
        from google.protobuf import text_format

        from fleximq.schemas.protobuf import ProtobufCodec

        codec = ProtobufCodec(compiled(self.file.rpartition("/")[0], "order.proto"), "shop.Order")
        found = text_format.Parse(text, codec._class())
        serialized: bytes = found.SerializeToString()
        return serialized

    def test_columns(self) -> None:
        self.assertEqual(
            ddl.written(self.decoder.schema),
            "id BIGINT, total DOUBLE, name STRING, items ARRAY<STRUCT<sku: STRING, number: BIGINT>>, "
            "places MAP<STRING, STRUCT<sku: STRING, number: BIGINT>>, at TIMESTAMP, took DECIMAL(21,9), weight BIGINT, "
            "more STRING, rank INT, card STRING, cash DECIMAL(20,0), state STRING, parent STRING, seal BINARY, "
            "flags MAP<STRING, BOOLEAN>",
        )

    def test_values(self) -> None:
        payload = self.message(
            'id: 5 total: 2.5 items { sku: "a" number: 3 } places { key: 7 value { sku: "b" } } at { seconds: 10 '
            'nanos: 5000 } took { seconds: -1 nanos: -500000000 } weight { value: 9 } more { fields { key: "x" value { '
            'bool_value: true } } } cash: 18446744073709551615 state: PAID parent { id: 4 } seal: "\\377" flags { key: '
            '"f" value: true }'
        )
        [row, empty] = rowsOf(self.decoder.decode(binary([payload, b""])))
        self.assertEqual(
            row,
            {
                "id": 5,
                "total": 2.5,
                "name": "",
                "items": [{"sku": "a", "number": 3}],
                "places": [("7", {"sku": "b", "number": 0})],
                "at": datetime(1970, 1, 1, 0, 0, 10, 5, UTC),
                "took": Decimal("-1.500000000"),
                "weight": 9,
                "more": '{"x": true}',
                "rank": None,
                "card": None,
                "cash": Decimal(18446744073709551615),
                "state": "PAID",
                "parent": '{"id": "4"}',
                "seal": b"\xff",
                "flags": [("f", True)],
            },
        )
        self.assertEqual(empty["state"], "OPEN")
        self.assertEqual([empty[name] for name in ("at", "weight", "rank", "cash", "parent")], [None] * 5)

    def test_unknownFieldsAreNewer(self) -> None:
        [row] = rowsOf(self.decoder.decode(binary([b"\x08\x05\xf8\x07\x01"])))
        self.assertEqual(row["id"], 5)

    def test_namesTheField(self) -> None:
        payloads = [b"\x0a\x01a", b"\x08", b"\x1a\x05ab", b"\x1a\x02\xff\xfe", b"\xff" * 11, b"\x22\x02\x0a\x05"]
        payloads += [b"\x22\x02\x08\x05"]
        self.assertEqual(
            rowsOf(self.decoder.decode(binary(payloads))),
            [
                "'id' is sent with wire type 2, not as int64",
                "'id' is cut off",
                "'name' is cut off",
                "'name' is not UTF-8",
                "the payload is no message of Protocol Buffers",
                "'items.sku' is cut off",
                "'items[0].sku' is sent with wire type 0, not as string",
            ],
        )

    def test_manyMessages(self) -> None:
        """Messages inside, which may have two bytes and many fields, are bounded in each payload."""
        self.patch(protobuf_columns, "MAX_VALUES", len(self.decoder.schema) + 2 * 20)
        rows = rowsOf(self.decoder.decode(binary([b"\x22\x00" * number for number in (20, 21, 20)])))
        self.assertEqual([type(row) is dict and len(row["items"]) for row in rows], [20, False, 20])
        self.assertEqual(rows[1], f"the payload has more than {protobuf_columns.MAX_VALUES} values in its messages")

    def test_timeOutOfRange(self) -> None:
        [row] = rowsOf(self.decoder.decode(binary([b"\x32\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"])))
        self.assertIn("'at'", row)

    def test_refusedFiles(self) -> None:
        for text, words in (
            (f"protobuf:{self.file},shop.Nothing", "it has no message 'shop.Nothing', only shop.Item, shop.Order"),
            (f"protobuf:{written(self, 'bad.proto', 'syntax = 5;')},x", "bad.proto:1:10"),
            (f"protobuf:{written(self, 'bad.desc', 'xyz')},x", "it is no set of descriptors of Protocol Buffers"),
            (f"protobuf:{written(self, 'far.proto', FAR)},x", "was not found"),
        ):
            self.assertIn(words, str(self.assertRaises(OptionRefused, decoderOf, text)))


class JsonSchemaTests(SynchronousTestCase):
    """``json-schema:FILE``."""

    def setUp(self) -> None:
        self.decoder = decoderOf(f"json-schema:{written(self, 'order.json', ORDER_JSON)}")

    def test_columns(self) -> None:
        self.assertEqual(
            ddl.written(self.decoder.schema),
            "id BIGINT, total DOUBLE, at TIMESTAMP, tags ARRAY<STRING>, address STRUCT<city: STRING>, "
            "prices MAP<STRING, DOUBLE>, note STRING, any STRING",
        )

    def test_references(self) -> None:
        """Those by anchors and ids, also beside properties; a schema inside itself is a text."""
        number = {"type": "object", "properties": {"n": {"type": "integer"}}}
        other = {"properties": {"b": {"type": "boolean"}, "again": {"$ref": "first"}}}
        for schema, columns in (
            ({"properties": {"a": {"$ref": "#x"}}, "$defs": {"x": {"$anchor": "x", **number}}}, "a STRUCT<n: BIGINT>"),
            ({"allOf": [{"$ref": "#x"}], "$defs": {"x": {"$anchor": "x", **number}}}, "n BIGINT"),
            ({"$ref": "#x", "$defs": {"x": {"$anchor": "x", **number}}, **other}, "b BOOLEAN, again STRING, n BIGINT"),
            ({"$id": "first", "$defs": {"x": {"$id": "x", **other}}, "$ref": "x"}, "b BOOLEAN, again STRING"),
            ({"$dynamicRef": "#x", "$defs": {"x": {"$dynamicAnchor": "x", **number}}}, "n BIGINT"),
            (
                {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/x"}
                | {"properties": {"b": {}}, "definitions": {"x": number}},
                "n BIGINT",
            ),
        ):
            schema = {"$id": "first", **schema}
            decoder = decoderOf(f"json-schema:{written(self, 'schema.json', schema)}")
            self.assertEqual(ddl.written(decoder.schema), columns, schema)

    def test_values(self) -> None:
        value = {
            "id": 5,
            "total": 2,
            "at": "2026-01-31T12:00:00Z",
            "tags": ["a"],
            "address": {"city": "Graz"},
            "prices": {"x": 1.5},
            "any": [1],
        }
        [row] = rowsOf(self.decoder.decode(binary([json.dumps(value).encode()])))
        moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
        self.assertEqual(row, value | {"at": moment, "prices": [("x", 1.5)], "note": None, "any": "[1]"})

    def test_namesTheField(self) -> None:
        payloads = [
            b'{"id": 1, "total": "x"}',
            b'{"id": 1}',
            b'{"id": 1, "total": 1, "address": {"city": "x", "street": "y"}}',
            b'{"id": 1, "total": 1, "tags": ["a", 5]}',
            b'{"id": 1, "total": 1, "at": "yesterday"}',
            b"[]",
            b"{",
            b'{"id": 99999999999999999999, "total": 1}',
            b"\xff",
        ]
        rows = rowsOf(self.decoder.decode(binary(payloads)))
        self.assertEqual(
            rows[:6],
            [
                "'total' must be a number",
                "'total' is missing",
                "'address.street' is not a field of the schema",
                "'tags[1]' must be a string",
                "'at' is not a \"date-time\"",
                "the payload must be an object",
            ],
        )
        self.assertIn("the payload is no JSON", rows[6])
        self.assertIn("'id'", rows[7])
        self.assertIn("the payload is no JSON", rows[8])

    def test_messagePackOfFlexiMQ(self) -> None:
        values = binary([msgpack.packb({"id": 1, "total": 2.5}), msgpack.packb({"id": 1, "total": "x"})])
        found = self.decoder.decode(values, texts(["fleximq"] * 2), codes([Content.MESSAGEPACK] * 2))
        first, second = rowsOf(found)
        self.assertEqual((first["id"], first["total"], second), (1, 2.5, "'total' must be a number"))

    def test_refusedSchemas(self) -> None:
        for schema, words in (
            ({"type": "objct"}, "it is no JSON Schema"),
            ({"$ref": "http://127.0.0.1:9/x"}, "cannot fetch http://127.0.0.1:9/x"),
            ({"$ref": "file:///etc/passwd"}, "cannot fetch file:///etc/passwd"),
            ({"pattern": "(?=a)^(a+)+$"}, 'is not a "regex"'),
            ("{", "it is no JSON Schema"),
        ):
            text = f"json-schema:{written(self, 'schema.json', schema)}"
            self.assertIn(words, str(self.assertRaises(OptionRefused, decoderOf, text)))


class MissingFileTests(SynchronousTestCase):
    """Formats without their file."""

    def test_words(self) -> None:
        for payloadFormat, words in (
            ("avro", "payloads in avro need the file of the schema: avro:FILE"),
            ("registry", "payloads in registry need the URL of the schema registry: registry:https://HOST"),
        ):
            self.assertEqual(str(self.assertRaises(OptionRefused, Decoder, payloadFormat)), words)
