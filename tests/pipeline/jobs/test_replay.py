"""What was kept is published again: all of it, once, and for each dialect as it was."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.errors import JournalError, SettingError
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.files.schema import ALL_COLUMNS
from fleximq.pipeline.jobs import replay as jobs_replay
from fleximq.pipeline.jobs import replay_source
from fleximq.pipeline.jobs.replay import REPLAY
from fleximq.pipeline.jobs.replay_schedule import ReplaySchedule
from fleximq.pipeline.jobs.replay_source import ReplaySlice, mergeSlices
from tests.broker_process import BrokerProcess
from tests.conversations.clients import BlipClient, FlexiClient, IdentityClient, MiniClient, Stream
from tests.nightly import nightly, repetitions
from tests.pipeline.installed import missing as skip
from tests.pipeline.started_broker import startBroker
from tests.pipeline.written import TIME, Written

if not skip:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fleximq.pipeline.jobs.seal import SEAL
    from fleximq.pipeline.writer.sink import BatchSink
    from tests.pipeline.jobs.fake_run import FakeRun, runJob
    from tests.pipeline.session import sharedSession

#: Seconds that a message may take; they only end a hang.
SECONDS = 300


class Crash(Exception):
    """The process ends here."""


class ReplayCase(SynchronousTestCase):
    """A broker into which is replayed, and a folder for everything."""

    def setUp(self) -> None:
        self.spark = sharedSession()
        self.folder = Path(tempfile.mkdtemp(prefix="fleximq-replay-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.broker = startBroker(self, self.folder / "into")
        self.url = f"tcp://127.0.0.1:{self.broker.port()}"

    def replay(self, *words: str, run: FakeRun | None = None) -> list[str]:
        """Run the job, and return what it says."""
        return runJob(REPLAY, "--into", self.url, "--state", str(self.folder / "state"), *words, run=run).said

    def published(self, *topics: str) -> list[tuple[str, Any]]:
        """Return topic and value of all that these topics have, in their order."""
        with connect(self.url) as client:
            kept = {row["topic"]: row["count"] for row in client.ask("/journal/bounds")["topics"]}
            found: list[tuple[int, str, Any]] = []
            for topic in topics or kept:
                with client.subscribe(topic, from_="first") as deliveries:
                    for _ in range(kept.get(topic, 0)):
                        delivery = deliveries.next(SECONDS)
                        assert delivery is not None
                        found.append((delivery.header["offset"], topic, delivery.value))
        return [(topic, value) for _, topic, value in sorted(found, key=lambda each: each[0])]

    def crashes(self, name: str, after: int, *words: str, before: bool) -> None:
        """Replay, and end before or behind the call of the sink's method that comes after so many others."""
        calls = iter(range(1000))
        method = getattr(BatchSink, name)

        def crash(sink: Any, *arguments: Any) -> Any:
            last = next(calls) == after
            if last and before:
                raise Crash
            answer = method(sink, *arguments)
            if last:
                raise Crash
            return answer

        with mock.patch.object(BatchSink, name, crash):
            self.assertRaises(Crash, self.replay, *words)


class JournalCase(ReplayCase):
    """``written`` is a journal with ten numbers in each of the topics a and b, one pair a second."""

    def setUp(self) -> None:
        super().setUp()
        self.written = Written(str(self.folder / "journal"), segmentBytes=2000)
        self.addCleanup(self.written.close)
        for number in range(10):
            self.written.time = TIME + number * 1_000_000
            self.written.publish("a", msgpack.packb(number))
            self.written.publish("b", msgpack.packb(10 + number), publisher=8)
            self.written.commit()
        self.from_ = ("--journal", self.written.folder)
        self.everything = [pair for number in range(10) for pair in (("a", number), ("b", 10 + number))]


