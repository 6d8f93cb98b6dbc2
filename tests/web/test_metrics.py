"""What ``/metrics`` says, read back by the Prometheus client's own parser."""

import json
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openMetricsFamilies
from prometheus_client.parser import text_string_to_metric_families
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from fleximq.broker.traffic import Traffic
from fleximq.security.principal import Admitted
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.web.metric_table import METRICS, MetricKind
from fleximq.web.metrics import MAX_REASONS, REST
from tests.broker_process import BrokerProcess
from tests.web.api.api_case import ApiCase
from tests.web.asking import Granted

DOCS = Path(__file__).parents[2] / "docs"
ALERTS = DOCS / "grafana" / "fleximq-alerts.yml"

#: The metrics of the process, made by the Prometheus client.
PROCESS = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
)

Samples = dict[tuple[str, tuple[str, ...]], float]


def samplesIn(text: str) -> Samples:
    """Return the values in an exposition by name and values of labels, in the order of the labels' names."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class MetricsCase(ApiCase):
    """A broker that is scraped."""

    def samples(self) -> Samples:
        """Return all values."""
        return samplesIn(self.ask("GET /metrics").body.decode())

    def value(self, name: str, *labels: str) -> float | None:
        """Return one value, None if there is none."""
        return self.samples().get((f"fleximq_{name}", labels))


class TableTests(MetricsCase):
    """The table and what is told."""

    def test_families(self) -> None:
        """Just the metrics of the table are told, with their words and kinds, and those of the process."""
        text = self.ask("GET /metrics").body.decode()
        found = {family.name: family for family in text_string_to_metric_families(text)}
        own = {f"fleximq_{metric.name}": metric for metric in METRICS}
        self.assertEqual({name for name in found if not name.startswith("process_")}, set(own))
        for name, metric in own.items():
            self.assertEqual((found[name].type, found[name].documentation), (metric.kind.value, metric.words))
        process = {name.removesuffix("_total") for name in PROCESS}
        self.assertEqual({name for name in found if name.startswith("process_")}, process)

    def test_seriesHaveLabelsOfTable(self) -> None:
        """Series have the labels of the table."""
        self.produce("a", b"1")
        self.bury("a", b"2")
        self.broker.observers.counted("strange", 1)
        self.broker.leave(self.ann, "client closed")
        labels = {f"fleximq_{metric.name}": set(metric.labels) for metric in METRICS}
        for family in text_string_to_metric_families(self.ask("GET /metrics").body.decode()):
            for sample in family.samples:
                if family.name in labels:
                    self.assertEqual(set(sample.labels) - {"le"}, labels[family.name], sample.name)

    def test_openMetrics(self) -> None:
        """Who accepts OpenMetrics gets that."""
        answer = self.ask("GET /metrics", "Accept: application/openmetrics-text; version=1.0.0")
        self.assertTrue(answer.fields["content-type"].startswith("application/openmetrics-text"))
        self.assertIn("fleximq_published_messages", {each.name for each in openMetricsFamilies(answer.body.decode())})


class ValueTests(MetricsCase):
    """Where the values come from."""

    def test_clientsAndJoinsAreToldByDialectLeavesByReason(self) -> None:
        """Clients and joins are told by dialect, leaves by reason."""
        self.broker.join("blipmq")
        self.broker.leave(self.broker.join("blipmq"), "slow consumer")
        samples = self.samples()
        self.assertEqual(samples["fleximq_clients", ("blipmq",)], 1)
        self.assertEqual(samples["fleximq_joins_total", ("blipmq",)], 2)
        self.assertEqual(samples["fleximq_leaves_total", ("slow consumer",)], 1)
        self.assertEqual(samples["fleximq_slow_consumers_total", ()], 1)
        self.assertEqual(samples["fleximq_waiting_connections", ()], 7)

    def test_withoutConnectionsEachDialectHasZeros(self) -> None:
        """Without connections, each dialect has zeros."""
        self.broker.leave(self.ann, "client closed")
        self.broker.dialects = ("minimq", "fleximq")
        samples = self.samples()
        for name in ("clients", "connections"):
            for dialect in self.broker.dialects:
                self.assertEqual(samples[f"fleximq_{name}", (dialect,)], 0)

    def test_traffic(self) -> None:
        """What went over connections is told by dialect, of those that are gone as well."""
        for _ in range(2):
            traffic = Traffic()
            traffic.bytesIn, traffic.bytesOut, traffic.messagesIn, traffic.messagesOut = 1, 20, 300, 4000
            self.broker.traffic.begin("minimq", traffic)
        self.broker.traffic.end("minimq", traffic)
        samples = self.samples()
        for name, value in (
            ("received_bytes", 2), ("sent_bytes", 40), ("received_messages", 600), ("delivered_messages", 8000),
        ):  # fmt: skip
            self.assertEqual(samples[f"fleximq_{name}_total", ("minimq",)], value)
        self.assertEqual(samples["fleximq_connections", ("minimq",)], 1)

    def test_eachEventCountsInItsMetricWhatHasNoneInLast(self) -> None:
        """Each event counts in its metric, what has none in the last."""
        for event in (
            CountedEvent(EventFamily.DROPPED, "queue full"), CountedEvent(EventFamily.ERROR, "404"),
            CountedEvent(EventFamily.REFUSED_MESSAGES), CountedEvent(EventFamily.REFUSED_CONNECTIONS, "HTTP 403"),
            CountedEvent(EventFamily.NOT_LET_IN, "no capacity"), CountedEvent(EventFamily.REDELIVERED),
            CountedEvent(EventFamily.DEAD_LETTERS, "rejected"), "dead letters that could not be kept",
            CountedEvent(EventFamily.EXPIRED, "time to live"), CountedEvent(EventFamily.LOST, "damaged journal"),
            CountedEvent(EventFamily.REPEATED), CountedEvent(EventFamily.JOURNAL, "torn tail"), "something new",
        ):  # fmt: skip
            self.broker.observers.counted(event, 3)
        samples = self.samples()
        for name, *labels in (
            ("dropped_messages", "queue full"), ("errors", "404"), ("refused_messages",),
            ("refused_connections", "HTTP 403"), ("not_let_in", "no capacity"), ("redelivered_messages",),
            ("dead_letters", "rejected"), ("other_events", "dead letters that could not be kept"),
            ("expired_messages",),
            ("lost_messages",), ("repeated_messages",), ("journal_events", "torn tail"),
            ("other_events", "something new"),
        ):  # fmt: skip
            self.assertEqual(samples[f"fleximq_{name}_total", tuple(labels)], 3, name)

    def test_manyReasons(self) -> None:
        """However many reasons there are, there is a bound to the series."""
        for number in range(MAX_REASONS + 50):
            self.broker.observers.counted(CountedEvent(EventFamily.DROPPED, f"reason {number}"), 1)
        found = {labels[0]: value for (name, labels), value in self.samples().items() if "dropped" in name}
        self.assertEqual((len(found), found[REST]), (MAX_REASONS + 1, 50))

    def test_publicationsAreCountedAlsoToTopicsThatWereForgotten(self) -> None:
        """Publications are counted, also to topics that were forgotten."""
        self.produce("a", b"1", b"2")
        self.broker.topics.publishedBefore += 5
        self.assertEqual(self.value("published_messages_total"), 7)

    def test_queuesAreToldByKind(self) -> None:
        """Queues are told by kind."""
        self.produce("a", b"1", b"2")
        self.broker.consume(self.ann, "a")
        self.bury("a", b"3")
        samples = self.samples()
        self.assertEqual([samples["fleximq_queue_messages", (kind,)] for kind in ("work", "dead")], [1, 1])
        self.assertEqual(samples["fleximq_queue_in_flight_messages", ("work",)], 1)
        self.assertEqual(samples["fleximq_queues", ("subscription",)], 0)
        self.assertGreater(samples["fleximq_queue_bytes", ("dead",)], 0)

    def test_oldestMessageAgesFromFirstLookThatSawIt(self) -> None:
        """The oldest message ages from the first look that saw it."""
        self.produce("a", b"1")
        self.samples()
        self.clock.advance(5)
        self.produce("a", b"2")
        self.samples()
        self.assertEqual(self.value("queue_oldest_seconds", "work"), 5)
        self.broker.consume(self.ann, "a")
        self.clock.advance(2)
        self.assertEqual(self.value("queue_oldest_seconds", "work"), 2)

    def test_namesAreToldOfLargestOnlyAsFarAsTheyMayBeSeen(self) -> None:
        """Names are told of the largest only, as far as they may be seen."""
        for name, number in (("a", 1), ("b", 3), ("c", 2), ("d", 4)):
            self.produce(name, *[b"x"] * number)
        found = {
            labels: value for (name, labels), value in self.samples().items() if name.endswith("longest_queue_messages")
        }
        self.assertEqual(found, {("work", "d"): 4, ("work", "b"): 3})
        self.admitted = Admitted(None, Granted("metrics", "a", "c"))
        topics = {labels for name, labels in self.samples() if name.endswith("topic_published_messages_total")}
        self.assertEqual(topics, {("a",), ("c",)})

    def test_howLateEventLoopIsIsHistogramAndNumber(self) -> None:
        """How late the event loop is, is a histogram and a number."""
        self.clock.advance(1.75)
        samples = self.samples()
        self.assertEqual(samples["fleximq_reactor_lag_latest_seconds", ()], 0.75)
        self.assertEqual(samples["fleximq_reactor_lag_seconds_bucket", ("1.0",)], 1)
        self.assertEqual(samples["fleximq_reactor_lag_seconds_bucket", ("0.5",)], 0)

    def test_manyQueuesAndTopicsAreLookedAtInPortions(self) -> None:
        """Many queues and topics are looked at in portions; what comes meanwhile is told the next time."""
        for number in range(2500):
            self.broker.topics.get(f"t{number}")
        self.produce("t7", b"1")
        self.assertEqual(self.value("published_messages_total"), 1)
        self.assertEqual(self.value("topics"), 2500)


class ProcessTests(SynchronousTestCase):
    """A real broker, scraped."""

    def test_scrape(self) -> None:
        """What a client does shows in the metrics, those of the journal and the process among them."""
        with BrokerProcess("--journal", "journal") as broker:
            with socket.create_connection(broker.address) as client:
                client.sendall(b"PRODUCE:orders:one\nCONSUME:orders\n")
                answers = client.makefile("rb")
                answers.readline(), answers.readline()
                address = "http://{}:{}".format(*broker.address)
                with urllib.request.urlopen(f"{address}/metrics") as answer:
                    samples = samplesIn(answer.read().decode())
                with urllib.request.urlopen(f"{address}/readyz") as answer:
                    ready = json.load(answer)
        self.assertEqual(samples["fleximq_received_messages_total", ("minimq",)], 2)
        self.assertEqual(samples["fleximq_received_bytes_total", ("minimq",)], 34)
        self.assertEqual(samples["fleximq_delivered_messages_total", ("minimq",)], 1)
        self.assertGreater(samples["fleximq_sent_bytes_total", ("minimq",)], 40)
        self.assertEqual(samples["fleximq_queue_in_flight_messages", ("work",)], 1)
        self.assertEqual(samples["fleximq_journal_writable", ()], 1)
        self.assertGreaterEqual(samples["fleximq_journal_commit_messages_sum", ()], 1)
        self.assertGreater(samples["fleximq_journal_commit_seconds_sum", ()], 0)
        self.assertGreater(samples["process_resident_memory_bytes", ()], 1 << 20)
        self.assertEqual(ready["status"], "ok", ready)


class PageTests(SynchronousTestCase):
    """The dashboard and the alerts, against the table."""

    def test_everyMetricThatGrafanaDashboardAsksForIsThere(self) -> None:
        """Every metric that the Grafana dashboard asks for is there."""
        asked = list(_expressions(json.loads((DOCS / "grafana" / "fleximq.json").read_text())))
        self.assertGreater(self.known(asked), 25)

    def test_everyMetricOfAlertsExists(self) -> None:
        """So is every metric of the alerts."""
        asked = re.findall("^ *expr: (.*)$", ALERTS.read_text(), re.MULTILINE)
        self.assertGreater(self.known(asked), 10)

    def test_prometheusAcceptsAlerts(self) -> None:
        """Prometheus accepts the alerts."""
        promtool = shutil.which("promtool")
        if promtool is None:
            raise SkipTest("promtool is not installed; it is in the Debian package prometheus")
        done = subprocess.run([promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def known(self, expressions: Iterable[str]) -> int:
        """Check that all metrics in these exist, and return their number."""
        known: set[str] = {*PROCESS}
        for metric in METRICS:
            suffixes = ("_bucket", "_count", "_sum") if metric.kind is MetricKind.HISTOGRAM else ("",)
            known |= {metric.spelt + suffix for suffix in suffixes}
        named = {name for each in expressions for name in re.findall(r"\b(?:fleximq|process)_\w+", each)}
        self.assertEqual(named - known, set())
        return len(named)


def _expressions(value: Any) -> Any:
    """Yield every query in a dashboard."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name in ("expr", "query") and isinstance(each, str):
                yield each
            else:
                yield from _expressions(each)
    elif isinstance(value, list):
        for each in value:
            yield from _expressions(each)
