"""Consumer groups: what is told to brokers, and what they tell."""

import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.pipeline.broker_link import BrokerAddress, BrokerLink
from fleximq.pipeline.errors import NotJournalled, OptionRefused
from fleximq.pipeline.lag import Reporter, forget, groups
from fleximq.pipeline.lag.reporter import REPEAT_AFTER, TRANSITIONS, SendEvent, SendState, StreamProgress, groupName
from fleximq.values.transitions import UnexpectedEvent
from tests.broker_process import BrokerProcess
from tests.pipeline.started_broker import startBroker

OTHER = "0" * 32


class BrokerTests(SynchronousTestCase):
    """A broker with a journal of three records."""

    def setUp(self) -> None:
        self.began = time.time() * 1000
        self.broker = startBroker(self, "journal")
        self.place = BrokerAddress.of({"url": f"tcp://127.0.0.1:{self.broker.port()}"})
        with connect(self.place.url) as client:
            client.publish_many("d.t", ["a", "b", "c"])
            client.flush()
            self.journal = client.ask("/journal/bounds")["journal"]

    def reporter(self, group: str = "g", *places: BrokerAddress) -> Reporter:
        """Return what tells, which is closed at the end."""
        reporter = Reporter(group, places or [self.place])
        self.addCleanup(reporter.close, 0)
        return reporter

    def test_groupIsShownWithItsLag(self) -> None:
        reporter = self.reporter()
        reporter.report({self.journal: 2, OTHER: 7}, {self.journal: 5})
        self.assertTrue(reporter.flush(300))
        [group] = groups(self.place)
        self.assertEqual(group[:5], ("g", self.journal, 2, 4, 2))
        self.assertEqual((group.bytes, group.lost), (4, 5))
        now = time.time() * 1000
        self.assertTrue(0 < (group.seconds or 0) <= (now - self.began) / 1000)
        self.assertTrue(self.began - 1 <= group.told <= now)
        reporter.report({self.journal: 4}, dead={self.journal: 3})
        reporter.flush(300)
        [group] = groups(self.place)
        self.assertEqual((group.next, group.records, group.seconds, group.lost), (4, 0, 0.0, 5))

    def test_groupIsForgottenOnce(self) -> None:
        self.reporter().report({self.journal: 2})
        self.reporter("h").report({self.journal: 2})
        deadline = time.monotonic() + 300
        while len(groups(self.place)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertTrue(forget(self.place, "g"))
        self.assertFalse(forget(self.place, "g"))
        self.assertEqual([group.name for group in groups(self.place)], ["h"])

    def test_groupsOutliveAKilledBroker(self) -> None:
        reporter = self.reporter()
        reporter.report({self.journal: 3})
        reporter.flush(300)
        with connect(self.place.url) as client:
            client.publish("d.t", "behind the note")
            client.flush()
        folder = Path(tempfile.mkdtemp(prefix="fleximq-groups-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        os.kill(self.broker.pid, signal.SIGKILL)
        self.broker.wait()
        shutil.copytree(self.broker.folder / "journal", folder / "journal")
        with BrokerProcess("--journal", str(folder / "journal"), "--durable", "#") as again:
            [group] = groups(BrokerAddress.of({"url": f"tcp://127.0.0.1:{again.port()}"}))
        self.assertEqual((group.name, group.next), ("g", 3))

    def test_groupThatReadsNoJournalOfTheBrokerIsOneWarning(self) -> None:
        reporter = self.reporter()
        with self.assertLogs("fleximq.pipeline", logging.WARNING) as logged:
            for nextOffset in (7, 8):
                reporter.report({OTHER: nextOffset})
                self.assertTrue(reporter.flush(300))
        self.assertEqual(len(logged.output), 1)
        self.assertIn(f"consumer group g does not read journal {self.journal}", logged.output[0])
        self.assertEqual(groups(self.place), [])

    def test_absentBrokerIsAWarningAndTheOthersAreTold(self) -> None:
        away = BrokerAddress.of({"url": "tcp://127.0.0.1:1"})
        reporter = self.reporter("g", away, self.place)
        with self.assertLogs("fleximq.pipeline", logging.WARNING) as logged:
            reporter.report({self.journal: 2})
            self.assertFalse(reporter.flush(300))
        self.assertIn(
            "consumer group g could not be reported: the broker at tcp://127.0.0.1:1 is away", logged.output[0]
        )
        reporter.flush(300)
        self.assertEqual([group.next for group in groups(self.place)], [2])
        reporter.report({self.journal: 3})

    def test_closingSendsTheLatestOffsetsAtOnce(self) -> None:
        place = BrokerAddress.of({"url": "tcp://127.0.0.1:1"})
        reporter = self.reporter("g", place)
        with self.assertLogs("fleximq.pipeline", logging.WARNING):
            reporter.report({self.journal: 2})
            reporter.flush(300)
        asked: list[int] = []

        def ask(link: Any, path: str, arguments: Any) -> Any:
            asked.append(arguments["groups"][0]["next"])
            return {"taken": 1}

        self.patch(BrokerLink, "ask", ask)
        reporter.report({self.journal: 3})
        reporter.close(300)
        self.assertEqual(asked, [3])


class TransitionTests(SynchronousTestCase):
    """The states of the reports to one broker."""

    def test_eachEventLeadsFromEachStateToOneState(self) -> None:
        """Each event leads from each state to one state, except the end of an attempt that never began."""
        expected = {
            "idle": ("sending", None, None, "idle", "closed"),
            "sending": ("sending", "idle", "retrying", "sending", "closed"),
            "retrying": ("retrying", "idle", "retrying", "sending", "closed"),
            "closed": ("closed",) * 5,
        }
        for state in SendState:
            for event, nextOffset in zip(SendEvent, expected[state.value], strict=True):
                if nextOffset is None:
                    self.assertRaises(UnexpectedEvent, TRANSITIONS.__getitem__, (state, event))
                else:
                    self.assertEqual(TRANSITIONS[state, event].value, nextOffset, (state, event))


class NoJournalTests(SynchronousTestCase):
    """A broker without a journal."""

    def test_brokerWithoutAJournalHasNoGroups(self) -> None:
        with BrokerProcess() as broker:
            place = BrokerAddress.of({"url": f"tcp://127.0.0.1:{broker.port()}"})
            self.assertRaises(NotJournalled, groups, place)
            self.assertRaises(NotJournalled, forget, place, "g")


class NameTests(SynchronousTestCase):
    """Names of groups."""

    def test_nameHas1To256Bytes(self) -> None:
        self.assertEqual(groupName("é" * 128), "é" * 128)
        for name in ("", "é" * 128 + "x"):
            error = self.assertRaises(OptionRefused, groupName, name)
            self.assertEqual(str(error), "the name of a consumer group must have 1 to 256 bytes")


class FakeReporter:
    """Keeps what it is told; ``heard`` is what waiting for it gives."""

    heard = True

    def __init__(self, group: str, places: Sequence[BrokerAddress]) -> None:
        self.group = group
        self.told: list[tuple[dict[str, int], dict[str, int]]] = []
        self.waited = 0
        self.closed = False

    def report(self, offsets: Mapping[str, int], lost: Mapping[str, int]) -> None:
        """Keep it."""
        self.told.append((dict(offsets), dict(lost)))

    def flush(self, seconds: float) -> bool:
        """Count it."""
        self.waited += 1
        return self.heard

    def close(self, seconds: float) -> None:
        """Remember it."""
        self.closed = True


class GroupProgressTests(SynchronousTestCase):
    """What a stream says of its group, and when."""

    def setUp(self) -> None:
        self.now = 100.0
        self.progress = StreamProgress("g", [], FakeReporter, lambda: self.now)  # type: ignore[arg-type]
        self.reporter: Any = self.progress._reporter

    def test_changesAreToldAtOnceAndRepeatsAfterAWhile(self) -> None:
        for nextOffset in (1, 1, 2, 2):
            self.progress.report({"a": nextOffset})
        self.assertEqual([offsets for offsets, _ in self.reporter.told], [{"a": 1}, {"a": 2}])
        self.now += REPEAT_AFTER
        self.progress.report({"a": 2})
        self.progress.report({"a": 2})
        self.assertEqual(len(self.reporter.told), 3)

    def test_withoutAJournalNothingIsTold(self) -> None:
        self.progress.report({})
        self.assertEqual(self.reporter.told, [])

    def test_unansweredReportIsNotWaitedForAgainSoon(self) -> None:
        self.progress.report({"a": 1})
        self.reporter.heard = False
        self.progress.report({"a": 2})
        self.progress.report({"a": 3})
        self.assertEqual((self.reporter.waited, len(self.reporter.told)), (2, 3))
        self.now += 31
        self.progress.report({"a": 4})
        self.assertEqual(self.reporter.waited, 3)

    def test_lossesAreCountedByJournal(self) -> None:
        self.progress.countLost("a", 5, 8)
        self.progress.countLost("a", 10, 11)
        self.progress.countLost("b", 4, 4)
        self.progress.report({"a": 11, "b": 4})
        self.assertEqual(self.reporter.told, [({"a": 11, "b": 4}, {"a": 4})])

    def test_losesBehindALeapOfTheNumberingOnly(self) -> None:
        self.progress.countLost("a", 5, 1_000_000_007)
        self.progress.countLost("b", 5, 1_000_000_000)
        self.progress.report({"a": 1})
        self.assertEqual(self.reporter.told[0][1], {"a": 7, "b": 1})

    def test_closeClosesTheReporter(self) -> None:
        self.progress.close()
        self.assertTrue(self.reporter.closed)