class JournalTests(JournalCase):
    """Out of a journal."""

    def test_allIsPublishedInOrderAndASecondRunAddsNothing(self) -> None:
        self.assertEqual(self.replay(*self.from_)[-1], "20 messages were published")
        self.assertEqual(self.published(), self.everything)
        self.assertIn("is over: 20 messages were published", self.replay(*self.from_)[-1])
        self.assertEqual(self.published(), self.everything)

    def test_otherNameIsAnotherReplay(self) -> None:
        self.replay(*self.from_, "--subscribe", "a")
        self.replay(*self.from_, "--subscribe", "a", "--name", "again")
        self.assertEqual([value for _, value in self.published("a")], [*range(10)] * 2)

    def test_replayBeginsAndEndsAtAnOffsetOrATime(self) -> None:
        self.replay(*self.from_, "--from", "3", "--to", "6")
        self.assertEqual(self.published(), self.everything[2:5])
        self.replay(*self.from_, "--from", "2023-11-14T22:13:25Z", "--to", "2023-11-14T22:13:27", "--to-topic", "t")
        self.assertEqual([value for _, value in self.published("t")], [5, 15, 6, 16])

    def test_conditionSelectsRows(self) -> None:
        self.replay(*self.from_, "--where", "publisher = 8 AND offset < 6", "--topics", "*")
        self.assertEqual(self.published(), [("b", 10), ("b", 11)])

    def test_templateNamesTheTopic(self) -> None:
        self.replay(*self.from_, "--to", "3", "--to-topic", "again.{topic}.x{topic}")
        self.assertEqual(self.published(), [("again.a.xa", 0), ("again.b.xb", 10)])

    def test_topicsOfTheBrokerAreLeftOutUnlessTheyGetAnotherName(self) -> None:
        self.written.kept("$dead/a", msgpack.packb("dead"))
        self.assertEqual(self.replay(*self.from_)[-1], "20 messages were published")
        self.replay(*self.from_, "--subscribe", "$dead/a", "--to-topic", "jobs")
        self.assertEqual(self.published("jobs"), [("jobs", "dead")])

    def test_severalJournalsAreReplayedAfterEachOther(self) -> None:
        other = Written(str(self.folder / "other"))
        other.kept("c", msgpack.packb(1), msgpack.packb(2))
        other.close()
        self.replay(*self.from_, "--journal", other.folder)
        self.assertEqual(sorted(self.published()), sorted([*self.everything, ("c", 1), ("c", 2)]))

    def test_headersStayAndAKeyKeepsItsType(self) -> None:
        for key in ("k", b"\xff", None):
            header = {"message_id": "m", "n": "1"} | ({} if key is None else {"key": key})
            self.written.kept("h", b"\xc0", header=msgpack.packb(header))
        self.replay(*self.from_, "--subscribe", "h")
        with connect(self.url) as client, client.subscribe("h", from_="first") as deliveries:
            found = [deliveries.next(SECONDS) for _ in range(3)]
        self.assertEqual([each.header.get("key") for each in found if each], ["k", b"\xff", None])
        self.assertEqual([(each.header["message_id"], each.header["n"]) for each in found if each], [("m", "1")] * 3)

    def test_sealedHistoryAndJournalAreOneReplay(self) -> None:
        sealed = str(self.folder / "sealed")
        runJob(SEAL, *self.from_, "--sealed", sealed)
        self.assertTrue(list(Path(sealed).rglob("*.parquet")))
        self.replay(*self.from_, "--sealed", sealed, "--rate", "10000")
        self.assertEqual(self.published(), self.everything)

    def test_brokerIsReadAndWrittenEvenTheSameOne(self) -> None:
        self.replay(*self.from_)
        self.replay("--url", self.url, "--to-topic", "copy.{topic}")
        self.assertEqual(self.published("copy.a", "copy.b"), [(f"copy.{topic}", n) for topic, n in self.everything])

    def waits(self, *words: str) -> list[float]:
        """Replay with a clock that stands still, and return how long is waited before each slice."""
        run = FakeRun()
        found: list[float] = []
        self.patch(jobs_replay, "time", SimpleNamespace(monotonic=lambda: 100.0))
        with mock.patch.object(run.stopping, "wait", lambda seconds: found.append(round(seconds, 3))):
            self.replay(*self.from_, *words, run=run)
        return found

    def test_rateLimitsTheRowsOfASecond(self) -> None:
        """So many a second are published, each slice in a transaction."""
        self.assertEqual(self.waits("--rate", "40"), [0.0, 0.1, 0.2, 0.3, 0.4])
        self.assertEqual(self.published(), self.everything)

    def test_speedDividesThePauses(self) -> None:
        self.assertEqual(self.waits("--speed", "2"), [each / 2 for each in range(10)])
        self.assertEqual(self.published(), self.everything)

    def test_largeReplayIsPublishedInPiecesInOrder(self) -> None:
        self.patch(replay_source, "ROWS", 3)
        self.patch(replay_source, "_GRAIN", 2)
        self.replay(*self.from_)
        self.assertEqual(self.published(), self.everything)

    def test_emptyReplayPublishesNothing(self) -> None:
        self.assertEqual(self.replay(*self.from_, "--subscribe", "none")[-1], "0 messages were published")


