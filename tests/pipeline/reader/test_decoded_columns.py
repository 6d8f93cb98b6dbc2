"""Payloads as columns of the source: the options ``decode`` and its like."""

import json
import shutil
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import Client, connect
from fleximq.values.message import Content
from tests.pipeline.installed import missing
from tests.pipeline.registry import Registry
from tests.pipeline.started_broker import startBroker
from tests.pipeline.written import Written
from tests.schemas.files import written
from tests.schemas.installed import missing as missingSchemas

skip = missing

if not skip:
    import pyarrow as pa
    from pyspark.errors import PySparkException

    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.files.schema import COLUMNS
    from fleximq.pipeline.payloads.ddl import parsed
    from fleximq.pipeline.payloads.dialect_payloads import Identity
    from fleximq.pipeline.reader.batch_reader import BatchReader
    from fleximq.pipeline.reader.decoded_columns import Decoding, decoded, needed
    from fleximq.pipeline.reader.source_options import SourceOptions
    from fleximq.pipeline.source import columnsOf
    from tests.pipeline.session import sharedSession

EVERYTHING = (
    "s STRING, d DOUBLE, f FLOAT, n BIGINT, i INT, h SMALLINT, t TINYINT, b BOOLEAN, x BINARY, at TIMESTAMP, day DATE, "
    "c DECIMAL(5,2), a ARRAY<INT>, m MAP<STRING, DOUBLE>, `a b` STRUCT<p: INT, q: ARRAY<STRUCT<r: TIMESTAMP>>>"
)
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


class DecodingOptionsTests(SynchronousTestCase):
    """How the options are read."""

    def options(self, **options: str) -> "SourceOptions":
        """Return the options of a source."""
        return SourceOptions.of({"path": "/j", **options})

    def refused(self, **options: str) -> str:
        """Return what is said of options."""
        return str(self.assertRaises(OptionRefused, self.options, **options))

    def test_payloadsStayWithoutOptions(self) -> None:
        self.assertIsNone(self.options().decoding)

    def test_formatSchemaAndIdentityAreRead(self) -> None:
        options = self.options(decode="JSON", decodeSchema="a INT", identityMetadata="true", identityBase64="TRUE")
        self.assertEqual(options.decoding, Decoding("json", parsed("a INT"), Identity(True, True)))
        self.assertEqual(options.columns, (*COLUMNS, "decoded", "error"))

    def test_madeColumnsMayBeNamedInAnyOrder(self) -> None:
        options = self.options(decode="text", columns="error,offset,decoded")
        self.assertEqual(options.columns, ("error", "offset", "decoded"))
        self.assertIn("names 'decoded'", self.refused(columns="decoded"))
        without = self.options(decode="raw", includeHeaders="false").columns
        self.assertEqual(without, (*(name for name in COLUMNS if name != "headers"), "decoded", "error"))

    def test_optionsThatDoNotGoTogetherAreRefused(self) -> None:
        self.assertIn("need a schema", self.refused(decode="json"))
        self.assertIn("no format 'xml'", self.refused(decode="xml", decodeSchema="a INT"))
        self.assertIn("type MONEY", self.refused(decode="json", decodeSchema="a MONEY"))
        self.assertIn("must be true or false", self.refused(decode="text", identityBase64="maybe"))
        clash = self.refused(decode="json", decodeSchema="Metadata INT", identityMetadata="true")
        self.assertIn("the column 'metadata' has the metadata of messages", clash)
        for name, value in {"decodeSchema": "a INT", "identityMetadata": "true", "identityBase64": "false"}.items():
            self.assertIn(f"{name!r} belongs to 'decode'", self.refused(**{name: value}))

    def test_columnsForDecodingAreReadOnce(self) -> None:
        self.assertEqual(needed(["offset", "topic"]), ["offset", "topic"])
        self.assertEqual(needed(["error", "value", "offset"]), ["value", "offset", "dialect", "content"])

    def test_batchesHaveTheColumnsAskedFor(self) -> None:
        batch = pa.record_batch(
            [pa.array([b"{}"]), pa.array(["minimq"]), pa.array([2], pa.int32())], names=["value", "dialect", "content"]
        )
        decoding = Decoding("json", parsed("a INT"))
        [made] = decoded([batch], ["error", "decoded", "value"], decoding)
        self.assertEqual(made.schema.names, ["error", "decoded", "value"])
        self.assertEqual(list(decoded([batch], ["value"], decoding)), [batch])
        self.assertEqual(list(decoded([batch], ["value"], None)), [batch])


