"""Payloads that name their schema in a registry: Confluent's own serializers write them."""

import json
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing
from tests.pipeline.registry import Registry
from tests.schemas.files import written
from tests.schemas.installed import missing as missingSchemas

skip = missing or missingSchemas
if not find_spec("confluent_kafka"):
    skip = skip or "confluent-kafka is not installed"

if not skip:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from fleximq.pipeline.errors import OptionRefused, RegistryGone
    from fleximq.pipeline.payloads import ddl, schema_registry
    from fleximq.pipeline.payloads.decoder import Decoder
    from fleximq.pipeline.payloads.schema_formats import RegistryRecords, formatIn, registryRecords
    from fleximq.pipeline.payloads.schema_inference import inferred
    from fleximq.schemas.definition import compiled
    from fleximq.schemas.misfit import Misfit
    from tests.pipeline.payloads.read import binary, rowsOf

    CONTEXT = SerializationContext("orders", MessageField.VALUE)

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "city", "type": "string", "default": "?"}]}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Other { string name = 1; }
message Order { int64 id = 1; google.protobuf.Timestamp at = 2; message Inner { bool yes = 1; } }
"""
JSON_SCHEMA = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


class RegistryCase(SynchronousTestCase):
    """A registry and a client of it."""

    def setUp(self) -> None:
        self.registry = self.enterContext(Registry())
        self.client = SchemaRegistryClient({"url": self.registry.url})
        self.addCleanup(self.client.close)
        self.addCleanup(registryRecords.cache_clear)

    def avro(self, schema: Any, value: Any) -> bytes:
        """Return what Confluent's serializer makes of a value."""
        found: bytes = AvroSerializer(self.client, json.dumps(schema))(value, CONTEXT)
        return found

    def decoded(self, *payloads: bytes, known: Any = None) -> tuple[str, list[Any]]:
        """Return the columns that payloads have, and their rows."""
        definition = formatIn(f"registry:{self.registry.url}")[1]
        schema = inferred("registry", binary(payloads), known, definition=definition)
        decoder = Decoder("registry", schema if len(schema) else ddl.parsed("value STRING"), definition=definition)
        return ddl.written(schema), rowsOf(decoder.decode(binary(payloads)))


class ConfluentTests(RegistryCase):
    """Each type of schema."""

    def test_avro(self) -> None:
        columns, rows = self.decoded(self.avro(FIRST, {"id": 5}))
        self.assertEqual((columns, rows), ("id BIGINT", [{"id": 5}]))

    def test_laterSchemaAddsColumns(self) -> None:
        payloads = [self.avro(FIRST, {"id": 5}), self.avro(SECOND, {"id": 6, "city": "Graz"})]
        columns, rows = self.decoded(*payloads)
        self.assertEqual(columns, "id BIGINT, city STRING")
        self.assertEqual(rows, [{"id": 5, "city": None}, {"id": 6, "city": "Graz"}])
        # A known column has its type.
        columns, rows = self.decoded(*payloads, known=ddl.parsed("city STRING, id STRING"))
        self.assertEqual(columns, "city STRING, id STRING")
        self.assertIn("'id' is no STRING", rows[0])

    def test_protobuf(self) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        file = written(self, "order.proto", PROTO)
        pool = descriptor_pool.DescriptorPool()
        for each in descriptor_pb2.FileDescriptorSet.FromString(compiled(file.rpartition("/")[0], "order.proto")).file:
            pool.Add(each)
        payloads = []
        for name, fields in (("Order", {"id": 5, "at": {"seconds": 7}}), ("Order.Inner", {"yes": True})):
            message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
            serializer = ProtobufSerializer(message, self.client, {"use.deprecated.format": False})
            payloads.append(serializer(message(**fields), CONTEXT))
        columns, [first, second] = self.decoded(*payloads)
        self.assertEqual(columns, "id BIGINT, at TIMESTAMP, yes BOOLEAN")
        self.assertEqual((first["id"], first["at"].second, first["yes"], second["yes"]), (5, 7, None, True))

    def test_jsonSchema(self) -> None:
        serializer = JSONSerializer(json.dumps(JSON_SCHEMA), self.client)
        good = serializer({"id": 5}, CONTEXT)
        columns, rows = self.decoded(good, good[:5] + b'{"id": "x"}', good[:5] + b"{}")
        self.assertEqual(columns, "id BIGINT")
        self.assertEqual(rows, [{"id": 5}, "'id' must be an integer", "'id' is missing"])

    def test_references(self) -> None:
        """A schema of Avro may use types of another one."""
        self.registry.register(
            "id", {"schema": json.dumps({"type": "record", "name": "Id", "fields": [{"name": "n", "type": "long"}]})}
        )
        schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "Id"}]}
        reference = {"name": "Id", "subject": "id", "version": 1}
        number = self.registry.register("orders", {"schema": json.dumps(schema), "references": [reference]})
        self.assertEqual(
            self.decoded(b"\0" + number.to_bytes(4) + b"\x0a"), ("id STRUCT<n: BIGINT>", [{"id": {"n": 5}}])
        )