class CrashTests(JournalCase):
    """What is interrupted goes on where it was."""

    def test_crashAtAnyStepPublishesEachRowOnce(self) -> None:
        self.patch(replay_source, "ROWS", 2)
        self.patch(replay_source, "_GRAIN", 2)
        steps = (("commit", True), ("write", False), ("write", True), ("commit", False))
        for name, before in steps[: repetitions(2, 4)]:
            self.crashes(name, 1, *self.from_, "--rate", "10000", before=before)
        self.assertEqual(self.replay(*self.from_)[-1], "20 messages were published")
        self.assertEqual(self.published(), self.everything)

    @nightly
    def test_killOfTheBrokerLosesAndRepeatsNothing(self) -> None:
        self.patch(replay_source, "ROWS", 6)
        self.patch(replay_source, "_GRAIN", 2)
        self.crashes("commit", 1, *self.from_, "--rate", "10000", before=False)
        port = self.broker.port()
        self.broker.stop(signal.SIGKILL)
        self.broker = startBroker(self, self.folder / "into", port=port)
        self.replay(*self.from_)
        self.assertEqual(self.published(), self.everything)

    def test_stoppedReplayGoesOnLaterWithoutRecordsThatCameAfterItsStart(self) -> None:
        run = FakeRun()
        run.progress = lambda *told: run.stopping.set()  # type: ignore[method-assign]
        said = self.replay(*self.from_, "--rate", "50", run=run)
        self.assertEqual(said[-1], "stopped after 5 messages; the same command continues")
        self.written.kept("a", msgpack.packb("late"))
        self.assertEqual(self.replay(*self.from_)[-1], "20 messages were published")
        self.assertEqual(self.published(), self.everything)

    def test_replayWithoutAJournalIsAtLeastOnceAndSaysSo(self) -> None:
        broker = startBroker(self)
        self.url = f"tcp://127.0.0.1:{broker.port()}"
        with connect(self.url) as client, client.subscribe("#") as deliveries:
            said = self.replay(*self.from_)
            found = [deliveries.next(SECONDS) for _ in range(20)]
        self.assertIn("has no journal: messages may be published twice", said[0])
        self.assertEqual([(each.topic, each.value) for each in found if each], self.everything)