class BrokerTests(SynchronousTestCase):
    """The columns where brokers are asked, read as a task reads them."""

    def test_brokerAndFolderDecodeTheSame(self) -> None:
        parent = Path(tempfile.mkdtemp(prefix="fleximq-journal-"))
        self.addCleanup(shutil.rmtree, parent, ignore_errors=True)
        broker = startBroker(self, parent / "journal")
        url = f"tcp://127.0.0.1:{broker.port()}"
        client: Client
        with connect(url) as client:
            client.publish_many("numbers", [{"a": 1}, {"a": "x"}, '{"a": 2}', 5])
            client.flush()
        for place in ({"url": url}, {"path": str(parent / "journal")}):
            options = SourceOptions.of({**place, "decode": "json", "decodeSchema": "a INT", "columns": "error,decoded"})
            reader = BatchReader(options, options.columns)
            [rows] = [batch.to_pylist() for part in reader.partitions() for batch in reader.read(part)]
            self.assertEqual([row["decoded"] for row in rows], [{"a": 1}, None, {"a": 2}, None])
            self.assertEqual([row["error"] is None for row in rows], [True, False, True, False])


class DecodedCase(SynchronousTestCase):
    """``written`` is a journal in ``folder`` with payloads that fit and others that do not."""

    def setUp(self) -> None:
        self.spark = sharedSession()
        self.folder = str(Path(self.mktemp()).absolute())
        self.written = Written(self.folder)
        self.addCleanup(self.written.close)

    def load(self, **options: str) -> Any:
        """Return the table, in the order of its offsets."""
        return self.spark.read.format("fleximq").options(**options).load(self.folder).orderBy("offset")


