"""Messages of each content are checked by the schema of their topic."""

import io

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from fleximq.values.message import Content, Message
from tests.schemas.files import ORDER_JSON, ORDER_PROTO, written
from tests.schemas.installed import missing as skip

if not skip:
    import fastavro

    from fleximq.schemas.payload_checks import MAX_BYTES, PayloadChecks

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


class PayloadChecksTests(SynchronousTestCase):
    """``PATTERN=FILE``."""

    def fault(
        self, name: str, content: object, payload: bytes, kind: Content = Content.BYTES, more: str = ""
    ) -> object:
        """Return what is wrong with a payload, by the schema in a file."""
        checks = PayloadChecks([("orders.#", f"{written(self, name, content)}{more}")])
        check = checks.of("orders.eu")
        assert check is not None
        return check(Message(payload, kind))

    def test_first(self) -> None:
        """The first pattern that matches decides; other topics have no check."""
        file, other = written(self, "a.json", {"type": "object"}), written(self, "b.json", {"type": "array"})
        checks = PayloadChecks([("orders.*", file), ("orders.#", other)])
        found = [checks.of(name) for name in ("orders.eu", "orders.eu.at", "others")]
        self.assertEqual(
            [each and each(Message(b"{}", Content.TEXT)) for each in found],
            [None, "orders.eu.at: the payload must be an array", None],
        )

    def test_json(self) -> None:
        total = "orders.eu.total must be a number"
        bad = {"id": 1, "total": "x"}
        for payload, kind in (
            (b'{"id": 1, "total": "x"}', Content.TEXT),
            (b'{"id": 1, "total": "x"}', Content.BYTES),
            (msgpack.packb(bad), Content.MESSAGEPACK),
            (msgpack.packb('{"id": 1, "total": "x"}'), Content.MESSAGEPACK),
        ):
            self.assertEqual(self.fault("order.json", ORDER_JSON, payload, kind), total)
        for payload, kind in (
            (b'{"id": 1, "total": 5}', Content.TEXT),
            (msgpack.packb({**bad, "total": 1.5}), Content.MESSAGEPACK),
        ):
            self.assertIsNone(self.fault("order.json", ORDER_JSON, payload, kind))
        self.assertIn("the payload is no JSON", str(self.fault("order.json", ORDER_JSON, b"", Content.MESSAGEPACK)))

    def test_avro(self) -> None:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), {"id": 5})
        good = stream.getvalue()
        self.assertIsNone(self.fault("order.avsc", AVRO, good))
        self.assertIsNone(self.fault("order.avsc", AVRO, msgpack.packb(good), Content.MESSAGEPACK))
        self.assertEqual(self.fault("order.avsc", AVRO, b""), "orders.eu.id is cut off")
        self.assertEqual(
            self.fault("order.avsc", AVRO, msgpack.packb({"id": 5}), Content.MESSAGEPACK),
            "orders.eu: the payload is no bytes but another value of MessagePack",
        )

    def test_protobuf(self) -> None:
        more = ",shop.Order"
        self.assertIsNone(self.fault("order.proto", ORDER_PROTO, b"\x08\x05", more=more))
        found = self.fault("order.proto", ORDER_PROTO, b"\x0a\x01a", more=more)
        self.assertEqual(found, "orders.eu.id is sent with wire type 2, not as int64")

    def test_size(self) -> None:
        found = self.fault("order.json", ORDER_JSON, b"[" + b" " * MAX_BYTES)
        self.assertEqual(found, "orders.eu: the payload has more than 1,048,576 bytes, the most with a schema")

    def test_badFile(self) -> None:
        error = self.assertRaises(SettingError, PayloadChecks, [("orders.#", "/nowhere.json")])
        self.assertEqual(
            str(error),
            "schema orders.#=/nowhere.json: the schema /nowhere.json cannot be read: no such file or directory",
        )
