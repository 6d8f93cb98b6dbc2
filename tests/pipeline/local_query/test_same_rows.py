"""``fleximq sql`` and ``fleximq-pipeline sql`` give the same tables, columns and rows, for each format of payloads."""

import io
import json
import os
from decimal import Decimal
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message import Content
from tests.pipeline.local_query.needed import missing
from tests.pipeline.written import TIME, Written
from tests.schemas.files import ORDER, ORDER_JSON, ORDER_PROTO, written
from tests.schemas.installed import missing as missingSchemas

skip = missing or missingSchemas
if not skip:
    import fastavro
    import msgpack
    from google.protobuf import message_factory

    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.jobs.sql import SQL
    from fleximq.pipeline.local_query.command import QueryRequest, runQuery
    from fleximq.pipeline.payloads import schema_registry
    from fleximq.schemas.definition import PROTOBUF, definitionOf
    from tests.pipeline.jobs.fake_run import runJob
    from tests.pipeline.registry import Registry


def avro(schema: Any, *values: Any) -> list[bytes]:
    """Return values in Avro's binary encoding."""
    found = []
    for value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
        found.append(stream.getvalue())
    return found


def orders(*numbers: int) -> list[bytes]:
    """Return orders in Avro."""
    rows = [{"id": each, "total": Decimal(f"{each}.25"), "address": {"city": "Ulm"}, "note": None} for each in numbers]
    return avro(ORDER, *rows)


