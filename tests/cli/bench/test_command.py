"""``fleximq bench``: its numbers, its pictures, and a run."""

import csv
import json
from array import array
from pathlib import Path

from rich.console import Console
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.bench.command import figures, histogram, percentile, picture, row
from fleximq.cli.bench.dialect_clients import BENCH_CLIENTS, Plan
from fleximq.cli.bench.processes import BenchResults, RoleResult
from fleximq.cli.client_commands.broker_options import Address
from tests.cli.client_commands.commands import CommandCase, ran

PLAN = Plan(Address("tcp://x:1"), "fleximq", "t", 2, 1, 100, 50, 10, None, 1.0)


def course(received: int = 200) -> BenchResults:
    """Return what two publishers did in two seconds, and one subscriber in four."""
    latencies = array("q", [1000 * each for each in range(1, 101)])
    publishers = [RoleResult(100, 1.0, 2.0, array("q")), RoleResult(100, 1.0, 3.0, array("q"))]
    return BenchResults(publishers, [RoleResult(received, 1.0, 5.0, latencies)])


class ResultTests(SynchronousTestCase):
    """Numbers that are known beforehand."""

    def test_figures(self) -> None:
        """Rates over all clients, latencies in microseconds."""
        found = figures(PLAN, course())
        self.assertEqual((found["publishers"]["rate"], found["publishers"]["each"]), (100.0, [100.0, 50.0]))
        self.assertEqual((found["subscribers"]["rate"], found["subscribers"]["megabytes"]), (50.0, 0.003))
        self.assertEqual(found["latency_us"], {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 100.0, "max": 100.0})
        self.assertEqual(found["lost"], 0)

    def test_at_once(self) -> None:
        """The rate of what came in one piece counts from when its publishers began."""
        found = figures(PLAN, BenchResults(course().publishers, [RoleResult(200, 5.0, 5.0, array("q", [1000]))]))
        self.assertEqual((found["subscribers"]["rate"], found["subscribers"]["each"]), (50.0, [50.0]))

    def test_nothing(self) -> None:
        """Who got nothing has no rate."""
        found = figures(PLAN, BenchResults(course().publishers, [RoleResult(0, 0.0, 0.0, array("q"))]))
        self.assertEqual((found["subscribers"]["rate"], found["subscribers"]["each"]), (0.0, [0.0]))

    def test_lost(self) -> None:
        """What did not come is told."""
        found = figures(PLAN, course(received=150))
        self.assertEqual(found["lost"], 50)
        self.assertIn("50 messages did not arrive", _drawn(found))

    def test_shared(self) -> None:
        """In a shared queue subscribers get all messages together; who gets more than that gets some again."""
        plan = PLAN._replace(dialect="minimq", subscribers=2)
        half, more = course(received=100).subscribers[0], course(received=101).subscribers[0]
        found = figures(plan, BenchResults(course().publishers, [half, half]))
        self.assertEqual((found["lost"], found["repeated"]), (0, 0))
        found = figures(plan, BenchResults(course().publishers, [half, more]))
        self.assertEqual((found["lost"], found["repeated"]), (0, 1))
        self.assertIn("1 messages were delivered again", _drawn(found))

    def test_nobody(self) -> None:
        """Without subscribers there are no latencies."""
        found = figures(PLAN, BenchResults(course().publishers, []))
        self.assertEqual((found["latency_us"], found["histogram_us"], found["lost"]), ({}, [], 0))
        self.assertIn("publishers", _drawn(found))

    def test_percentile(self) -> None:
        """The value that so many per cent are not above."""
        self.assertEqual([percentile([1, 2, 3, 4], share) for share in (0, 25, 26, 50, 100)], [1, 1, 2, 2, 4])

    def test_histogram(self) -> None:
        """Each step is twice as long as the one before, and none between is left out."""
        self.assertEqual(histogram([1, 1000, 1001, 8000]), [(1.0, 2), (2.0, 1), (4.0, 0), (8.0, 1)])

    def test_picture(self) -> None:
        """What a terminal shows."""
        drawn = _drawn(figures(PLAN, course()))
        for words in ("publishers", "subscribers", "p99 99 µs", "to 128 µs", "█", "36.0 %"):
            self.assertIn(words, drawn)

    def test_row(self) -> None:
        """The columns of a CSV file."""
        found = row(figures(PLAN, course()))
        columns = (
            "dialect size batch publishers subscribers messages publish_rate receive_rate lost p50_us p99_us max_us"
        )
        self.assertEqual(" ".join(found), columns)
        self.assertEqual((found["messages"], found["publish_rate"], found["p99_us"]), (200, 100.0, 99.0))


class BenchTests(CommandCase):
    """The command."""

    def test_run(self) -> None:
        """Every dialect carries everything, the first one with several clients on each side."""
        for number, dialect in zip([2, *[1] * len(BENCH_CLIENTS)], BENCH_CLIENTS, strict=False):
            each = str(number)
            words = ("--dialect", dialect, "--publishers", each, "--subscribers", each, "--messages", "500", "--json")
            found = ran("bench", *words)
            self.assertEqual((found.code, found.err), (0, ""), dialect)
            told = json.loads(found.out)
            self.assertEqual((told["publishers"]["messages"], told["lost"]), (500 * number, 0), dialect)
            self.assertTrue(told["latency_us"]["p50"] > 0)

    def test_csv(self) -> None:
        """Each run adds a line to a file."""
        path = Path(self.mktemp())
        for _ in range(2):
            ran("bench", "--messages", "10", "--rate", "1000", "--csv", str(path))
        with path.open(newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual([line["messages"] for line in lines], ["10", "10"])

    def test_wrong(self) -> None:
        """What makes no sense is one sentence."""
        for words, sentence in (
            (("--size", "7"), "size is 7, but must be between 8 and"),
            (("--publishers", "64"), "there are 65 clients, but the limit is 64"),
            (("--subscribers", "-1"), "--subscribers"),
            (("--dialect", "mqtt"), "--dialect"),
            (("--messages", "1", "--csv", "/nowhere/x.csv"), "/nowhere/x.csv cannot be written"),
        ):
            found = ran("bench", *words)
            self.assertEqual(found.code, 1, words)
            self.assertIn(sentence, found.err)

    def test_noBroker(self) -> None:
        """Nobody there: one sentence."""
        self.broker.stop()
        found = ran("bench", "--messages", "10")
        self.assertEqual(found.code, 1)
        self.assertIn("cannot connect", found.err)


def _drawn(found: dict[str, object]) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(picture(found))
    return console.export_text()