class LakeTests(JournalCase):
    """Out of a table of a lake."""

    def setUp(self) -> None:
        super().setUp()
        rows = self.spark.read.format("fleximq").option("columns", ",".join(ALL_COLUMNS))
        table = rows.load(self.written.folder).toArrow()
        wrong = pa.array(["no map" if topic == "b" else None for topic in table["topic"].to_pylist()], pa.string())
        names = [f"{name}~dlq" if name == "b" else name for name in table["topic"].to_pylist()]
        table = table.append_column("reason", wrong).set_column(1, "topic", pa.array(names))
        self.lake = self.folder / "lake"
        for name in ("a", "b~dlq"):
            folder = self.lake / f"topic={name}" / "date=2023-11-14"
            folder.mkdir(parents=True)
            pq.write_table(table.filter(pa.compute.equal(table["topic"], name)), folder / "1.parquet")
        (self.lake / "_fleximq").mkdir()
        (self.lake / "_fleximq" / "staged.parquet").write_bytes(b"nothing to be read")

    def test_lakeIsReplayedWithDeadLettersInTheirTopics(self) -> None:
        self.replay("--lake", str(self.lake))
        self.assertEqual(self.published(), self.everything)

    def test_topicsOffsetsTimesAndConditionsSelectRowsOfALake(self) -> None:
        words = ("--lake", str(self.lake), "--topics", "b", "--from", "3", "--to", "2023-11-14T22:13:25Z")
        self.replay(*words, "--where", "value != X'0c'")
        self.assertEqual(self.published(), [("b", 11), ("b", 13), ("b", 14)])

    def test_folderThatIsNoTableIsRefused(self) -> None:
        (self.folder / "empty").mkdir()
        for folder in ("none", "empty"):
            self.assertRaisesRegex(OptionRefused, "is no table", self.replay, "--lake", str(self.folder / folder))


class DialectsTests(ReplayCase):
    """What subscribers of each dialect get of what all dialects have published."""

    def voices(self, broker: BrokerProcess, publish: Any) -> dict[str, list[Any]]:
        """Return what each gets while something is published, apart from publishers and offsets."""
        with ExitStack() as stack:
            flexi = stack.enter_context(FlexiClient(Stream(broker.address)).join())
            blip = stack.enter_context(BlipClient(broker.address)).login()
            mini = stack.enter_context(MiniClient(broker.address))
            identity = stack.enter_context(IdentityClient(broker.address)).subscribe("t")
            with connect(f"tcp://127.0.0.1:{broker.port()}") as client, client.subscribe("t") as deliveries:
                subscription = blip.subscribe("t")
                mini.consume("t")
                publish()
                got: dict[str, list[Any]] = {"fleximq": [], "blipmq": [], "minimq": [], "identity": []}
                for _ in range(self.NUMBER):
                    delivery = deliveries.next(SECONDS)
                    assert delivery is not None
                    got["fleximq"].append((delivery.payload, delivery.header.get("message_id")))
                    polled = blip.poll(subscription)
                    got["blipmq"].append((polled.message, polled.qos))
                    blip.ack(polled.tag, subscription)
                    line = mini.consume("t")
                    got["minimq"].append(line.partition(":::")[2])
                    mini.ack(line.partition(":::")[0])
                    got["identity"].append(identity.hear().split(":", 3)[3])
            flexi.close()
        return got

    NUMBER = 9

    def publish(self, broker: BrokerProcess) -> None:
        """Publish from each dialect what the others could mistake."""
        with FlexiClient(Stream(broker.address)).join() as flexi:
            for payload in (b"\xca\x3f\x80\x00\x00", b"\xa1x", b"\xc4\x01x", b"\xff\xff", b"\x81\xa1a\x01"):
                flexi.publish("t", payload)
            flexi.barrier()
        with BlipClient(broker.address).login() as blip:
            for payload in (b"\x01", b"\xff\x00"):
                blip.publish("t", payload)
            blip.barrier()
        with MiniClient(broker.address) as mini:
            mini.produce("t", "m1", "a text", "c", "r")
        with IdentityClient(broker.address).subscribe("t") as identity:
            identity.say("PUBLISH:t:hello||k=v").barrier()

    def test_eachDialectReceivesTheReplayAsTheFirstTime(self) -> None:
        first = startBroker(self, self.folder / "first")
        before = self.voices(first, lambda: self.publish(first))
        words = ("--journal", str(self.folder / "first"), "--subscribe", "t")
        after = self.voices(self.broker, lambda: self.replay(*words))
        self.assertEqual(after, before)


