"""The sink with a real broker and Spark itself, and with everything that can fail on the way."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.limits import MEBIBYTE
from fleximq.pipeline.errors import BrokerGone, BrokerRefused, NotJournalled, OptionRefused, PayloadTooLarge
from tests.broker_process import BrokerProcess
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import CaseInsensitiveDict
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from fleximq.pipeline.writer.sink import BatchSink, SinkOptions, StagedRows, StreamSink, checkColumns
    from tests.pipeline.faulty_sink import FaultySource
    from tests.pipeline.session import sharedSession

SECONDS = 60
URL = "tcp://localhost:7890"


class SinkCase(SynchronousTestCase):
    """A broker, which may be killed and started again, and folders."""

    journal = True

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fleximq-sink-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.faults = self.folder / "faults"
        self.faults.mkdir()
        self.spark = sharedSession()
        self.spark.dataSource.register(FaultySource)
        self.broker = self.startBroker("tcp:0:interface=127.0.0.1")
        self.url = f"tcp://127.0.0.1:{self.broker.port()}"

    def startBroker(self, listen: str) -> BrokerProcess:
        """Start a broker on the test's journal, and end it with the test."""
        options = ("--journal", str(self.folder / "journal"), "--durable", "#") if self.journal else ()
        broker = BrokerProcess("--listen", listen, *options)
        self.addCleanup(broker.stop)
        return broker.__enter__()

    def restartBroker(self) -> None:
        """Start the broker again once it was killed, where it was."""
        port = self.broker.port()
        self.broker.wait()
        self.broker = self.startBroker(f"tcp:{port}:interface=127.0.0.1")

    def order(self, *faults: str) -> None:
        """Order faults, see :mod:`tests.pipeline.faulty_sink`."""
        for fault in faults:
            (self.faults / fault).write_text(str(self.broker.pid) if fault.startswith("kill") else "")

    def options(self, **more: str) -> dict[str, str]:
        """Return the options with which the sink reaches the broker."""
        return {"url": self.url, "faults": str(self.faults), "topic": "rows"} | more

    def published(self, number: int, topic: str = "rows") -> list[Any]:
        """Return so many values of a topic, and check that there are no more of them."""
        with connect(self.url) as client:
            kept = {row["topic"]: row["count"] for row in client.ask("/journal/bounds")["topics"]}
            self.assertEqual(kept.get(topic, 0), number)
            if not number:
                return []
            with client.subscribe(topic, from_="first") as deliveries:
                found = [deliveries.next(SECONDS) for _ in range(number)]
        return [delivery.value for delivery in found if delivery is not None]