class FaultTests(RegistryCase):
    """Unknown schemas, and a registry that does not answer."""

    def test_deadLetters(self) -> None:
        good = self.avro(FIRST, {"id": 5})
        bad = self.registry.register(
            "bad", {"schema": json.dumps({**FIRST, "fields": [{"name": "n", "type": "Order"}]})}
        )
        odd = self.registry.register("odd", {"schema": "x", "schemaType": "THRIFT"})
        payloads = [good, b"\0\0\0\0\1\0", b"", b"\1\0\0\0\1\2", b"\0\0\0", good + b"x"]
        payloads += [b"\0" + number.to_bytes(4) + b"\2" for number in (bad, odd)]
        _, rows = self.decoded(*payloads)
        self.assertEqual(rows[:2], [{"id": 5}, {"id": 0}])
        prefix = "the payload does not begin with a zero byte and the number of a schema"
        self.assertEqual(rows[2:5], [prefix] * 3)
        self.assertIn("has 1 bytes after the last field", rows[5])
        self.assertIn(
            f"has the schema {bad}, which cannot be used: its Avro schema has the type 'Order' inside", rows[6]
        )
        self.assertIn("it is of the type THRIFT", rows[7])

    def test_unknownNumber(self) -> None:
        _, rows = self.decoded(b"\0\0\0\1\0\2")
        self.assertEqual(rows, ["the payload names the schema 256, which the registry does not know"])
        # It is not asked again for a while.
        self.decoded(b"\0\0\0\1\0\2")
        self.assertEqual(self.registry.asked, ["/schemas/ids/256"])

    def test_eachSchemaIsFetchedOnce(self) -> None:
        payload = self.avro(FIRST, {"id": 5})
        self.registry.asked.clear()
        self.decoded(*[payload] * 10)
        self.decoded(payload)
        self.assertEqual(self.registry.asked, ["/schemas/ids/1"])

    def test_boundedCaches(self) -> None:
        records = RegistryRecords(self.registry.url)
        self.patch(schema_registry, "MAX_SCHEMAS", 2)
        self.patch(schema_registry, "MAX_UNKNOWN", 3)
        for number in range(4):
            schema = {**FIRST, "name": f"Order{number}"}
            records.read(
                b"\0" + self.registry.register(f"s{number}", {"schema": json.dumps(schema)}).to_bytes(4) + b"\2"
            )
        for number in range(100, 110):
            self.assertRaises(Misfit, records.read, b"\0" + number.to_bytes(4))
        self.assertEqual((len(records._registry._made), len(records._registry._unknown)), (2, 3))

    def test_waitsForTheRegistry(self) -> None:
        """A registry that is away for a while costs no message."""
        payload = self.avro(FIRST, {"id": 5})
        waits: list[float] = []
        self.registry.failures = [None, 503, 500, 429]
        with patch.object(schema_registry.SchemaRegistry.__init__, "__defaults__", (waits.append,)):
            self.assertEqual(self.decoded(payload)[1], [{"id": 5}])
        self.assertEqual(waits, [schema_registry.PAUSE] * 4)

    def test_givesUpWithoutALoss(self) -> None:
        self.patch(schema_registry, "PATIENCE", 0.0)
        self.registry.failures = [503]
        error = self.assertRaises(RegistryGone, self.decoded, b"\0\0\0\0\1\2")
        self.assertEqual(str(error), f"the schema registry {self.registry.url} does not answer: status 503")

    def test_login(self) -> None:
        payload = self.avro(FIRST, {"id": 5})
        self.registry.login = "Basic bWU6c2VjcmV0"
        error = self.assertRaises(RegistryGone, self.decoded, payload)
        self.assertIn("refuses the login in FLEXIMQ_SCHEMA_REGISTRY_LOGIN (401)", str(error))
        with patch.dict("os.environ", {schema_registry.LOGIN: "me:secret"}):
            self.assertEqual(self.decoded(payload)[1], [{"id": 5}])

    def test_anotherServerIsNoRegistry(self) -> None:
        """A proxy without a registry knows no path; its messages are no dead letters."""
        self.patch(schema_registry, "PATIENCE", 0.0)
        self.registry.isProxy = True
        error = self.assertRaises(RegistryGone, self.decoded, b"\0\0\0\0\1\2")
        self.assertIn("does not answer: status 404", str(error))

    def test_loginIsForOneHost(self) -> None:
        """A redirection is followed without it."""
        payload = self.avro(FIRST, {"id": 5})
        other = self.enterContext(Registry())
        other.redirection = self.registry.url
        with patch.dict("os.environ", {schema_registry.LOGIN: "me:secret"}):
            definition = formatIn(f"registry:{other.url}")[1]
            self.assertEqual(RegistryRecords(definition).read(payload), {"id": 5})
        self.assertEqual((other.logins, self.registry.logins[-1]), (["Basic bWU6c2VjcmV0"], None))

    def test_urls(self) -> None:
        self.assertIn("needs the URL", str(self.assertRaises(OptionRefused, formatIn, "registry")))
        self.assertIn("password", str(self.assertRaises(OptionRefused, formatIn, "registry:http://a:b@c")))
        with patch.dict("os.environ", {schema_registry.URL: "http://c/"}):
            self.assertEqual(formatIn("registry"), ("registry", "http://c"))