class ClockTests(SynchronousTestCase):
    """From when on rows are due."""

    def test_firstReadingIsNoPartOfTheRhythm(self) -> None:
        """What reading the first rows takes is no part of the rhythm: the pauses are those between the rows."""
        clock, run = [100.0], FakeRun()
        found: list[float] = []
        rows = pa.table({"offset": [1, 2, 3], "timestamp": [0, 1_000_000, 3_000_000]})

        def read() -> pa.Table:
            clock[0] += 5.0
            return rows

        piece = ReplaySlice("j", 1, 4, 3, 0)
        origin: Any = SimpleNamespace(
            pieces=lambda after, ends: [piece], rows=lambda piece: SimpleNamespace(toArrow=read, schema=None)
        )
        progress: Any = SimpleNamespace(begun=False, journal="", stop=0, ends=None, total=0, rows=0, batch=0)
        state: Any = SimpleNamespace(write=lambda progress: None)
        self.patch(jobs_replay, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        self.patch(jobs_replay.Replay, "_publish", lambda self, table, schema: None)
        replay = jobs_replay.Replay(origin, {"url": "tcp://localhost:1"}, state, progress, run)
        with mock.patch.object(run.stopping, "wait", lambda seconds: found.append(round(seconds, 3))):
            replay.all(ReplaySchedule(speed=1.0))
        self.assertEqual(found, [0.0, 1.0, 3.0])


class PiecesTests(SynchronousTestCase):
    """How rows are put together."""

    def pieces(self, *grains: ReplaySlice) -> Iterator[tuple[int, int]]:
        """Return where the pieces begin and end."""
        return ((each.start, each.stop) for each in mergeSlices(grains))

    def test_neighboursOfOneJournalAreJoinedWhileTheyFit(self) -> None:
        half = replay_source.ROWS // 2
        grains = [ReplaySlice("j", 10 * each, 10 * each + 10, half, 1) for each in range(3)]
        self.assertEqual(list(self.pieces(*grains)), [(0, 20), (20, 30)])
        self.assertEqual(list(self.pieces(grains[0], grains[1]._replace(journal="k"))), [(0, 10), (10, 20)])
        self.assertEqual(list(self.pieces()), [])

    def test_largeGrainsAreDivided(self) -> None:
        large = ReplaySlice("j", 0, 10, 10, 3 * replay_source.BYTES)
        self.assertEqual(list(self.pieces(large)), [(0, 4), (4, 8), (8, 10)])
        self.assertEqual(list(self.pieces(large._replace(stop=1))), [(0, 1)])


class OptionsTests(SynchronousTestCase):
    """What is refused before anything begins."""

    def refuses(self, words: str, *given: str) -> None:
        """Check the sentence."""
        self.assertRaisesRegex((PipelineError, SettingError, JournalError), words, runJob, REPLAY, *given)

    def test_missingAndExcludingOptionsAreRefused(self) -> None:
        into = ("--into", "tcp://127.0.0.1:1")
        self.refuses("--into URL is needed", "--journal", "j")
        self.refuses("--journal FOLDER or --url URL is needed", *into)
        self.refuses("--lake excludes --journal, --url and --sealed", *into, "--journal", "j", "--lake", "l")
        self.refuses("--rate and --speed exclude", *into, "--journal", "j", "--rate", "1", "--speed", "1")
        self.refuses(r"--to-topic has \{topik\}", *into, "--journal", "j", "--to-topic", "again/{topik}")
        self.refuses("--from is not before --to", *into, "--journal", "j", "--from", "9", "--to", "9")
        self.refuses("is no journal", *into, "--journal", self.mktemp(), "--state", self.mktemp())
        self.refuses("--name must have", *into, "--journal", "j", "--name", "a/b")

    def test_wrongConditionIsOneSentence(self) -> None:
        rows = sharedSession().sql("SELECT 1 AS offset")
        error = self.assertRaises(OptionRefused, replay_source.ReplayFilter("nothing = 1").of, rows)
        self.assertRegex(str(error), r"^--where cannot be used: [^\n]+$")
