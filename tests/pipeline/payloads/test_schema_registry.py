"""Payloads that name their schema in a registry: Confluent's own serializers write them."""

import json
from base64 import b64encode
from importlib.util import find_spec
from pathlib import Path
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
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
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

    def jsonSchema(self, schema: Any, **references: str) -> dict[str, Any]:
        """Return a schema with references by their names to the first versions of subjects."""
        found = [{"name": name, "subject": subject, "version": 1} for name, subject in references.items()]
        return {"schema": json.dumps(schema), "schemaType": "JSON", "references": found}


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

    def test_referencesOfJsonSchemas(self) -> None:
        """By the names that a schema has for them, also two of one subject, and those of others."""
        number = {"$anchor": "n", "type": "integer"}
        self.registry.register("n", {"schema": json.dumps(number), "schemaType": "JSON"})
        customer = {"type": "object", "properties": {"id": {"$ref": "n.json#n"}, "name": {"type": "string"}}}
        self.registry.register("c", self.jsonSchema(customer, **{"n.json": "n"}))
        for own in (None, "http://registry.example/schemas/order.json"):
            order: dict[str, Any] = {"properties": {"by": {"$ref": "c.json"}, "n": {"$ref": "c.json#/properties/id"}}}
            order |= {"required": ["by"]} | ({} if own is None else {"$id": own})
            order["properties"]["for"] = {"$ref": "again.json"}
            found = self.registry.register("o", self.jsonSchema(order, **{"c.json": "c", "again.json": "c"}))
            prefix = b"\0" + found.to_bytes(4)
            columns, rows = self.decoded(prefix + b'{"by": {"id": 5}, "n": 6}', prefix + b'{"by": {"id": "x"}}')
            person = "STRUCT<id: BIGINT, name: STRING>"
            self.assertEqual(columns, f"by {person}, n BIGINT, for {person}")
            self.assertEqual(rows[0], {"by": {"id": 5, "name": None}, "n": 6, "for": None})
            self.assertEqual(rows[1], "'by.id' must be an integer")

    def test_confluentsReferences(self) -> None:
        """Confluent's serializer writes what is read here."""
        self.registry.register("c", self.jsonSchema({"type": "object", "properties": {"id": {"type": "integer"}}}))
        schema = {"title": "Order", "type": "object", "properties": {"by": {"$ref": "c.json"}}}
        reference = SchemaReference("c.json", "c", 1)
        serializer = JSONSerializer(Schema(json.dumps(schema), "JSON", [reference]), self.client)
        self.assertEqual(
            self.decoded(serializer({"by": {"id": 5}}, CONTEXT)), ("by STRUCT<id: BIGINT>", [{"by": {"id": 5}}])
        )

    def test_referencesOfProtobuf(self) -> None:
        """A message with fields of an imported file, which imports another."""
        folder = written(self, "a.proto", 'syntax = "proto3"; message A { int64 n = 1; }').rpartition("/")[0]
        for name, text in (
            ("b.proto", 'syntax = "proto3"; import "a.proto"; message B { A a = 1; }'),
            ("c.proto", 'syntax = "proto3"; import "b.proto"; import "a.proto"; message C { B b = 1; A a = 2; }'),
        ):
            Path(folder, name).write_text(text)
        from google.protobuf import descriptor_pb2

        files = descriptor_pb2.FileDescriptorSet.FromString(compiled(folder, "c.proto")).file
        for file in files:
            references = [{"name": each, "subject": each, "version": 1} for each in file.dependency]
            text = b64encode(file.SerializeToString()).decode()
            schema = {"schema": text, "schemaType": "PROTOBUF", "references": references}
            number = self.registry.register(file.name, schema)
        payload = b"\0" + number.to_bytes(4) + b"\0" + b"\x0a\x04\x0a\x02\x08\x05\x12\x02\x08\x07"
        columns, rows = self.decoded(payload)
        self.assertEqual(columns, "b STRUCT<a: STRUCT<n: BIGINT>>, a STRUCT<n: BIGINT>")
        self.assertEqual(rows, [{"b": {"a": {"n": 5}}, "a": {"n": 7}}])

    def test_unusableReferences(self) -> None:
        self.registry.register("c", self.jsonSchema({"type": "integer"}))
        self.registry.register("d", self.jsonSchema({"type": "string"}))
        self.registry.register("e", self.jsonSchema({"$ref": "x"}, x="d"))
        schema = {"$ref": "x"}
        for references, words in (
            ({"x": "gone"}, "it needs version 1 of gone, which the registry does not know"),
            ({}, "it is no JSON Schema"),
            ({"y": "c"}, "it is no JSON Schema"),
            ({"a b": "c"}, "it is no JSON Schema"),
            ({"y": "e", "x": "c"}, "it has two references of the name x"),
        ):
            number = self.registry.register("o", self.jsonSchema({**schema, "title": words}, **references))
            _, rows = self.decoded(b"\0" + number.to_bytes(4) + b"5")
            self.assertIn(f"has the schema {number}, which cannot be used: {words}", rows[0])
        for each in ([5], {"x": 1}, [{"name": "x", "subject": "c"}], [{"name": "x", "subject": "c", "version": "y"}]):
            number = self.registry.register("o", {"schema": "{}", "schemaType": "JSON", "references": each})
            _, rows = self.decoded(b"\0" + number.to_bytes(4) + b"5")
            self.assertIn("the registry's answer has a reference without name, subject, version", rows[0])


