"""What ``describe`` shows of journals, topics, consumer groups and lakes; it needs no Spark to run."""

import json
import os

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.errors import LakeRefused, OptionRefused
from fleximq.pipeline.jobs.describe import DESCRIBE
from tests.broker_process import BrokerProcess
from tests.pipeline.installed import missing as skip

if not skip:
    import msgpack

    from fleximq.client.blocking import connect
    from fleximq.pipeline.broker_link import BrokerAddress
    from fleximq.pipeline.lag import Reporter
    from fleximq.values.message import Content
    from tests.pipeline.jobs.fake_run import runJob
    from tests.pipeline.written import TIME, Written

#: Seconds that a broker may take.
PATIENCE = 300.0


class DescribeTests(SynchronousTestCase):
    """One journal of some topics."""

    def setUp(self) -> None:
        """Write the journal."""
        self.folder = f"{os.path.abspath(self.mktemp())}-j"
        self.written = written = Written(self.folder)
        self.addCleanup(written.close)
        written.kept("news", *(msgpack.packb({"n": number, "text": "x"}) for number in range(4)))
        written.time = TIME + 5_000_000
        written.kept("news", msgpack.packb({"n": 1.5}))
        written.kept("words", b"hello", "grüße".encode(), content=Content.TEXT)
        written.kept("bytes", b"\xff\xfe", content=Content.BYTES)

    def facts(self, *words: str) -> dict[str, list[dict[str, object]]]:
        """Return what it says as JSON."""
        found: dict[str, list[dict[str, object]]] = json.loads(runJob(DESCRIBE, "--format", "json", *words).printed)
        return found

    def test_eachTopicHasRecordsBytesOffsetsTimesFormatAndSchema(self) -> None:
        facts = self.facts("--journal", self.folder)
        self.assertEqual(facts["journals"], [{"journal": self.written.id, "at": self.folder, "first": 1, "next": 9}])
        topics = {topic.pop("topic"): topic for topic in facts["topics"]}
        self.assertEqual(list(topics), ["bytes", "news", "words"])
        self.assertEqual(
            topics["news"],
            {
                "journal": self.written.id, "records": 5, "bytes": 4 * 11 + 12, "first": 1, "last": 5,
                "from": "2023-11-14T22:13:20.000Z", "to": "2023-11-14T22:13:25.000Z",
                "format": "messagepack", "schema": "n DOUBLE, text STRING",
            },
        )  # fmt: skip
        self.assertEqual((topics["words"]["format"], topics["words"]["schema"]), ("text", None))
        self.assertEqual(topics["bytes"]["format"], "raw")

    def test_tablesForPeopleHaveTheSameFacts(self) -> None:
        printed = runJob(DESCRIBE, "--journal", self.folder, "--subscribe", "words").printed
        lines = printed.splitlines()
        self.assertEqual([line for line in lines if line in ("Journals", "Topics")], ["Journals", "Topics"])
        self.assertEqual(
            lines[-2].split(),
            ["words", "2", "12", "6", "7", "2023-11-14T22:13:25.000Z", "2023-11-14T22:13:25.000Z", "text"],
        )

    def test_topicsOfSeveralJournalsAreToldApart(self) -> None:
        other = Written(f"{self.folder}2")
        self.addCleanup(other.close)
        other.kept("news", b"x")
        facts = self.facts("--journal", f"{self.folder}*")
        self.assertEqual(len(facts["journals"]), 2)
        self.assertEqual(
            {topic["journal"] for topic in facts["topics"] if topic["topic"] == "news"}, {other.id, self.written.id}
        )

    def test_journalWithoutRecordsHasNoTopics(self) -> None:
        empty = Written(f"{self.folder}-empty")
        self.addCleanup(empty.close)
        facts = self.facts("--journal", empty.folder)
        self.assertEqual((len(facts["journals"]), facts["topics"]), (1, []))

    def test_missingSourceAndMissingLakeAreRefused(self) -> None:
        self.assertRaises(OptionRefused, runJob, DESCRIBE)
        error = self.assertRaises(LakeRefused, runJob, DESCRIBE, "--lake", "/not/there")
        self.assertEqual(str(error), "the lake /not/there cannot be read: no such file or directory")

    def test_brokerTellsTheSameAndItsConsumerGroups(self) -> None:
        with BrokerProcess("--journal", f"{self.folder}-b", "--durable", "#") as broker:
            url = f"tcp://127.0.0.1:{broker.port()}"
            with connect(url) as client:
                client.publish("orders", {"id": 1})
                client.publish("orders", {"id": 2})
                client.flush()
            (journal,) = self.facts("--url", url)["journals"]
            reporter = Reporter("billing", [BrokerAddress(url)])
            reporter.report({str(journal["journal"]): 2})
            reporter.close(PATIENCE)
            facts = self.facts("--url", url)
        self.assertEqual([topic["topic"] for topic in facts["topics"]], ["orders"])
        self.assertEqual(facts["topics"][0]["schema"], "id BIGINT")
        (group,) = facts["groups"]
        self.assertEqual((group["name"], group["next"], group["end"], group["records"]), ("billing", 2, 3, 1))
