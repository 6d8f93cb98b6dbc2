"""Figures of topics in windows of time: what they are, and that each comes once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.errors import JournalError, SettingError
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.jobs.stats import STATS, plausibleTimes
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip
from tests.pipeline.started_broker import startBroker
from tests.pipeline.written import Written

if not skip:
    import pyarrow as pa

    from tests.pipeline.jobs.fake_run import FakeRun, runJob
    from tests.pipeline.session import sharedSession

#: The beginning of a minute, in microseconds.
MINUTE = 1_700_000_040_000_000
SECOND = 1_000_000


class StatsCase(SynchronousTestCase):
    """``written`` is a journal, and ``table`` where the figures go."""

    def setUp(self) -> None:
        self.spark = sharedSession()
        parent = Path(self.mktemp()).absolute()
        parent.mkdir()
        self.table = str(parent / "figures")
        self.written = Written(str(parent / "journal"))
        self.addCleanup(self.written.close)

    def at(self, second: float, topic: str, *payloads: bytes, **more: Any) -> None:
        """Keep messages so many seconds after the beginning of the first window."""
        self.written.time = MINUTE + round(second * SECOND)
        self.written.kept(topic, *payloads, **more)

    def count(self, *words: str) -> FakeRun:
        """Run the job to its end."""
        return runJob(STATS, "--journal", self.written.folder, "--table", self.table, "--once", *words)

    def rows(self) -> list[dict[str, Any]]:
        """Return what the table has, by time and topic."""
        return [row.asDict() for row in self.spark.read.parquet(self.table).orderBy("start", "topic").collect()]


class FiguresTests(StatsCase):
    """What a row says."""

    def test_messagesBytesAndPublishersOfEachTopicAndWindowAreCounted(self) -> None:
        self.at(0, "a", b"12", b"345")
        self.at(59.9, "a", b"6", publisher=8)
        self.at(60, "a", b"")
        self.at(61, "b", b"x")
        self.at(200, "later", b"")
        self.count()
        found = [(row["topic"], row["start"], row["messages"], row["bytes"], row["publishers"]) for row in self.rows()]
        first, second = (datetime.fromtimestamp(MINUTE / SECOND + each, UTC).replace(tzinfo=None) for each in (0, 60))
        self.assertEqual(found, [("a", first, 3, 6, 2), ("a", second, 1, 0, 1), ("b", second, 1, 1, 1)])
        self.assertEqual([(row["end"] - row["start"]).seconds for row in self.rows()], [60, 60, 60])

    def test_oneMessageOfTheFutureEndsNoOtherWindows(self) -> None:
        self.at(0, "a", b"")
        self.at(3600, "b", b"")
        for second in range(1, 60):
            self.at(second, "a", b"")
        self.at(71, "a", b"")
        self.at(72, "late", b"")
        self.at(10, "late", b"")
        self.at(12, "late", b"")
        self.count()
        self.assertEqual([(row["topic"], row["messages"]) for row in self.rows()], [("a", 60), ("b", 1), ("late", 2)])

    def test_lateMessagesAreNotCountedButTold(self) -> None:
        self.at(0, "a", b"")
        self.at(71, "a", b"")
        self.assertEqual(self.count().said[-1], "1 rows written")
        self.at(30, "a", b"")
        self.at(72, "a", b"")
        self.assertEqual(
            self.count().said[-1],
            "warning: messages of 1 windows of topics were too late for --late, and are not counted",
        )

    def test_fileIsNamedByItsQueryAndBatch(self) -> None:
        self.at(0, "a", b"")
        self.at(100, "a", b"")
        self.count()
        [file] = Path(self.table).glob("*.parquet")
        query = json.loads(Path(self.table, "_checkpoint", "metadata").read_text())["id"]
        self.assertRegex(file.name, rf"^{query}-\d{{10}}\.parquet$")

    def test_silenceIsAGapAlsoBeforeTheFirstAndAfterTheLastMessage(self) -> None:
        for second in (10, 20.5, 30, 30.9):
            self.at(second, "a", b"")
        self.at(100, "a", b"")
        self.count("--gap", "10s")
        [row] = self.rows()[:1]
        # Silent are the seconds 0 to 9, 11 to 19, 21 to 29 and 31 to 59.
        self.assertEqual((row["gaps"], row["longest_gap"]), (2, 29.0))

    def test_messageInEachSecondLeavesNoGap(self) -> None:
        for second in range(5):
            self.at(second, "a", b"")
        self.at(60, "a", b"")
        self.count("--gap", "1s", "--window", "5s")
        self.assertEqual((self.rows()[0]["gaps"], self.rows()[0]["longest_gap"]), (0, 0.0))

    def test_latencyIsReadFromTheNamedHeader(self) -> None:
        sent = MINUTE // 1000
        for late, written in ((10, sent), (20, "2023-11-14T22:14:00Z"), (30, sent), (0, "nonsense")):
            self.at(late / 1000, "a", b"", header=msgpack.packb({"sent": written}))
        self.at(1, "b", b"")
        self.at(100, "b", b"")
        self.count("--sent-at", "sent")
        a, b = self.rows()
        self.assertEqual([a[f"latency_{each}"] for each in ("p50", "p90", "p99", "max")], [20.0, 30.0, 30.0, 30.0])
        self.assertEqual([b[f"latency_{each}"] for each in ("p50", "p90", "p99", "max")], [None] * 4)

    def test_windowOfADayTellsGapsInStepsOf24Seconds(self) -> None:
        for second in (0, 86_399):
            self.at(second - 80_040, "a", b"")
        self.at(86_400, "a", b"")
        self.count("--window", "1d")
        self.assertEqual((self.rows()[0]["messages"], self.rows()[0]["longest_gap"]), (2, 86_400.0 - 48))


class TimesTests(SynchronousTestCase):
    """The times of messages, of which a few are of a clock that was wrong."""

    def bounded(self, *seconds: int, pieces: int = 1) -> list[int]:
        """Return the times that count at second 1,000, where 10 seconds are no fault."""
        times = pa.array([second * SECOND for second in seconds], pa.timestamp("us", "UTC"))
        rows = pa.record_batch({"timestamp": times, "topic": ["t"] * len(times)})
        parts = [rows.slice(at, pieces) for at in range(0, len(rows), pieces)]
        found = pa.Table.from_batches(plausibleTimes(parts, 10 * SECOND, lambda: 1000.0), rows.schema)
        self.assertEqual(found.column("topic").to_pylist(), ["t"] * len(times))
        return [int(value) // SECOND for value in found.column("timestamp").cast(pa.int64()).to_pylist()]

    def test_timeLaterThanMostAfterItIsCorrected(self) -> None:
        """One that is later than most of those after it gets a time of them; one that is earlier stays."""
        for pieces in (1, 7, 100):
            self.assertEqual(self.bounded(0, 500, *range(1, 31), pieces=pieces), [0, 8, *range(1, 31)])
            self.assertEqual(self.bounded(*range(500, 530), 3, pieces=pieces), [*range(500, 530), 3])

    def test_lastTimesMayBeRightButAreNotLaterThanThePresent(self) -> None:
        self.assertEqual(self.bounded(1, 2, 500, 3, 4), [1, 2, 500, 3, 4])
        self.assertEqual(self.bounded(1, 1010, 1011, 4000), [1, 1010, 1000, 1000])
        self.assertEqual(list(plausibleTimes([], 1)), [])


@nightly
class OnceTests(StatsCase):
    """Each row comes once."""

    def test_unfinishedWindowWaitsAndLateMessagesCountNowhere(self) -> None:
        self.at(0, "a", b"")
        self.at(71, "a", b"")
        self.count()
        self.assertEqual([row["messages"] for row in self.rows()], [1])
        self.at(30, "a", b"")
        self.at(72, "a", b"")
        self.at(131, "a", b"")
        self.count()
        self.count()
        self.assertEqual([row["messages"] for row in self.rows()], [1, 2])

    def test_ownPublicationsAreNotCounted(self) -> None:
        self.at(0, "$stats/a", b"")
        self.at(1, "$statsa", b"")
        self.at(100, "a", b"")
        self.count()
        self.assertEqual([row["topic"] for row in self.rows()], ["$statsa"])

    def test_rowsArePublishedOnceThoughABatchIsRepeated(self) -> None:
        self.at(0, "a", b"xyz")
        self.at(1, "n" * 1024, b"")
        self.at(71, "a", b"")
        url = f"tcp://127.0.0.1:{startBroker(self, None, '--journal', f'{self.table}-broker').port()}"
        self.count("--publish", url)
        # Without its commit, the batch is done again.
        for commit in Path(self.table, "_checkpoint", "commits").glob("*[0-9]"):
            commit.unlink()
            commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
        self.count("--publish", url)
        self.assertEqual(len(self.rows()), 2)
        with connect(url) as client:
            kept = {row["topic"]: row["count"] for row in client.ask("/journal/bounds")["topics"]}
            with client.subscribe("$stats/#", from_="first") as deliveries:
                found = [deliveries.next(300) for _ in range(2)]
        self.assertEqual(sorted(kept.values()), [1, 1])
        [value] = [each.value for each in found if each is not None and each.topic == "$stats/a"]
        self.assertEqual((value["topic"], value["messages"], value["bytes"]), ("a", 1, 3))
        self.assertEqual(value["start"], "2023-11-14T22:14:00.000000Z")
        [other] = [each for each in found if each is not None and each.topic != "$stats/a"]
        self.assertEqual((other.value["topic"], len(other.topic)), ("n" * 1024, 7 + 64))

    def test_jobGoesOnUntilItIsStopped(self) -> None:
        self.at(0, "a", b"")
        self.at(100, "a", b"")
        run = FakeRun()

        def progress(name: str, done: float, total: float | None, unit: str) -> None:
            if done == 2:
                run.stopping.set()

        run.progress = progress  # type: ignore[method-assign]
        tooLate = Timer(600, run.stopping.set)
        tooLate.start()
        self.addCleanup(tooLate.cancel)
        runJob(STATS, "--journal", self.written.folder, "--table", self.table, "--trigger", "100ms", run=run)
        self.assertTrue(tooLate.is_alive())
        self.assertEqual(self.spark.streams.active, [])


class OptionsTests(SynchronousTestCase):
    """What is refused before anything begins."""

    def refuses(self, words: str, *given: str) -> None:
        """Check the sentence."""
        self.assertRaisesRegex((OptionRefused, SettingError, JournalError), words, runJob, STATS, *given)

    def test_missingOptionsAreRefused(self) -> None:
        self.refuses("--journal FOLDER or --url URL is needed", "--table", "t")
        self.refuses("--table FOLDER or --publish URL is needed", "--journal", "j")
        self.refuses("--checkpoint FOLDER is needed", "--journal", "j", "--publish", "tcp://localhost:1")
        self.refuses("--gap must be whole seconds", "--journal", "j", "--table", "t", "--gap", "1500ms")
        self.refuses("is no journal", "--journal", self.mktemp(), "--table", "t")
