"""Streams that tell brokers how far they are: by an option, and by a listener."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.pipeline.broker_link import BrokerAddress
from fleximq.pipeline.lag import Group, groups, report
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip
from tests.pipeline.started_broker import startBroker

if not skip:
    from fleximq.pipeline.lag.query_listener import offsetsBehind, sourceOffsets
    from tests.pipeline.session import sharedSession

ONE, OTHER = "1" * 32, "2" * 32


@nightly
class LiveTests(SynchronousTestCase):
    """A broker with a journal of 500 records."""

    def setUp(self) -> None:
        self.spark = sharedSession()
        self.parent = Path(tempfile.mkdtemp(prefix="fleximq-groups-"))
        self.addCleanup(shutil.rmtree, self.parent, ignore_errors=True)
        self.folder = str(self.parent / "journal")
        broker = startBroker(self, self.folder)
        self.url = f"tcp://127.0.0.1:{broker.port()}"
        self.publish(500)

    def publish(self, count: int) -> None:
        """Publish numbers, and return when they are on disk."""
        with connect(self.url) as client:
            client.publish_many("numbers", range(count))
            client.flush()

    def run_(self, name: str, **options: str) -> None:
        """Read what there is, in micro-batches of 200."""
        stream = self.spark.readStream.format("fleximq").option("startingOffsets", "earliest")
        rows = stream.options(maxOffsetsPerTrigger="200", columns="offset", **options).load()
        writer = rows.writeStream.format("noop").queryName(name).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.parent / name)).start()
        self.assertTrue(query.awaitTermination(900))

    def groups(self) -> list[Group]:
        """Return what the broker knows."""
        return groups(BrokerAddress.of({"url": self.url}))

    def where(self) -> list[Any]:
        """Return where each group is."""
        return [(group.name, group.next, group.records) for group in self.groups()]

    def test_streamReportsItsLastBatchToUrlOrLagUrl(self) -> None:
        self.run_("byUrl", url=self.url, consumerGroup="byUrl")
        self.run_("byPath", path=self.folder, consumerGroup="byPath", lagUrl=self.url)
        self.assertEqual(self.where(), [("byPath", 501, 0), ("byUrl", 501, 0)])
        self.publish(100)
        self.assertEqual(self.where(), [("byPath", 501, 100), ("byUrl", 501, 100)])
        self.run_("byUrl", url=self.url, consumerGroup="byUrl")
        self.assertEqual(self.where(), [("byPath", 501, 100), ("byUrl", 601, 0)])

    def test_listenerReportsForOtherStreams(self) -> None:
        listener = report(self.spark, self.url)
        other = report(self.spark, self.url, group="chosen", query="second")
        try:
            self.run_("first", path=self.folder)
            self.run_("second", path=self.folder)
        finally:
            listener.close()
            other.close()
        self.assertEqual(self.where(), [("chosen", 501, 0), ("first", 501, 0), ("second", 501, 0)])


class TogetherTests(SynchronousTestCase):
    """The offsets in a query's progress."""

    def test_lowerOffsetOfSeveralSourcesCounts(self) -> None:
        ends = [f'{{"{ONE}": 5, "{OTHER}": 7}}', f'{{"{ONE}": 4}}', {OTHER: 9}]
        self.assertEqual(sourceOffsets(ends), {ONE: 4, OTHER: 7})

    def test_offsetsOfOtherSourcesAreIgnored(self) -> None:
        for end in (None, "", "5", "null", '{"topic": {"0": 5}}', f'{{"{ONE}": "5"}}', f'{{"{ONE}": true}}', "{", [5]):
            self.assertEqual(sourceOffsets([end]), {})

    def test_largerLagOfSeveralSourcesCounts(self) -> None:
        kafka = {"endOffset": {"topic": {"0": 5}}, "latestOffset": {"topic": {"0": 9}}}
        first = {"endOffset": f'{{"{ONE}": 5}}', "latestOffset": f'{{"{ONE}": 9, "{OTHER}": 4}}'}
        later = {"endOffset": {ONE: 3, OTHER: 7}, "latestOffset": {ONE: 9, OTHER: 6}}
        for sources, behind in (
            ([first], {ONE: 4}),
            ([first, kafka, later], {ONE: 6, OTHER: 0}),
            ([kafka, {"endOffset": None, "latestOffset": None}], {}),
        ):
            self.assertEqual(offsetsBehind({"sources": sources}), behind)