class FaultTests(RegistryCase):
    """Unknown schemas, and a registry that does not answer."""

    def test_answerThatIsTooLarge(self) -> None:
        """Its messages are dead letters: waiting would not make it smaller."""
        self.patch(schema_registry, "MAX_ANSWER", 1000)
        payload = self.avro({**FIRST, "doc": "x" * 1000}, {"id": 5})
        _, rows = self.decoded(payload)
        self.assertIn("cannot be used: the registry's answer has more than 1,000 bytes", rows[0])
        # Nor do many that are smaller.
        self.registry.register("c", self.jsonSchema({"description": "x" * 600}))
        number = self.registry.register("o", self.jsonSchema({"description": "x" * 600}, x="c"))
        _, rows = self.decoded(b"\0" + number.to_bytes(4) + b"5")
        self.assertIn("cannot be used: it has more than 1,000 bytes with its references", rows[0])

    def test_answerThatTrickles(self) -> None:
        """The time is that for all of an answer, not for each byte."""
        self.patch(schema_registry, "PATIENCE", 0.0)
        self.patch(schema_registry, "ANSWER", 0.2)
        self.registry.trickles = True
        error = self.assertRaises(RegistryGone, self.decoded, b"\0\0\0\0\1\2")
        self.assertIn("does not answer: its answer takes longer than 0.2 seconds", str(error))

    def test_oddAnswers(self) -> None:
        self.patch(schema_registry, "PATIENCE", 0.0)
        for made, words in (
            (b"[" * 100_000, "does not answer: "),
            (b"[]", "does not answer: its answer is no JSON object"),
            (b"<html>", "does not answer: "),
        ):
            self.registry.made = made
            self.assertIn(words, str(self.assertRaises(RegistryGone, self.decoded, b"\0\0\0\0\1\2")))
        for number, made in enumerate((b"{}", b'{"schema": 5}', b'{"schema": "5", "schemaType": []}')):
            self.registry.made = made
            _, rows = self.decoded(b"\0" + (100 + number).to_bytes(4) + b"\2")
            self.assertIn("which cannot be used: ", rows[0])

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
        for url in ("http://c/?token=d", "http://c/#d", "http://[bad"):
            words = str(self.assertRaises(OptionRefused, formatIn, f"registry:{url}"))
            self.assertTrue(words.endswith("in the environment; without parameters"), words)
        with patch.dict("os.environ", {schema_registry.URL: "http://c/"}):
            self.assertEqual(formatIn("registry"), ("registry", "http://c"))
