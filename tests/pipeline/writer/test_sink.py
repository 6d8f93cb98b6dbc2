"""The sink with a real broker and Spark itself, and with everything that can fail on the way."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.limits import MEBIBYTE
from fleximq.pipeline.errors import BrokerGone, BrokerRefused, NotJournalled, OptionRefused, PayloadTooLarge
from tests.broker_process import BrokerProcess
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip
from tests.pipeline.started_broker import startBroker

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

#: Seconds that anything may take; they only end a hang.
SECONDS = 600
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
        self.broker = self.startBroker()
        self.url = f"tcp://127.0.0.1:{self.broker.port()}"

    def startBroker(self, port: int = 0) -> BrokerProcess:
        """Start a broker on the test's journal, and end it with the test."""
        return startBroker(self, self.folder / "journal" if self.journal else None, port=port)

    def restartBroker(self) -> None:
        """Start the broker again once it was killed, where it was."""
        port = self.broker.port()
        self.broker.wait()
        self.broker = self.startBroker(port)

    @contextmanager
    def restarting(self) -> Iterator[None]:
        """Start the broker again when it is killed in the block."""
        again = threading.Thread(target=self.restartBroker)
        again.start()
        yield
        again.join(SECONDS)

    def order(self, *faults: str) -> None:
        """Order faults, see :mod:`tests.pipeline.faulty_sink`."""
        for fault in faults:
            (self.faults / fault).write_text(str(self.broker.pid) if fault.startswith("kill") else "")

    def options(self, **more: str) -> dict[str, str]:
        """Return the options with which the sink reaches the broker."""
        return {"url": self.url, "faults": str(self.faults), "topic": "rows", "brokerTimeout": str(SECONDS)} | more

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

    def test_allRowsArePublishedInOrder(self) -> None:
        self.write(self.rows(5000), portionBytes="1024")
        self.assertEqual(self.published(5000), list(range(5000)))

    def test_everyTypeIsItsMessagePack(self) -> None:
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

    def test_headersAndKeyAreInTheHeader(self) -> None:
        self.write(self.spark.sql("SELECT 'x' AS value, map('message_id', 'm1') AS headers, 'k' AS key"))
        with connect(self.url) as client, client.subscribe("rows", from_="first") as deliveries:
            found = deliveries.next(SECONDS)
        assert found is not None
        self.assertEqual((found.header["message_id"], found.header["key"]), ("m1", "k"))

    def test_failedTaskPublishesNothingOfTheTable(self) -> None:
        self.order("task-1", "task-2", "task-3")
        self.assertRaises(PySparkException, self.write, self.rows(6).coalesce(1))
        self.published(0)

    def test_rowsOfAFailedAttemptAreNotPublished(self) -> None:
        self.order("task-1", "task-2")
        self.write(self.rows(6))
        self.assertEqual(list(self.faults.iterdir()), [])
        self.assertEqual(self.published(6), list(range(6)))

    def test_namedWriteIsDoneOnce(self) -> None:
        for _ in range(2):
            self.write(self.rows(3), txnAppId="import", txnVersion="1")
        self.order("committed-1")
        self.assertRaises(PySparkException, self.write, self.rows(3), txnAppId="import", txnVersion="2")
        self.write(self.rows(3), txnAppId="import", txnVersion="2")
        self.assertEqual(self.published(6), [0, 1, 2] * 2)

    def test_earlierVersionIsRefused(self) -> None:
        self.write(self.rows(3), txnAppId="import", txnVersion="2")
        error = self.assertRaises(PySparkException, self.write, self.rows(3), txnAppId="import", txnVersion="1")
        self.assertIn("batch 1 comes before batch 2, which was committed", str(error))

    def test_brokerKilledBeforeTheCommitPublishesAll(self) -> None:
        self.order("kill-1")
        with self.restarting():
            self.write(self.rows(100))
        self.assertEqual(self.published(100), list(range(100)))

    def test_emptyTablePublishesNothing(self) -> None:
        self.write(self.rows(10).where("value < 0"))
        self.published(0)

    def test_overwriteIsRefused(self) -> None:
        self.assertRaisesRegex(PySparkException, "write with the mode 'append'", self.write, self.rows(3), "overwrite")

    def test_refusalOfTheBrokerIsToldInItsWords(self) -> None:
        error = self.assertRaises(PySparkException, self.write, self.rows(3), topic="$dead/x")
        self.assertIn("answered /sink/stage with 403 forbidden", str(error))

    def test_rowLargerThanAMessagePublishesNothing(self) -> None:
        table = self.spark.range(2).selectExpr("repeat('x', cast(17 * 1024 * 1024 * id AS int)) AS value")
        self.assertRaises(PySparkException, self.write, table.coalesce(1), brokerTimeout="0")
        self.published(0)

    def test_columnsAreCheckedFirst(self) -> None:
        self.assertRaisesRegex(PySparkException, "a column 'value' is needed", self.write, self.spark.range(3))


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

    def test_everyBatchIsPublishedAlsoByALaterQuery(self) -> None:
        self.lines(2)
        self.run_(requireExactlyOnce="true")
        self.lines(2)
        self.run_()
        self.checkOnce()

    @nightly
    def test_repeatedTaskPublishesItsRowsOnce(self) -> None:
        self.lines(2)
        self.order("task-1", "task-2", "staged-1", "staged-2")
        self.run_()
        self.checkOnce()

    def test_failedTaskEndsTheQueryAndTheNextRepeatsTheBatch(self) -> None:
        self.lines(2)
        self.order(*(f"staged-{number}" for number in range(6)))
        self.assertRaises(PySparkException, self.run_)
        for fault in self.faults.iterdir():
            fault.unlink()
        self.published(0)
        self.run_()
        self.checkOnce()

    def test_driverThatFailsBeforeItsCommitPublishesNothing(self) -> None:
        self.lines(2)
        self.order("commit-1")
        self.failsThenRuns("ordered: commit-1")
        self.checkOnce()

    def test_driverThatFailsAfterItsCommitRepeatsNothing(self) -> None:
        self.lines(2)
        self.order("committed-1")
        self.failsThenRuns("ordered: committed-1")
        self.checkOnce()

    @nightly
    def test_killedBrokerKeepsWhatWasCommitted(self) -> None:
        self.lines(2)
        self.order("committed-1")
        self.assertRaises(PySparkException, self.run_)
        self.order("kill-1")
        with self.restarting():
            self.run_()
        self.checkOnce()

    @nightly
    def test_brokerKilledBeforeTheCommitIsWaitedFor(self) -> None:
        self.lines(3)
        self.order("kill-1")
        with self.restarting():
            self.run_()
        self.checkOnce()

    @nightly
    def test_brokerThatStaysAwayEndsTheQuery(self) -> None:
        self.lines(2)
        self.order("kill-1")
        self.assertRaisesRegex(PySparkException, "is away", self.run_, brokerTimeout="0")
        self.restartBroker()
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

    def test_rowsWithHeadersArePublished(self) -> None:
        self.lines(1)
        self.assertEqual(sorted(delivery.value for delivery in self.received(self.run_, 4)), ["0", "1", "2", "3"])
        own = "'offset', '2', 'sender_principal', 'eve', 'stored_at', '3'"
        table = self.spark.sql(f"SELECT 'x' AS value, map('a', '1', {own}) AS headers")
        write = table.write.format("faulty").mode("append").options(**self.options())
        [delivery] = self.received(write.save, 1)
        self.assertEqual((delivery.value, delivery.header), ("x", {"topic": "rows", "a": "1"}))

    def test_repeatedBatchIsPublishedAgain(self) -> None:
        self.lines(1)
        self.order("committed-1")
        found = self.received(lambda: self.failsThenRuns("ordered: committed-1"), 8)
        self.assertEqual(sorted(delivery.value for delivery in found), sorted("01230123"))