class DecodedTests(DecodedCase):
    """The columns in Spark."""

    def test_eachTypeReachesSpark(self) -> None:
        payload = {
            "s": "é", "d": 1.5, "f": 0.5, "n": -(2**63), "i": 2**31 - 1, "h": -(2**15), "t": 127, "b": True,
            "x": b"\xff", "at": MOMENT, "day": "2026-01-02", "c": "1.25", "a": [1, None], "m": {"k": 1.0},
            "a b": {"p": 1, "q": [{"r": "2026-01-02T03:04:05.678901Z"}]},
        }  # fmt: skip
        self.written.kept("all", msgpack.packb(payload, datetime=True))
        table = self.load(decode="messagepack", decodeSchema=EVERYTHING)
        self.assertEqual(table.schema["decoded"].dataType.simpleString().count("struct"), 3)
        row = table.selectExpr("decoded.*", "unix_micros(decoded.at) AS us", "unix_micros(decoded.`a b`.q[0].r) AS us2")
        [found] = row.collect()
        values = found.asDict(recursive=True)
        micros = int(MOMENT.timestamp()) * 1_000_000 + 678901
        self.assertEqual((values.pop("us"), values.pop("us2")), (micros, micros))
        del values["at"], values["a b"]["q"]
        expected: dict[str, Any] = {**payload, "day": date(2026, 1, 2), "c": Decimal("1.25"), "a b": {"p": 1}}
        del expected["at"]
        self.assertEqual(values, expected)

    def test_misfitIsARowWithAnErrorAndTheQueryGoesOn(self) -> None:
        self.written.kept("t", msgpack.packb({"a": 1}), msgpack.packb({"a": "one"}), b"\xc1", msgpack.packb({}))
        rows = self.load(decode="messagepack", decodeSchema="a INT", columns="offset,decoded,error").collect()
        self.assertEqual([row.decoded and row.decoded.a for row in rows], [1, None, None, None])
        self.assertEqual([row.decoded is None for row in rows], [False, True, True, False])
        self.assertEqual([row.error is None for row in rows], [True, False, False, True])
        self.assertIn("'a' is no INT", rows[1].error)

    def test_jsonIsReadOfAnyDialect(self) -> None:
        self.written.publish("t", msgpack.packb({"a": 1}), msgpack.packb('{"a": 2}'))
        self.written.publish("t", b'{"a": 3}', dialect="minimq", content=Content.TEXT)
        self.written.publish("t", b'{"a": 4}||b=5', dialect="identity", content=Content.TEXT)
        self.written.commit()
        rows = self.load(decode="json", decodeSchema="a INT", identityMetadata="true").collect()
        self.assertEqual([row.error for row in rows], [None] * 4)
        self.assertEqual([row.decoded.a for row in rows], [1, 2, 3, 4])
        self.assertEqual([row.decoded.metadata for row in rows], [None, None, None, {"b": "5"}])

    def test_ownSchemaMayHaveMadeColumns(self) -> None:
        self.written.kept("t", msgpack.packb({"a": 1}))
        reader = self.spark.read.format("fleximq").options(decode="messagepack", decodeSchema="a INT")
        table = reader.schema("decoded STRUCT<a: INT>, offset BIGINT").load(self.folder)
        self.assertEqual([(row.decoded.a, row.offset) for row in table.collect()], [(1, 1)])
        with self.assertRaises(PySparkException) as caught:
            reader.schema("decoded STRUCT<a: STRING>").load(self.folder).collect()
        self.assertIn("decoded STRUCT<a: INT>, error STRING", str(caught.exception))

    def test_columnThatIsNotMadeIsRefused(self) -> None:
        self.assertRaises(OptionRefused, columnsOf, self.spark.createDataFrame([], "error STRING").schema)

    def test_streamHasTheSameColumns(self) -> None:
        self.written.kept("t", msgpack.packb({"a": 1}), b"\xc1")
        stream = self.spark.readStream.format("fleximq").options(
            decode="messagepack", decodeSchema="a INT", startingOffsets="earliest"
        )
        found: list[Any] = []
        query = (
            stream.load(self.folder)
            .writeStream.option("checkpointLocation", str(Path(self.mktemp()).absolute()))
            .foreachBatch(lambda rows, batch: found.extend(rows.orderBy("offset").collect()))
            .trigger(availableNow=True)
            .start()
        )
        self.addCleanup(query.stop)
        self.assertTrue(query.awaitTermination(120))
        self.assertEqual([row.decoded and row.decoded.a for row in found], [1, None])
        self.assertEqual([row.error is None for row in found], [True, False])


class SchemaTests(DecodedCase):
    """Payloads in Avro in Spark; ``ORDER`` is their schema, with one field."""

    skip = missing or missingSchemas

    def seen(self, *payloads: bytes, **options: str) -> list[Any]:
        """Return the number of each decoded payload, or the reason why there is none."""
        self.written.kept("t", *map(msgpack.packb, payloads))
        return [row.decoded.id if row.decoded else row.error for row in self.load(**options).collect()]

    def test_misfitWithSchemaOfFile(self) -> None:
        seen = self.seen(b"\x0a", b"\xff", b"\x0c", decode=f"avro:{written(self, 'order.avsc', ORDER)}")
        self.assertEqual(seen, [5, "'id' is cut off", 6])

    def test_prefixNamesSchemaOfRegistry(self) -> None:
        with Registry() as registry:
            registry.register("t", {"schema": json.dumps(ORDER)})
            payloads = [b"\0\0\0\0\1\x0a", b"\0\0\0\0\7\x0a", b"\1\0\0\0\1\x0a"]
            first, unknown, other = self.seen(*payloads, decode=f"registry:{registry.url}", decodeSchema="id BIGINT")
        self.assertEqual((first, unknown), (5, "the payload names the schema 7, which the registry does not know"))
        self.assertIsInstance(other, str)