class SameRowsTests(SynchronousTestCase):
    """A journal with payloads that fit and payloads that do not, of each format."""

    def setUp(self) -> None:
        """Write it."""
        self.folder = os.path.abspath(self.mktemp())
        self.journal = Written(self.folder, segmentBytes=2_000)
        self.avro = written(self, "order.avsc", ORDER)
        self.proto = written(self, "order.proto", ORDER_PROTO)
        self.json = written(self, "order.json", ORDER_JSON)
        for number in range(3):
            self.journal.time = TIME + number * 86_400_000_000
            self.journal.kept("orders.eu", *orders(number), b"", b"\xff" * 9, content=Content.BYTES)
            self.journal.kept("orders.us", *(msgpack.packb(each) for each in (*orders(number + 5), {"id": 1})))
        order = message_factory.GetMessageClass(definitionOf(PROTOBUF, f"{self.proto},shop.Order").codec().type)  # type: ignore[attr-defined]
        full = order(id=1, total=1e300, name="ü", items=[{"sku": "a", "number": 4_000_000_000}], cash=1 << 63)
        full.places[-5].sku, full.flags["x"] = "p", True
        full.at.FromMicroseconds(TIME), full.took.FromMicroseconds(-1), full.more.update({"a": [1, None]})
        full.weight.value, full.rank, full.state, full.seal = 0, 0, 1, b"\0\xff"
        bills = [full.SerializeToString(), order(parent={"id": 2}, state=7).SerializeToString(), b"\x0a\x01a", b"\x80"]
        self.journal.kept("bills", *bills, content=Content.BYTES)
        visits: list[Any] = [
            {"id": 1, "total": 2.5, "at": "2026-01-31T12:00:00+01:00", "tags": ["a", None], "prices": {"a": 1}},
            {"id": 1 << 62, "total": 0, "address": {"city": "Ulm"}, "any": [{"x": 1}], "offset": 3, "note": None},
            {"id": 1},
            {"id": 1, "total": 1, "address": {"street": "x"}},
            [],
        ]
        self.journal.kept("visits", *(json.dumps(each).encode() for each in visits), b"{", content=Content.TEXT)
        self.journal.kept("visits", *map(msgpack.packb, visits))
        self.journal.kept("plain", b'{"a": 1, "offset": 2}', b'{"a": 2.5, "b": {"c": "x"}}', content=Content.TEXT)

    def local(self, query: str, *words: str) -> list[str]:
        """Return the rows by DuckDB."""
        said: list[str] = []
        named = {"--decode": "decode", "--schema": "schema"}
        pairs = list(zip(words[::2], words[1::2], strict=True))
        more: Any = {named[name]: value for name, value in pairs if name in named}
        tables = tuple(value for name, value in pairs if name == "--table")
        out = io.StringIO()
        request = QueryRequest(query, journals=(self.folder,), format="json", tables=tables, **more)
        runQuery(request, out, said.append)
        return out.getvalue().splitlines()

    def spark(self, query: str, *words: str) -> list[str]:
        """Return the rows by Spark."""
        return runJob(SQL, query, "--journal", self.folder, "--format", "json", *words).printed.splitlines()

    def same(self, number: int, query: str, *words: str) -> None:
        """Check that both give the same rows, so many, of which some have fields and some an error."""
        found = self.local(query, *words)
        self.assertEqual(found, self.spark(query, *words))
        self.assertEqual(len(found), number)
        errors = [json.loads(line)["error"] for line in found]
        self.assertIn(None, errors)
        self.assertTrue(any(errors) or "plain" in query)

    def test_schemasInFiles(self) -> None:
        every = 'select * from {} order by "offset"'
        tables = (
            *("--table", f"orders=orders.#:avro:{self.avro}"),
            *("--table", f"bill=bills:protobuf:{self.proto},shop.Order"),
            *("--table", f"visit=visits,nothing:json-schema:{self.json}"),
            *("--table", "plains=plain:json"),
        )
        for name, number in (("orders", 15), ("bill", 4), ("visit", 11), ("plains", 2)):
            self.same(number, every.format(name), *tables)
        self.same(9, every.format('"orders.eu"'), "--decode", f"avro:{self.avro}")
        self.same(4, every.format("bills"), "--decode", f"protobuf:{self.proto},shop.Order")
        self.same(11, every.format("visits"), "--decode", f"json-schema:{self.json}")
        joined = (
            "select o.id, o.total, b.name, o.error from orders o join bill b on o.id = b.id "
            "union all select v.id, v.total, v.note, v.error from visit v where v.error is not null "
            "order by 1 nulls last, 4"
        )
        self.same(11, joined, *tables)
        self.same(3, 'select id, error, "offset" from orders where id >= 6 or (topic = \'orders.us\' and error is not '
                     'null and "offset" < 6) order by 3', *tables)  # fmt: skip

    def test_tablesWithoutAFormatFollowDecode(self) -> None:
        words = ("--decode", "json", "--schema", "a INT", "--table", "p=plain", "--table", "q=plain:text")
        for find in (self.local, self.spark):
            found = find('select p.a, q.value from p join q on p."offset" = q."offset" order by 1 nulls last', *words)
            self.assertEqual(
                list(map(json.loads, found)),
                [
                    {"a": 1, "value": '{"a": 1, "offset": 2}'},
                    {"a": None, "value": '{"a": 2.5, "b": {"c": "x"}}'},
                ],
            )

    def test_theRegistry(self) -> None:
        with Registry() as registry:
            # Its workers may have been started before.
            self.patch(schema_registry, "environ", {schema_registry.URL: registry.url})
            first = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
            second = {**first, "fields": [*first["fields"], {"name": "t", "type": "string", "default": ""}]}
            numbers = [registry.register("r", {"schema": json.dumps(each)}) for each in (first, second)]
            payloads = [*avro(first, {"n": 1}), *avro(second, {"n": 2, "t": "x"})]
            framed = [b"\0" + number.to_bytes(4, "big") + each for number, each in zip(numbers, payloads, strict=True)]
            self.journal.kept("others", *framed, b"\0\0\0\0\x63", b"none", content=Content.BYTES)
            self.same(4, 'select * from o order by "offset"', "--table", "o=others:registry")
            self.same(4, 'select * from others order by "offset"', "--decode", f"registry:{registry.url}")

    def test_refusals(self) -> None:
        for sentence, words in (
            ("--table names 'A' twice", ("--table", "a=x", "--table", "A=y")),
            (
                "--table is 's=x:json:upsert(key)', but only tables of a lake can have upsert: ingest it, or leave it "
                "out",
                ("--table", "s=x:json:upsert(key)"),
            ),
            ("the schema none.avsc cannot be read: no such file or directory", ("--decode", "avro:none.avsc")),
            ("there is no format 'nope' of payloads, only", ("--decode", "nope")),
            ("--table is 't=#:nope', but there is no format 'nope', only", ("--table", "t=#:nope")),
        ):
            error = self.assertRaises(OptionRefused, self.local, "select * from plain", *words)
            self.assertIn(sentence, str(error))
