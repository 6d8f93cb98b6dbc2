"""Tables of payloads with schemas: columns of the schema, dead letters with reasons, and schemas that change."""

import io
import json
from pathlib import Path
from typing import Any

from tests.pipeline.installed import missing
from tests.pipeline.lake.test_ingest_driver import FeedCase
from tests.pipeline.registry import Registry
from tests.schemas.files import ORDER_JSON, written
from tests.schemas.installed import missing as missingSchemas

skip = missing or missingSchemas

if not skip:
    import fastavro

    from fleximq.pipeline.errors import LakeRefused, OptionRefused
    from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
    from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
    from fleximq.pipeline.lake.redecoding import redecode
    from fleximq.pipeline.lake.table.table_spec import TableSpec, packed, readSpec, tableOf, unpacked
    from tests.pipeline.lake.tables import rows

FIRST: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
SECOND = {**FIRST, "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string", "default": "?"}]}


def avro(schema: Any, value: Any) -> bytes:
    """Return a value in Avro's binary encoding."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


class SchemaTableCase(FeedCase):
    """A table ``orders``."""

    def batch(self, *values: Any, topic: str = "t", first: int = 1) -> Any:
        """Return records with these payloads, as they are."""
        return rows(range(first, first + len(values)), topic, schema=schemaOf(ALL_COLUMNS), value=list(values))

    def seen(self, *names: str) -> list[Any]:
        """Return these columns of each row, in the order of offsets."""
        found = []
        for path, topic in liveFiles(f"{self.lake}/orders"):
            for group in rowGroups(f"{self.lake}/orders", path, topic):
                found += [(row["offset"], *(row.get(name) for name in (*names, "reason"))) for row in group.to_pylist()]
        return sorted(found)


class FileTests(SchemaTableCase):
    """Schemas in files."""

    def test_rowsAndDeadLetters(self) -> None:
        spec = tableOf("--table", f"orders=t:avro:{written(self, 'order.avsc', FIRST)}")
        self.assertEqual((spec.name, spec.topics, spec.decode), ("orders", ("t",), "avro"))
        self.ingest([spec], avro(FIRST, {"id": 5}), b"\xff")
        self.assertEqual(self.seen("topic", "id"), [(1, "t", 5, None), (2, "t~dlq", None, "'id' is cut off")])

    def test_laterSchema(self) -> None:
        """Ingest with a later schema widens and adds columns; what was a dead letter for the first one returns."""
        file = written(self, "order.avsc", FIRST)
        first, second = avro(FIRST, {"id": 5}), avro(SECOND, {"id": 1 << 40, "city": "Graz"})
        self.ingest([tableOf("--table", f"orders=t:avro:{file}")], first, second)
        Path(file).write_text(json.dumps(SECOND))
        old = written(self, "old.avsc", FIRST)
        spec = tableOf("--table", f"orders=t:avro:{file},{old}")
        self.ingest([spec], second, number=1, first=3)
        self.assertEqual([row[1:3] for row in self.seen("id", "city")], [(5, None), (None, None), (1 << 40, "Graz")])
        # The job redecode has no file, only what the table recorded.
        Path(file).unlink()
        *_, done = redecode(f"{self.lake}/orders", readSpec(f"{self.lake}/orders"))
        self.assertEqual((done.back, done.dead), (1, 0))
        self.assertEqual(
            self.seen("id", "city"), [(1, 5, None, None), (2, 1 << 40, "Graz", None), (3, 1 << 40, "Graz", None)]
        )

    def test_otherTypeIsRefused(self) -> None:
        self.ingest([tableOf("--table", f"orders=t:avro:{written(self, 'a.avsc', FIRST)}")], avro(FIRST, {"id": 5}))
        other = {**FIRST, "fields": [{"name": "id", "type": "string"}]}
        spec = tableOf("--table", f"orders=t:avro:{written(self, 'b.avsc', other)}")
        self.assertRaises(LakeRefused, self.feeding, spec)

    def test_definitionReachesTheTasks(self) -> None:
        spec = tableOf("--table", f"orders=t:json-schema:{written(self, 'order.json', ORDER_JSON)}:upsert(id)")
        self.assertEqual((unpacked(packed([spec])), spec.upsert), ([spec], "id"))

    def test_settingsFile(self) -> None:
        file = written(self, "order.json", ORDER_JSON)
        spec = tableOf("table", {"name": "orders", "topics": ["t"], "decode": f"json-schema:{file}"})
        self.assertEqual(spec.fields.names[:2], ["id", "total"])

    def test_faultyOptions(self) -> None:
        file = written(self, "order.json", ORDER_JSON)
        for text, words in (
            ("orders=t:avro", "needs the file of a schema"),
            (f"orders=t:json-schema:{file}:upsert(nothing)", "its schema has no such field"),
            ("orders=t:avro:/nowhere", "the schema /nowhere cannot be read"),
        ):
            self.assertIn(words, str(self.assertRaises(OptionRefused, tableOf, "--table", text)))
        both = {"name": "orders", "decode": f"json-schema:{file}", "schema": "a INT"}
        self.assertIn("a schema, which is only for", str(self.assertRaises(OptionRefused, tableOf, "table", both)))


class RegistryTests(SchemaTableCase):
    """Schemas of a registry."""

    def test_newSchemaAddsColumns(self) -> None:
        with Registry() as registry:
            numbers = [registry.register("t", {"schema": json.dumps(each)}) for each in (FIRST, SECOND)]
            one, other = (
                b"\0" + number.to_bytes(4) + avro(schema, {"id": 5, "city": "Graz"})
                for number, schema in zip(numbers, (FIRST, SECOND), strict=True)
            )
            spec = tableOf("--table", f"orders=t:registry:{registry.url}")
            self.ingest([spec], one, b"\0\0\0\0\7\0")
            self.ingest([spec], other, one, number=1, first=3)
        unknown = "the payload names the schema 7, which the registry does not know"
        self.assertEqual(
            self.seen("id", "city"),
            [(1, 5, None, None), (2, None, None, unknown), (3, 5, "Graz", None), (4, 5, None, None)],
        )
        self.assertIsInstance(readSpec(f"{self.lake}/orders"), TableSpec)