class BatchTests(SinkCase):
    """A table that is written."""

    def write(self, table: DataFrame, mode: str = "append", **options: str) -> None:
        """Write it."""
        table.write.format("faulty").mode(mode).options(**self.options(**options)).save()

    def rows(self, number: int) -> DataFrame:
        """Return rows with the numbers from 0 on as their values, in two partitions."""
        return self.spark.range(0, number, 1, 2).selectExpr("id AS value")

    def test_order(self) -> None:
        """All rows are there, in the order of the table."""
        self.write(self.rows(5000), portionBytes="1024")
        self.assertEqual(self.published(5000), list(range(5000)))

    def test_values(self) -> None:
        """Every type of value comes as MessagePack has it."""
        self.write(self.spark.sql("""
            SELECT 'a' AS topic, named_struct('n', 1, 'list', array(1.5D), 'time', timestamp'2026-01-02 03:04:05') value
        """))  # fmt: skip
        expected = [{"n": 1, "list": [1.5], "time": "2026-01-02T03:04:05.000000Z"}]
        self.assertEqual(self.published(1, "a"), expected)
        self.write(self.spark.sql("SELECT 'b' AS topic, X'00FF' AS value"))
        self.assertEqual(self.published(1, "b"), [b"\x00\xff"])
        self.write(self.spark.sql("SELECT 'c' AS topic, X'9201C0' AS value"), valueFormat="messagepack")
        self.assertEqual(self.published(1, "c"), [[1, None]])
        self.write(self.spark.sql("SELECT 'd' AS topic, map('k', 1) AS value"))
        self.assertEqual(self.published(1, "d"), [{"k": 1}])

    def test_headers(self) -> None:
        """Headers and key are in the header."""
        self.write(self.spark.sql("SELECT 'x' AS value, map('message_id', 'm1') AS headers, 'k' AS key"))
        with connect(self.url) as client, client.subscribe("rows", from_="first") as deliveries:
            found = deliveries.next(SECONDS)
        assert found is not None
        self.assertEqual((found.header["message_id"], found.header["key"]), ("m1", "k"))

    def test_allOrNothing(self) -> None:
        """If a task cannot be done, nothing was published, though others were done and this one began."""
        self.order("task-1", "task-2", "task-3")
        self.assertRaises(PySparkException, self.write, self.rows(6).coalesce(1))
        self.published(0)

    def test_attempts(self) -> None:
        """What an attempt had staged before it failed is not published."""
        self.order("task-1", "task-2")
        self.write(self.rows(6))
        self.assertEqual(list(self.faults.iterdir()), [])
        self.assertEqual(self.published(6), list(range(6)))

    def test_namedTransaction(self) -> None:
        """A write with a name and a version is done once, however often it is repeated."""
        for _ in range(2):
            self.write(self.rows(3), txnAppId="import", txnVersion="1")
        self.order("committed-1")
        self.assertRaises(PySparkException, self.write, self.rows(3), txnAppId="import", txnVersion="2")
        self.write(self.rows(3), txnAppId="import", txnVersion="2")
        self.assertEqual(self.published(6), [0, 1, 2] * 2)

    def test_earlierVersion(self) -> None:
        """A version before the last one is refused."""
        self.write(self.rows(3), txnAppId="import", txnVersion="2")
        error = self.assertRaises(PySparkException, self.write, self.rows(3), txnAppId="import", txnVersion="1")
        self.assertIn("batch 1 comes before batch 2, which was committed", str(error))

    def test_killed(self) -> None:
        """A broker that is killed between staging and commit, and started again, publishes all."""
        self.order("kill-1")
        again = threading.Thread(target=self.restartBroker)
        again.start()
        self.write(self.rows(100))
        again.join(SECONDS)
        self.assertEqual(self.published(100), list(range(100)))

    def test_empty(self) -> None:
        """Nothing is nothing."""
        self.write(self.rows(10).where("value < 0"))
        self.published(0)

    def test_overwrite(self) -> None:
        """What a topic has stays."""
        error = self.assertRaises(PySparkException, self.write, self.rows(3), "overwrite")
        self.assertIn("write with the mode 'append'", str(error))

    def test_forbiddenTopic(self) -> None:
        """What the broker refuses is told in its words."""
        error = self.assertRaises(PySparkException, self.write, self.rows(3), topic="$dead/x")
        self.assertIn("answered /sink/stage with 403 forbidden", str(error))

    def test_largeRow(self) -> None:
        """A row that is larger than a message may be is an error, and nothing of its table is published."""
        table = self.spark.range(2).selectExpr("repeat('x', cast(17 * 1024 * 1024 * id AS int)) AS value")
        self.assertRaises(PySparkException, self.write, table.coalesce(1), brokerTimeout="0")
        self.published(0)

    def test_wrongColumns(self) -> None:
        """Columns are checked before anything is read."""
        error = self.assertRaises(PySparkException, self.write, self.spark.range(3))
        self.assertIn("a column 'value' is needed", str(error))

    def test_nobody(self) -> None:
        """So is whether there is a broker."""
        self.broker.stop()
        error = self.assertRaises(PySparkException, self.write, self.rows(3), brokerTimeout="0")
        self.assertIn(f"the broker at {self.url} is away: cannot connect", str(error))