class SinkTests(SinkCase):
    """The sinks themselves, without Spark's tasks."""

    def setUp(self) -> None:
        super().setUp()
        self.schema = StructType().add("topic", "string").add("value", "binary")

    def test_exactlyOnceIsLogged(self) -> None:
        with self.assertLogs("fleximq.pipeline", "INFO") as logged:
            StreamSink({"url": self.url}, self.schema)
        self.assertEqual(logged.records[0].getMessage(), f"Rows are published to {self.url} exactly once")

    def test_sinkAndStagedRowsCanBePickled(self) -> None:
        sink = pickle.loads(pickle.dumps(BatchSink({"url": self.url}, self.schema)))
        written = sink.write(iter(()))
        self.assertEqual(pickle.loads(pickle.dumps(written)), written)
        self.assertEqual((written.rows, written.tokens), (0, ()))

    def test_eachBatchWriteIsItsOwnTransaction(self) -> None:
        names = {BatchSink({"url": self.url}, self.schema).write(iter(())).query for _ in range(2)}
        self.assertEqual(len(names), 2)

    def test_transactionTakesAsManyPortionsAsFitIntoAMessage(self) -> None:
        sink = BatchSink({"url": self.url}, self.schema)
        messages = [StagedRows("q", 0, 0, 1, ("x" * 95,) * 180_000)]
        self.assertIn("make the batch smaller", str(self.assertRaises(PayloadTooLarge, sink.commit, messages)))
        most = [StagedRows("q", 0, 0, 1, ("x" * 95,) * 160_000)]
        self.assertIn("409 conflict", str(self.assertRaises(BrokerRefused, sink.commit, most)))

    def test_abortWithoutABrokerIsAWarning(self) -> None:
        sink = BatchSink({"url": self.url}, self.schema)
        self.broker.stop()
        with self.assertLogs("fleximq.pipeline", "WARNING") as logged:
            sink.abort([None, StagedRows("q", 0, 0, 1, ("1",))])
        self.assertIn("are discarded later", logged.output[0])

    def test_tasksWaitForABrokerThatWasAwayWhenTheSinkWasMade(self) -> None:
        self.broker.stop()
        options = {"url": self.url, "topic": "t", "brokerTimeout": "0"}
        sink = BatchSink(options, self.schema)
        self.assertRaises(BrokerGone, sink.write, iter(()))
        self.broker = self.startBroker(int(self.url.rpartition(":")[2]))
        rows = pa.record_batch({"value": [b"x"]})
        self.assertEqual(len(sink.write(iter([rows])).tokens), 1)

    def test_sinkWithoutAUrlIsRefused(self) -> None:
        self.assertRaises(OptionRefused, StreamSink, {}, self.schema)


