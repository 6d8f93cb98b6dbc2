"""The same journal by its folder and through its broker, while the broker runs and takes more."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import Client, connect
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip
from tests.pipeline.started_broker import startBroker

if not skip:
    from tests.pipeline.session import sharedSession


class LiveTests(SynchronousTestCase):
    """A broker that ``twistd`` runs, with a journal for every topic."""

    def setUp(self) -> None:
        self.spark = sharedSession()
        self.parent = Path(tempfile.mkdtemp(prefix="fleximq-journal-"))
        self.addCleanup(shutil.rmtree, self.parent, ignore_errors=True)
        self.folder = str(self.parent / "journal")
        broker = startBroker(self, self.folder)
        self.url = f"tcp://127.0.0.1:{broker.port()}"

    def publish(self, *values: Any) -> None:
        """Publish values, and return when they are on disk."""
        client: Client
        with connect(self.url) as client:
            client.publish_many("numbers", values)
            client.flush()

    def test_acknowledgedMessagesAreReadByFolderAndByBroker(self) -> None:
        self.publish(*range(2000))
        tables = [
            self.spark.read.format("fleximq").load(self.folder),
            self.spark.read.format("fleximq").option("url", self.url).load(),
            # Brokers with the same journal are nodes of a cluster, one of which is away.
            self.spark.read.format("fleximq").option("url", f"{self.url},{self.url},127.0.0.1:1").load(),
        ]
        rows = [sorted(map(str, table.collect())) for table in tables]
        self.assertEqual((rows[1], rows[2]), (rows[0], rows[0]))
        values = [msgpack.unpackb(bytes(row.value)) for row in tables[1].orderBy("offset").collect()]
        self.assertEqual(values, list(range(2000)))

    @nightly
    def test_streamsGoOnByFolderAndByBroker(self) -> None:
        for name, options in (("path", {"path": self.folder}), ("url", {"url": self.url})):
            found: list[int] = []
            for start in (0, 300):
                if name == "path":
                    self.publish(*range(start, start + 300))
                reader = self.spark.readStream.format("fleximq").options(**options, startingOffsets="earliest")
                stream = reader.option("maxOffsetsPerTrigger", "200").load()

                def keep(batch: Any, number: int, found: list[int] = found) -> None:
                    found += sorted(msgpack.unpackb(bytes(row.value)) for row in batch.select("value").collect())

                writer = stream.writeStream.foreachBatch(keep).trigger(availableNow=True)
                query = writer.option("checkpointLocation", str(self.parent / name)).start()
                query.awaitTermination(60)
            self.assertEqual(found, list(range(600)), name)