class StreamCase(SinkCase):
    """A streaming query that reads lines from files, one file for each batch."""

    written = 0
    began = int(time.time()) - 3600

    def lines(self, files: int, each: int = 4) -> None:
        """Add files with lines, which are numbers that count up."""
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        for _ in range(files):
            lines = [str(number) for number in range(self.written, self.written + each)]
            (self.folder / "new").write_text("\n".join(lines))
            # Spark takes files in the order of their times.
            os.utime(self.folder / "new", (self.began + self.written,) * 2)
            (self.folder / "new").rename(source / f"{self.written:06}.txt")
            self.written += each

    def run_(self, **options: str) -> StreamingQuery:
        """Read all files that there are, from where the last query ended, and return the query when it has ended."""
        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self.folder / "source"))
        query = (
            lines.repartition(2)
            .writeStream.format("faulty")
            .options(**self.options(**options))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        self.addCleanup(query.stop)
        query.awaitTermination(SECONDS)
        return query

    def failsThenRuns(self, words: str, **options: str) -> None:
        """Run the query, which fails with these words, and once more, which succeeds."""
        error = self.assertRaises(PySparkException, self.run_, **options)
        self.assertIn(words, str(error))
        self.run_()

    def checkOnce(self) -> None:
        """Check that each line was published once, that no batch overtook another, and that all faults happened."""
        self.assertEqual(list(self.faults.iterdir()), [])
        found = [int(value) for value in self.published(self.written)]
        self.assertEqual(sorted(found), list(range(self.written)))
        batches = [number // 4 for number in found]
        self.assertEqual(batches, sorted(batches))


class StreamTests(StreamCase):
    """Exactly once."""

    def test_batches(self) -> None:
        """Every batch is published, also by a query that goes on later."""
        self.lines(2)
        self.run_(requireExactlyOnce="true")
        self.lines(2)
        self.run_()
        self.checkOnce()

    @nightly
    def test_taskAgain(self) -> None:
        """A task that is tried again publishes its rows once, whenever the first attempt failed."""
        self.lines(2)
        self.order("task-1", "task-2", "staged-1", "staged-2")
        self.run_()
        self.checkOnce()

    def test_taskFails(self) -> None:
        """A task that fails too often ends the query; the next one repeats the batch."""
        self.lines(2)
        self.order(*(f"staged-{number}" for number in range(6)))
        self.assertRaises(PySparkException, self.run_)
        for fault in self.faults.iterdir():
            fault.unlink()
        self.published(0)
        self.run_()
        self.checkOnce()

    def test_beforeCommit(self) -> None:
        """A driver that fails before its commit has published nothing; the next one does."""
        self.lines(2)
        self.order("commit-1")
        self.failsThenRuns("ordered: commit-1")
        self.checkOnce()

    def test_afterCommit(self) -> None:
        """One that fails behind its commit repeats the batch, and nothing comes twice."""
        self.lines(2)
        self.order("committed-1")
        self.failsThenRuns("ordered: committed-1")
        self.checkOnce()

    @nightly
    def test_afterCommitAndRestart(self) -> None:
        """Nor if the broker was killed in between: what was committed stands in the journal."""
        self.lines(2)
        self.order("committed-1")
        self.assertRaises(PySparkException, self.run_)
        self.order("kill-1")
        self.failsThenRunsWithBroker()
        self.checkOnce()

    def failsThenRunsWithBroker(self) -> None:
        """Run the query with a broker that is killed and started again meanwhile."""
        again = threading.Thread(target=self.restartBroker)
        again.start()
        self.run_()
        again.join(SECONDS)

    @nightly
    def test_brokerKilled(self) -> None:
        """A broker that is killed between staging and commit is waited for."""
        self.lines(3)
        self.order("kill-1")
        self.failsThenRunsWithBroker()
        self.checkOnce()

    @nightly
    def test_brokerAway(self) -> None:
        """One that stays away for too long ends the query; a later one goes on."""
        self.lines(2)
        self.order("kill-1")
        error = self.assertRaises(PySparkException, self.run_, brokerTimeout="0")
        self.assertIn("is away", str(error))
        self.restartBroker()
        self.run_()
        self.checkOnce()

    @nightly
    def test_tenFaults(self) -> None:
        """Ten faults of all kinds, in any order, and every row is there once."""
        chance = random.Random(5)
        kinds = ["task", "staged", "commit", "committed", "kill"] * 2
        chance.shuffle(kinds)
        for number, kind in enumerate(kinds):
            self.lines(1)
            self.order(f"{kind}-{number}")
            again = threading.Thread(target=self.restartBroker)
            if kind == "kill":
                again.start()
            try:
                self.run_()
            except PySparkException as error:
                self.assertIn("ordered: ", str(error))
            if kind == "kill":
                again.join(SECONDS)
        self.run_()
        self.checkOnce()


class UnjournalledTests(StreamCase):
    """Without a journal."""

    journal = False

    def received(self, publish: Callable[[], object], number: int) -> list[Any]:
        """Return the deliveries of so many rows that are published meanwhile."""
        with connect(self.url) as client, client.subscribe("rows") as deliveries:
            publish()
            found = [deliveries.next(SECONDS) for _ in range(number)]
        return [delivery for delivery in found if delivery is not None]

    def test_published(self) -> None:
        """Rows are published as they come, those with headers too."""
        self.lines(1)
        self.assertEqual(sorted(delivery.value for delivery in self.received(self.run_, 4)), ["0", "1", "2", "3"])
        own = "'offset', '2', 'sender_principal', 'eve', 'stored_at', '3'"
        table = self.spark.sql(f"SELECT 'x' AS value, map('a', '1', {own}) AS headers")
        write = table.write.format("faulty").mode("append").options(**self.options())
        [delivery] = self.received(write.save, 1)
        self.assertEqual((delivery.value, delivery.header), ("x", {"topic": "rows", "a": "1"}))

    def test_atLeastOnce(self) -> None:
        """A batch that is repeated comes again."""
        self.lines(1)
        self.order("committed-1")
        found = self.received(lambda: self.failsThenRuns("ordered: committed-1"), 8)
        self.assertEqual(sorted(delivery.value for delivery in found), sorted("01230123"))

    def test_required(self) -> None:
        """Who asks for exactly once is refused when the query starts."""
        self.lines(1)
        error = self.assertRaises(PySparkException, self.run_, requireExactlyOnce="true")
        self.assertIn("has no journal, so rows cannot be published exactly once", str(error))


class SinkTests(SinkCase):
    """The sinks themselves, without Spark's tasks."""

    def setUp(self) -> None:
        super().setUp()
        self.schema = StructType().add("topic", "string").add("value", "binary")

    def test_said(self) -> None:
        """What is promised is logged."""
        with self.assertLogs("fleximq.pipeline", "INFO") as logged:
            StreamSink({"url": self.url}, self.schema)
        self.assertEqual(logged.records[0].getMessage(), f"Rows are published to {self.url} exactly once")

    def test_travels(self) -> None:
        """A sink can be pickled, and so can what a task tells."""
        sink = pickle.loads(pickle.dumps(BatchSink({"url": self.url}, self.schema)))
        written = sink.write(iter(()))
        self.assertEqual(pickle.loads(pickle.dumps(written)), written)
        self.assertEqual((written.rows, written.tokens), (0, ()))

    def test_ownQuery(self) -> None:
        """Each batch write is a transaction of its own."""
        names = {BatchSink({"url": self.url}, self.schema).write(iter(())).query for _ in range(2)}
        self.assertEqual(len(names), 2)

    def test_tooManyPortions(self) -> None:
        """A transaction may name as many portions as fit into a message of the broker, and no more."""
        sink = BatchSink({"url": self.url}, self.schema)
        messages = [StagedRows("q", 0, 0, 1, ("x" * 95,) * 180_000)]
        self.assertIn("make the batch smaller", str(self.assertRaises(PayloadTooLarge, sink.commit, messages)))
        most = [StagedRows("q", 0, 0, 1, ("x" * 95,) * 160_000)]
        self.assertIn("409 conflict", str(self.assertRaises(BrokerRefused, sink.commit, most)))

    def test_abortWithoutBroker(self) -> None:
        """What cannot be forgotten now is forgotten later, and that is no error."""
        sink = BatchSink({"url": self.url}, self.schema)
        self.broker.stop()
        with self.assertLogs("fleximq.pipeline", "WARNING") as logged:
            sink.abort([None, StagedRows("q", 0, 0, 1, ("1",))])
        self.assertIn("are discarded later", logged.output[0])

    def test_gone(self) -> None:
        """Tasks wait for a broker that is away when the sink is made, and find out by themselves what it promises."""
        self.broker.stop()
        options = {"url": self.url, "topic": "t", "brokerTimeout": "0"}
        sink = BatchSink(options, self.schema)
        self.assertRaises(BrokerGone, sink.write, iter(()))
        self.broker = self.startBroker(f"tcp:{self.url.rpartition(':')[2]}:interface=127.0.0.1")
        rows = pa.record_batch({"value": [b"x"]})
        self.assertEqual(len(sink.write(iter([rows])).tokens), 1)

    def test_options(self) -> None:
        """A sink is not made with options that make no sense."""
        self.assertRaises(OptionRefused, StreamSink, {}, self.schema)


class UnjournalledSinkTests(SinkCase):
    """The same without a journal."""

    journal = False

    def test_said(self) -> None:
        """What is not promised is a warning; or an error, if it was asked for."""
        schema = StructType().add("topic", "string").add("value", "binary")
        with self.assertLogs("fleximq.pipeline", "WARNING") as logged:
            BatchSink({"url": self.url}, schema)
        self.assertIn("at least once: the broker has no journal", logged.output[0])
        self.assertRaises(NotJournalled, BatchSink, {"url": self.url, "requireExactlyOnce": "true"}, schema)


class SinkOptionsTests(SynchronousTestCase):
    """Reading options."""

    def refuses(self, words: str, **options: str) -> None:
        """Check that options are refused."""
        with self.assertRaisesRegex(OptionRefused, words):
            SinkOptions.of({"url": URL, **options})

    def test_least(self) -> None:
        """A URL is enough."""
        found = SinkOptions.of({"url": URL})
        self.assertEqual((found.place.url, found.topic, found.exactlyOnce, found.packed), (URL, None, False, False))
        self.assertEqual((found.portion, found.query, found.batch), (MEBIBYTE, "", 0))

    def test_all(self) -> None:
        """Each is read, whatever its case where Spark gives it."""
        written: Any = CaseInsensitiveDict(
            URL=URL, TOPIC="t", requireexactlyonce="TRUE", VALUEFORMAT="MessagePack", portionbytes="2048",
            txnappid="q", txnversion="7",
        )  # fmt: skip
        found = SinkOptions.of(written)
        self.assertEqual(
            (found.topic, found.exactlyOnce, found.packed, found.portion, found.query, found.batch),
            ("t", True, True, 2048, "q", 7),
        )

    def test_severalBrokers(self) -> None:
        """Rows go to one broker, or to the nodes of one cluster."""
        self.assertEqual(SinkOptions.of({"url": f"{URL},b:1"}).place.addresses, 2)
        with self.assertRaisesRegex(OptionRefused, "several brokers"):
            SinkOptions.of({"url": f"{URL},{URL}"})

    def test_topic(self) -> None:
        """A topic has 1 to 1024 bytes."""
        self.assertEqual(SinkOptions.of({"url": URL, "topic": "x" * 1024}).topic, "x" * 1024)
        self.refuses("'topic'", topic="x" * 1025)
        self.refuses("'topic'", topic="")

    def test_choices(self) -> None:
        """What has no meaning is refused, and what has one is named."""
        self.refuses("'requireExactlyOnce' is 'yes', but must be true or false", requireExactlyOnce="yes")
        self.refuses("'valueFormat' is 'json', but must be bytes or messagepack or original", valueFormat="json")

    def test_original(self) -> None:
        """Original values are binary, and something has to say what they are."""
        self.assertTrue(SinkOptions.of({"url": URL, "valueFormat": "Original"}).original)
        types = {"topic": "string", "value": "binary"}
        for column, dataType in (("content", "integer"), ("dialect", "string")):
            checkColumns(types | {column: dataType}, None, original=True)
        for wrong in (types, types | {"content": "string"}, types | {"dialect": "string", "value": "string"}):
            self.assertRaises(OptionRefused, checkColumns, wrong, None, original=True)

    def test_portion(self) -> None:
        """At its limits, and beyond them."""
        for good in ("1024", str(8 * MEBIBYTE)):
            self.assertEqual(SinkOptions.of({"url": URL, "portionBytes": good}).portion, int(good))
        for bad in ("1023", str(8 * MEBIBYTE + 1), "x", "-1", "1.5", ""):
            self.refuses("'portionBytes'", portionBytes=bad)

    def test_transaction(self) -> None:
        """Name and version come together, and fit what the broker takes."""
        self.refuses("belong together", txnAppId="q")
        self.refuses("belong together", txnVersion="1")
        self.refuses("at most 256 bytes", txnAppId="q" * 257, txnVersion="1")
        self.assertEqual(SinkOptions.of({"url": URL, "txnAppId": "q" * 256, "txnVersion": "0"}).query, "q" * 256)
        most = (1 << 63) - 1
        self.assertEqual(SinkOptions.of({"url": URL, "txnAppId": "q", "txnVersion": str(most)}).batch, most)
        self.refuses("'txnVersion'", txnAppId="q", txnVersion=str(1 << 63))


class ColumnsTests(SynchronousTestCase):
    """Checking columns."""

    def refuses(self, words: str, types: dict[str, str], topic: str | None = None, packed: bool = False) -> None:
        """Check that columns are refused."""
        with self.assertRaisesRegex(OptionRefused, words):
            checkColumns(types, topic, packed)

    def test_good(self) -> None:
        """A value of any type, and a topic from somewhere."""
        for dataType in ("binary", "string", "struct", "map", "array", "long", "void"):
            checkColumns({"value": dataType}, "t")
        checkColumns({"topic": "string", "value": "binary", "key": "binary", "headers": "map", "offset": "long"}, None)
        checkColumns({"topic": "varchar", "value": "binary"}, None, packed=True)

    def test_missing(self) -> None:
        """Without a value or a topic there is nothing to publish."""
        self.refuses("a column 'value' is needed to publish rows, but there are only topic, vlaue",
                     {"topic": "string", "vlaue": "string"})  # fmt: skip
        self.refuses("rows need a column 'topic'", {"value": "string"})

    def test_types(self) -> None:
        """Each column is of a type that it can be."""
        self.refuses("'topic' is of type long, but must be a string", {"topic": "long", "value": "string"})
        self.refuses("'key' is of type long", {"key": "long", "value": "string"}, "t")
        self.refuses("'headers' is of type struct", {"headers": "struct", "value": "string"}, "t")
        self.refuses("'value' is of type string, but must be binary where", {"value": "string"}, "t", packed=True)