class UnjournalledSinkTests(SinkCase):
    """The same without a journal."""

    journal = False

    def test_missingJournalIsAWarningOrAnError(self) -> None:
        schema = StructType().add("topic", "string").add("value", "binary")
        with self.assertLogs("fleximq.pipeline", "WARNING") as logged:
            BatchSink({"url": self.url}, schema)
        self.assertIn("at least once: the broker has no journal", logged.output[0])
        words, options = "has no journal, so rows cannot be published", {"url": self.url, "requireExactlyOnce": "true"}
        self.assertRaisesRegex(NotJournalled, words, BatchSink, options, schema)


class SinkOptionsTests(SynchronousTestCase):
    """Reading options."""

    def refuses(self, words: str, **options: str) -> None:
        """Check that options are refused."""
        with self.assertRaisesRegex(OptionRefused, words):
            SinkOptions.of({"url": URL, **options})

    def test_urlIsEnough(self) -> None:
        found = SinkOptions.of({"url": URL})
        self.assertEqual((found.place.url, found.topic, found.exactlyOnce, found.packed), (URL, None, False, False))
        self.assertEqual((found.portion, found.query, found.batch), (MEBIBYTE, "", 0))

    def test_eachOptionIsReadInAnyCase(self) -> None:
        written: Any = CaseInsensitiveDict(
            URL=URL, TOPIC="t", requireexactlyonce="TRUE", VALUEFORMAT="MessagePack", portionbytes="2048",
            txnappid="q", txnversion="7",
        )  # fmt: skip
        found = SinkOptions.of(written)
        self.assertEqual(
            (found.topic, found.exactlyOnce, found.packed, found.portion, found.query, found.batch),
            ("t", True, True, 2048, "q", 7),
        )

    def test_rowsGoToOneBrokerOrCluster(self) -> None:
        self.assertEqual(SinkOptions.of({"url": f"{URL},b:1"}).place.addresses, 2)
        with self.assertRaisesRegex(OptionRefused, "several brokers"):
            SinkOptions.of({"url": f"{URL},{URL}"})

    def test_topicHas1To1024Bytes(self) -> None:
        self.assertEqual(SinkOptions.of({"url": URL, "topic": "x" * 1024}).topic, "x" * 1024)
        self.refuses("'topic'", topic="x" * 1025)
        self.refuses("'topic'", topic="")

    def test_wrongChoicesAreRefused(self) -> None:
        self.refuses("'requireExactlyOnce' is 'yes', but must be true or false", requireExactlyOnce="yes")
        self.refuses("'valueFormat' is 'json', but must be bytes or messagepack or original", valueFormat="json")

    def test_originalValuesAreBinaryWithAContentOrADialect(self) -> None:
        self.assertTrue(SinkOptions.of({"url": URL, "valueFormat": "Original"}).original)
        types = {"topic": "string", "value": "binary"}
        for column, dataType in (("content", "integer"), ("dialect", "string")):
            checkColumns(types | {column: dataType}, None, original=True)
        for wrong in (types, types | {"content": "string"}, types | {"dialect": "string", "value": "string"}):
            self.assertRaises(OptionRefused, checkColumns, wrong, None, original=True)

    def test_portionHasLimits(self) -> None:
        for good in ("1024", str(8 * MEBIBYTE)):
            self.assertEqual(SinkOptions.of({"url": URL, "portionBytes": good}).portion, int(good))
        for bad in ("1023", str(8 * MEBIBYTE + 1), "x", "-1", "1.5", ""):
            self.refuses("'portionBytes'", portionBytes=bad)

    def test_transactionHasANameAndAVersion(self) -> None:
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

    def test_valueHasAnyTypeAndTheTopicASource(self) -> None:
        for dataType in ("binary", "string", "struct", "map", "array", "long", "void"):
            checkColumns({"value": dataType}, "t")
        checkColumns({"topic": "string", "value": "binary", "key": "binary", "headers": "map", "offset": "long"}, None)
        checkColumns({"topic": "varchar", "value": "binary"}, None, packed=True)

    def test_missingValueOrTopicIsRefused(self) -> None:
        self.refuses("a column 'value' is needed to publish rows, but there are only topic, vlaue",
                     {"topic": "string", "vlaue": "string"})  # fmt: skip
        self.refuses("rows need a column 'topic'", {"value": "string"})

    def test_eachColumnHasItsType(self) -> None:
        self.refuses("'topic' is of type long, but must be a string", {"topic": "long", "value": "string"})
        self.refuses("'key' is of type long", {"key": "long", "value": "string"}, "t")
        self.refuses("'headers' is of type struct", {"headers": "struct", "value": "string"}, "t")
        self.refuses("'value' is of type string, but must be binary where", {"value": "string"}, "t", packed=True)
