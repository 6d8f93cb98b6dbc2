"""What was committed is there again after a restart, whatever happened in between."""

import errno
import os
import shutil
from array import array
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.config.journal_options import Fsync, RetentionRule
from fleximq.errors import JournalError, NotKept
from fleximq.interfaces import IJournal
from fleximq.journal import opened_journal as journalModule
from fleximq.journal.broker_journal import BrokerJournal
from fleximq.journal.files.file_system import readFile
from fleximq.journal.files.folder_files import readEnd
from fleximq.journal.memory_journal import MemoryJournal
from fleximq.journal.recovery.recovery import offsetAfterGap
from fleximq.journal.retention.cleaner_thread import RETRY_INTERVAL
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.journal.writing.writer_thread import WriterThread
from fleximq.values.records import PublishedRun, Run
from fleximq.values.state_records import ClientIdsReserved, QueueAcknowledged
from tests.journal.journal_case import JournalCase, replayed
from tests.journal.steps import Steps, published

BILLION = 1_000_000_000


class RestartTests(JournalCase):
    """Closing, crashing, and opening again."""

    def test_interface(self) -> None:
        """It is an IJournal, on disk."""
        self.assertTrue(verifyObject(IJournal, self.journal))
        self.assertTrue(self.journal.onDisk)

    def test_clean(self) -> None:
        """After a clean stop nothing is replayed, the snapshot has it all, and numbering goes on."""
        self.kept(b"abc")
        self.queueStates.state = {"queues": ["q:a"]}
        self.journal.close()
        found = self.begin()
        self.assertEqual((found.clean, found.snapshot, replayed(found)), (True, {"queues": ["q:a"]}, ([], [])))
        self.kept(b"d")
        self.assertEqual(self.told, [(b"abc", 1, None), (b"d", 4, None)])
        self.assertEqual([offset for offset, _, _ in self.records()], [1, 2, 3, 4])

    def test_crash(self) -> None:
        """After a crash all is replayed from the last checkpoint on, and numbering skips ahead."""
        self.kept(b"ab")
        note = QueueAcknowledged("q:a", array("Q", [1]))
        self.journal.appendState(note)
        self.kept(b"c")
        self.crash()
        found = self.begin()
        self.assertEqual((found.clean, found.snapshot), (False, {"queues": []}))
        self.assertEqual(replayed(found), ([(1, b"a"), (2, b"b"), (3, b"c")], [note]))
        self.kept(b"d")
        self.assertEqual(self.told[-1], (b"d", BILLION, None))
        self.assertEqual([offset for offset, _, _ in self.records()], [1, 2, 3, BILLION])

    def test_crashTwice(self) -> None:
        """No offset comes twice, even if nothing was kept between two crashes."""
        self.kept(b"a")
        self.crash()
        self.begin()
        self.crash()
        self.begin()
        self.kept(b"b")
        self.assertEqual(self.told[-1], (b"b", 2 * BILLION, None))

    def test_nobodyIsToldWhatIsLost(self) -> None:
        """What was appended and not written when the process died was never told, and is not there."""
        self.append(b"a")
        self.crash()
        self.begin()
        self.assertEqual((self.told, self.records()), ([], []))

    def test_closeWritesWhatWaits(self) -> None:
        """A stop writes all that waits, and what comes of telling about it."""

        def appendMore(offset: int, reason: str | None) -> None:
            self.append(b"more")

        self.journal.append(*published(b"x"), appendMore)
        self.append(b"y")
        self.journal.appendState(QueueAcknowledged("q:a", array("Q", [1])))
        self.journal.close()
        self.assertEqual([(body, offset) for body, offset, _ in self.told], [(b"y", 2), (b"more", 3)])
        self.assertTrue(self.steps.stopped)
        self.assertTrue(self.begin().clean)
        self.assertEqual(len(self.records()), 6)

    def test_beforeOpen(self) -> None:
        """A journal that is not open yet, as that of a node that follows another, has no topics for metrics."""
        self.assertEqual(BrokerJournal().bounds(), {})

    def test_thePresentJournalIsToldAtOnceAndAfterEachChange(self) -> None:
        """So that runs need not pass through this one."""
        told: list[object] = []
        closed, opened = MemoryJournal(), MemoryJournal()
        journal = BrokerJournal(closed)
        journal.tellCurrent(told.append)
        journal.become(opened)
        self.assertEqual(told, [closed, opened])

    def test_afterClose(self) -> None:
        """Then nothing is kept any more, a second close does nothing, and another broker may come."""
        self.journal.close()
        self.journal.close()
        error = self.assertRaises(NotKept, self.append, b"a")
        self.assertEqual(error.reason, "the broker stops")
        self.journal.appendState(ClientIdsReserved(5))
        told: list[object] = []
        self.journal.reopen(told.append)
        self.assertEqual(told, ["the broker stops"])
        self.begin()

    def test_closeOnSlowDisk(self) -> None:
        """A disk that never answers does not hold up the end; the next start looks for itself."""
        self.append(b"a")
        self.patch(self.steps, "drain", lambda seconds: False)
        self.patch(self.steps, "stop", lambda seconds: False)
        self.assertEqual(self.journal.close(), "the disk was too slow")
        self.assertRaises(JournalError, self.open)
        writing: Any = self.journal.writing
        writing._lock.release()
        self.assertFalse(self.begin().clean)

    def test_clientIds(self) -> None:
        """The first client id that was never given out is known again, however often it was restarted since."""
        safe: list[int] = []
        self.journal.appendState(ClientIdsReserved(2000))
        self.journal.whenCommitted(lambda: safe.append(2000))
        self.assertEqual(safe, [])
        self.steps.all()
        self.assertEqual(safe, [2000])
        self.crash()
        self.assertEqual(self.begin().nextClientId, 2000)
        self.journal.close()
        self.assertEqual(self.begin().nextClientId, 2000)

    def test_clientIdsBeforeTheBeginning(self) -> None:
        """What is noted of client ids while the broker is restored is on disk once it begins."""
        self.journal.close()
        self.journal = self.open()
        self.journal.appendState(ClientIdsReserved(3000))
        self.journal.begin()
        self.crash()
        self.assertEqual(self.begin().nextClientId, 3000)

    def test_durableEnd(self) -> None:
        """Other processes see how far it goes."""
        self.kept(b"abc")
        self.append(b"d")
        end = readEnd(readFile(self.files, f"{self.folder}/end"))
        self.assertEqual(end, (self.journal.segments.end, 4, self.now))

    def test_bounds(self) -> None:
        """Bounds are those of what is committed."""
        self.kept(b"ab", "x")
        self.now += 5
        self.kept(b"c", "x")
        self.append(b"d", "y")
        bounds = self.journal.bounds()
        self.assertEqual(list(bounds), ["x"])
        self.assertEqual(bounds["x"][:5], (1, 3, self.now - 5, self.now, 3))

    def test_health(self) -> None:
        """All is well."""
        health = self.journal.health()
        self.assertEqual((health["state"], health["reason"], health["lost"], health["torn"]), ("ok", "", [], []))
        self.assertEqual(health["segments"], 1)
        self.assertEqual(health["bytes"], os.path.getsize(f"{self.folder}/{0:020d}.fxj"))

    def test_tornTail(self) -> None:
        """A torn tail is counted."""
        self.kept(b"a")
        self.crash()
        with open(f"{self.folder}/{0:020d}.fxj", "ab") as file:
            file.write(b"FXJ1 half a frame")
        self.assertEqual(len(self.begin().torn), 1)
        self.assertIn(("journal: torn tail", 1), self.events)


class OpeningTests(JournalCase):
    """What can be wrong with a folder."""

    def test_locked(self) -> None:
        """A second broker is told so, and the first one is not disturbed."""
        error = self.assertRaises(JournalError, self.open)
        self.assertEqual(str(error), f"the journal in {self.folder} is in use by another broker")
        self.assertRaises(JournalError, self.open)

    def test_fullDisk(self) -> None:
        """If nothing can be written from the start, there is one sentence, and the lock is given back."""
        self.journal.close()
        journal = self.open()
        self.files.fail("write", code=errno.ENOSPC)
        error = self.assertRaises(JournalError, journal.begin)
        self.assertEqual(str(error), f"the journal in {self.folder} cannot be written: no space left on device")
        self.assertEqual(self.log, [])
        journal.close()
        self.files.heal()
        self.begin()

    def test_indexOnFullDisk(self) -> None:
        """That an index could not be written is said only where the journal goes on; else it looks like the cause."""
        for heals in (False, True):
            self.kept(b"a")
            self.crash()
            self.files.fail("write", code=errno.ENOSPC)
            journal = self.open()
            if heals:
                self.files.heal()
                journal.begin()
                self.assertEqual(len(self.log), 1)
                self.assertRegex(self.log[0], "^the index of .* could not be written: no space left on device$")
            else:
                self.assertRaises(JournalError, journal.begin)
                self.assertEqual(self.log, [])
            self.files.heal()
            journal.close()
            self.begin()

    def test_damagedIdentity(self) -> None:
        """Whatever is wrong, the lock is given back."""
        self.journal.close()
        path = f"{self.folder}/identity"
        line = readFile(self.files, path)
        self.write(path, line[:-1])
        self.assertRaises(JournalError, self.open)
        self.write(path, line)
        self.begin()

    def write(self, path: str, content: bytes) -> None:
        """Put these bytes in the place of a file's."""
        with open(path, "wb") as file:
            file.write(content)


class RollTests(JournalCase):
    """Segments of bounded size."""

    def setUp(self) -> None:
        super().setUp()
        self.journal.close()
        self.begin(segmentBytes=4096)

    def test_rolls(self) -> None:
        """When a segment has its size the next commit begins another, with a snapshot; the index is written."""
        self.kept(b"x" * 200)
        self.assertEqual(self.journal.health()["segments"], 2)
        self.queueStates.state = {"queues": [1]}
        self.kept(b"y")
        self.assertEqual(self.journal.health()["segments"], 3)
        self.pump(self.calls.empty)
        self.crash()
        found = self.begin()
        self.assertEqual((found.snapshot, replayed(found)[0]), ({"queues": [1]}, [(201, b"y")]))
        self.assertEqual(len(self.records()), 201)
        self.assertIn(f"{0:020d}.idx", self.files.names(self.folder))

    def test_rollsByFrames(self) -> None:
        """So it is when a segment has very many frames, for a start has to look at each."""
        self.patch(journalModule, "SEGMENT_FRAMES", 10)
        before = self.journal.health()["segments"]
        seen = []
        for _ in range(25):
            self.kept(b"x")
            seen.append(self.journal.health()["segments"] - before)
        self.assertEqual((seen[0], seen[-1]), (0, 3))

    def test_waitingOffsets(self) -> None:
        """The checkpoint's offset is that of the first record behind it, though others wait already."""
        self.append(b"x" * 200)
        self.append(b"y")
        self.append(b"z")
        self.steps.all()
        self.crash()
        self.assertEqual(replayed(self.begin())[0], [(201, b"y"), (202, b"z")])

    def test_keeperNotes(self) -> None:
        """What the keeper notes and appends while it is asked for a snapshot stands behind it, once."""
        note = QueueAcknowledged("q:a", array("Q", [1]))

        def snapshot() -> str:
            self.journal.appendState(note)
            self.append(b"dead")
            return "state"

        self.kept(b"x" * 200)
        self.patch(self.queueStates, "snapshot", snapshot)
        self.kept(b"y")
        self.assertEqual(self.journal.health()["segments"], 3)
        self.assertEqual([(body, offset) for body, offset, _ in self.told[1:]], [(b"y", 201), (b"dead", 202)])
        self.crash()
        self.patch(self.queueStates, "snapshot", lambda: None)
        found = self.begin()
        self.assertEqual(found.snapshot, "state")
        self.assertEqual((len(replayed(found)[0]), replayed(found)[1]), (5, [note]))

    def test_keeperFails(self) -> None:
        """If there is no snapshot, the present segment goes on, and records are kept."""
        self.queueStates.error = ValueError("no snapshot")
        self.kept(b"x" * 200)
        self.kept(b"y")
        self.assertEqual(self.told[-1], (b"y", 201, None))
        self.assertEqual(self.journal.health()["segments"], 2)
        self.assertIn("no snapshot", self.log[-1])
        self.queueStates.error = None
        self.kept(b"z" * 200)
        self.kept(b"z")
        self.assertEqual(self.journal.health()["segments"], 3)


class FullTests(JournalCase):
    """The most that a journal may have."""

    def test_maxBytes(self) -> None:
        """Below it records are kept; at it they are refused, and notes are still written."""
        self.journal.close()
        self.begin(maxBytes=4096)
        while self.journal.health()["bytes"] < 4096:
            self.kept(b"x" * 8)
        error = self.assertRaises(NotKept, self.append, b"ab")
        self.assertEqual((error.refused, error.reason), (range(2), "the journal is full: it may have 4096 bytes"))
        tokens: list[Any] = []
        self.journal.stage("q", 1, "p", [], lambda token, reason: tokens.append((token, reason)))
        self.assertEqual(tokens, [(None, error.reason)])
        safe: list[int] = []
        self.journal.appendState(QueueAcknowledged("q:a", array("Q", [1])))
        self.journal.whenCommitted(lambda: safe.append(1))
        self.steps.all()
        self.assertEqual((safe, self.journal.health()["state"]), ([1], "ok"))

    def test_maxTopics(self) -> None:
        """Messages of one topic too many are refused, those of known topics and dead letters are not."""
        self.journal.close()
        self.begin(maxTopics=2)
        self.publish("a")
        self.publish("b")
        for _ in range(2):
            error = self.assertRaises(NotKept, self.publish, "c")
            self.assertEqual((error.refused, error.reason), (range(1), "the journal may have at most 2 topics"))
            self.steps.all()
        self.publish("a")
        self.publish("$dead/a")
        self.steps.all()
        self.assertEqual(self.journal.topics(10), ["$dead/a", "a", "b"])
        self.journal.close()
        self.begin(maxTopics=1)
        self.publish("b")
        self.assertRaises(NotKept, self.publish, "c")

    def test_maxTopicsExpired(self) -> None:
        """A topic does not count any more when its last message has expired; twice as many may be on disk."""
        self.journal.close()
        rules = RetentionPolicy(
            durable=lambda topic: True, retained=lambda topic: topic == "r", retentions=(RetentionRule("#", 10, 0),)
        )
        self.begin(maxTopics=3, rules=rules)
        for topic in "abr":
            self.publish(topic)
            self.steps.all()
        self.now += 6_000_000
        self.publish("b")
        self.steps.all()
        self.now += 5_000_000  # that of a has expired, r has a retained one, b another one
        self.publish("c")
        self.steps.all()
        self.assertRaises(NotKept, self.publish, "d")
        self.patch(self.queueStates, "needed", lambda: {"b": 1})
        self.now += 11_000_000
        self.publish("d")
        self.steps.all()
        self.assertRaises(NotKept, self.publish, "e")
        self.patch(self.queueStates, "needed", dict)
        self.publish("e")
        self.steps.all()
        self.now += 11_000_000
        self.assertRaises(NotKept, self.publish, "f")  # this makes room, also on disk
        self.steps.all()
        self.pump(lambda: self.journal.cleaner._thread is None)
        self.assertEqual(self.journal.topics(10), ["r"])
        self.publish("f")

    def test_maxTopicsStaged(self) -> None:
        """Staged messages of a topic too many are refused at once, or when they are committed."""
        self.journal.close()
        self.begin(maxTopics=2)
        tokens: list[Any] = []
        for part, topics in (("p", "xyz"), ("q", "xy")):
            runs = [PublishedRun(topic, 1, "a", "fleximq", Run(b"", [b"x"], 0)) for topic in topics]
            self.journal.stage("q", 1, part, runs, lambda *told: tokens.append(told))
            self.steps.all()
        self.assertEqual(tokens[0], (None, "the journal may have at most 2 topics"))
        self.publish("a")
        self.assertRaises(NotKept, self.journal.commitStaged, "q", 1, [tokens[1][0]], lambda *told: None)

    def test_maxTopicsFailed(self) -> None:
        """Topics whose first commit failed do not count."""
        self.journal.close()
        self.begin(maxTopics=1)
        self.files.fail("sync")
        self.publish("a")
        self.steps.all()
        self.files.heal()
        self.assertRaises(NotKept, self.publish, "b")
        self.journal.reopen(lambda reason: None)
        self.steps.all()
        self.publish("b")
        self.steps.all()
        self.assertEqual(self.journal.topics(10), ["b"])

    def publish(self, topic: str) -> None:
        """Append one message."""
        self.journal.append(topic, 1, "a", "fleximq", Run(b"", [b"x"], 0), lambda offset, reason: None)

    def test_waitingCounts(self) -> None:
        """What waits for the disk counts too."""
        self.journal.close()
        self.begin(maxBytes=4096)
        self.append(b"x" * 200)
        self.assertRaises(NotKept, self.append, b"y")


class FaultTests(JournalCase):
    """Read-only, and reopened."""

    def fault(self, operation: str = "sync") -> None:
        """Let the next commit fail."""
        self.files.fail(operation)
        self.kept(b"lost")
        self.files.heal()

    def reopen(self) -> list[str | None]:
        """Reopen and return what is told."""
        told: list[str | None] = []
        self.journal.reopen(told.append)
        self.steps.all()
        return told

    def test_readOnly(self) -> None:
        """It says so in its health, to the operator and to the counters; what is on disk is served."""
        self.kept(b"a")
        self.fault()
        health = self.journal.health()
        self.assertEqual((health["state"], health["reason"]), ("read-only", "input/output error"))
        self.assertEqual(self.log, ["it is read-only and stores nothing more: input/output error"])
        self.assertIn(("journal: read-only", 1), self.events)
        self.assertEqual(self.records(), [(1, "a", b"a")])

    def test_deleted(self) -> None:
        """A folder that is deleted under it is noticed by the next commit, which nobody is told is safe."""
        self.kept(b"a")
        shutil.rmtree(self.folder)
        self.kept(b"b")
        self.assertEqual(self.told[1][2], "the journal's files were deleted")
        self.assertEqual(self.log, ["it is read-only and stores nothing more: the journal's files were deleted"])
        self.assertRaises(NotKept, self.append, b"c")
        self.assertEqual(self.reopen(), ["no such file or directory"])

    def test_deletedUnnoticed(self) -> None:
        """Without commits it is noticed by a look."""
        self.kept(b"a")
        self.journal.writing.look()
        self.steps.all()
        self.assertEqual(self.journal.health()["state"], "ok")
        shutil.rmtree(self.folder)
        for _ in range(2):
            self.journal.writing.look()
            self.steps.all()
        health = self.journal.health()
        self.assertEqual((health["state"], health["reason"]), ("read-only", "the journal's files were deleted"))
        self.assertEqual(len(self.log), 1)

    def test_beat(self) -> None:
        """A beat is answered behind what the thread was handed before, and by a closed journal not at all."""
        answered: list[str] = []
        self.append(b"a")
        self.journal.writing.beat(lambda: answered.append("beat"))
        self.assertEqual((len(self.steps.work), answered), (2, []))
        self.steps.all()
        self.assertEqual(answered, ["beat"])
        self.journal.close()
        self.journal.writing.beat(lambda: answered.append("late"))
        self.assertEqual((self.steps.work, answered), ([], ["beat"]))

    def test_moved(self) -> None:
        """A folder that is only called otherwise is still there."""
        self.kept(b"a")
        os.rename(self.folder, f"{self.folder}-moved")
        self.journal.writing.look()
        self.kept(b"b")
        self.assertEqual(self.told[1][2], None)
        os.rename(f"{self.folder}-moved", self.folder)

    def test_nothingAfterTheFault(self) -> None:
        """Nothing is acknowledged any more, and nothing that was refused comes back."""
        self.kept(b"a")
        for operation in ("write", "sync"):
            self.fault(operation)
            self.assertRaises(NotKept, self.append, b"b")
            self.assertEqual([reason for _, _, reason in self.told][1:], ["input/output error"])
            self.journal.close()
            self.begin()
            self.assertEqual(self.records(), [(1, "a", b"a")], operation)
            del self.told[1:]

    def test_closedReadOnly(self) -> None:
        """A stop while it is read-only is not a clean one."""
        self.kept(b"a")
        self.fault()
        self.journal.close()
        found = self.begin()
        self.assertEqual((found.clean, found.nextOffset), (False, BILLION))

    def test_reopen(self) -> None:
        """It begins a new segment with a new snapshot, numbering skips ahead, and a restart finds all of it."""
        self.kept(b"ab")
        self.fault()
        self.queueStates.state = {"queues": ["later"]}
        self.assertEqual(self.reopen(), [None])
        self.assertEqual(self.journal.end, BILLION)
        self.kept(b"c")
        self.assertEqual(self.told[-1], (b"c", BILLION, None))
        self.assertEqual(self.journal.health()["state"], "ok")
        self.assertEqual([offset for offset, _, _ in self.records()], [1, 2, BILLION])
        self.crash()
        found = self.begin()
        self.assertEqual((found.snapshot, found.lost, found.torn), ({"queues": ["later"]}, [], []))
        self.assertEqual(replayed(found)[0], [(BILLION, b"c")])

    def test_reopenTwice(self) -> None:
        """One fault after the other, offsets never come twice."""
        for turn in range(1, 4):
            self.fault(("write", "sync", "write")[turn - 1])
            self.assertEqual(self.reopen(), [None])
            self.kept(b"x")
            self.assertEqual(self.told[-1], (b"x", turn * BILLION, None))
        self.assertEqual([offset for offset, _, _ in self.records()], [BILLION, 2 * BILLION, 3 * BILLION])

    def test_stillBroken(self) -> None:
        """While the disk is broken it stays read-only, and can be tried again."""
        self.kept(b"a")
        self.fault()
        for operation in ("create", "write", "sync", "syncFolder"):
            self.files.fail(operation)
            self.assertEqual(self.reopen(), ["input/output error"], operation)
            self.assertEqual(self.journal.health()["state"], "read-only")
            self.assertRaises(NotKept, self.append, b"b")
            self.files.heal()
        self.assertEqual(self.reopen(), [None])
        self.kept(b"c")
        self.assertEqual([payload for _, _, payload in self.records()], [b"a", b"c"])

    def test_damagedMeanwhile(self) -> None:
        """If what was committed is not there any more, it stays read-only and says where."""
        self.kept(b"a")
        self.fault()
        with open(f"{self.folder}/{0:020d}.fxj", "r+b") as file:
            file.seek(70)
            file.write(b"\xff")
        (reason,) = self.reopen()
        self.assertIn("is damaged at position 0", str(reason))
        self.assertEqual(self.journal.health()["state"], "read-only")

    def test_damagedWhileItRuns(self) -> None:
        """Damage that a reader comes upon is told with its offsets."""
        self.kept(b"a")
        self.kept(b"b")
        with open(f"{self.folder}/{0:020d}.fxj", "r+b") as file:
            place = file.read().rindex(b"FXJ1") + 70
            file.seek(place)
            file.write(b"\xff")
        self.assertEqual([payload for _, _, payload in self.records()], [b"a"])
        (sentence,) = self.journal.health()["lost"]
        words = r"^\d+ bytes at position \d+ are damaged \(the check sum is wrong\), and with them the offsets 2 to 2$"
        self.assertRegex(sentence, words)

    def test_reopenWhenWell(self) -> None:
        """There is nothing to do."""
        self.assertEqual(self.reopen(), [None])
        self.assertEqual(self.journal.health()["segments"], 1)

    def test_reopenWhileReopening(self) -> None:
        """A second request does not begin a second attempt."""
        self.fault()
        told: list[str | None] = []
        self.journal.reopen(told.append)
        self.journal.reopen(told.append)
        self.assertEqual(told, ["the journal is just being opened"])
        self.steps.all()
        self.assertEqual(told[1:], [None])

    def test_closedAfterShortage(self) -> None:
        """A stop writes the state that a full disk refused, if it has room by then."""
        self.kept(b"a")
        self.files.fail("write", code=errno.ENOSPC)
        self.kept(b"lost")
        self.files.heal()
        self.queueStates.state = {"queues": ["later"]}
        self.assertIsNone(self.journal.close())
        found = self.begin()
        self.assertEqual((found.clean, found.snapshot), (True, {"queues": ["later"]}))

    def test_closedWhileFull(self) -> None:
        """A stop that cannot write the last state says why, at whichever operation the disk refuses."""
        for operation in ("create", "write", "sync", "syncFolder"):
            self.files.fail("write", code=errno.ENOSPC)
            self.kept(b"lost")
            self.files.heal()
            self.files.fail(operation, code=errno.ENOSPC)
            self.assertEqual(self.journal.close(), "no space left on device", operation)
            self.files.heal()
            self.assertFalse(self.begin().clean)

    def test_checkpointRefused(self) -> None:
        """So does a stop whose last checkpoint is the first write that fails."""
        self.files.fail("sync", code=errno.ENOSPC)
        self.assertEqual(self.journal.close(), "no space left on device")

    def test_retried(self) -> None:
        """A shortage may pass by itself, at whichever operation it occurs; a fault of the disk needs an operator."""
        for code, isRetried in ((errno.ENOSPC, True), (errno.EMFILE, True), (errno.EDQUOT, True), (errno.EIO, False)):
            for operation in ("write", "sync"):
                self.files.fail(operation, code=code)
                self.kept(b"lost")
                self.files.heal()
                self.assertEqual(
                    (self.journal.writing.isRetried, self.journal.health()["retries"]), (isRetried, isRetried)
                )
                for next in ("create", "write", "sync", "syncFolder"):
                    self.files.fail(next, code=code)
                    self.assertEqual(len(self.reopen()), 1)
                    self.files.heal()
                    self.assertEqual(self.journal.writing.isRetried, isRetried)
                self.assertEqual(self.reopen(), [None])
                self.assertFalse(self.journal.writing.isRetried)
                self.kept(b"x")
        self.assertEqual({payload for _, _, payload in self.records()}, {b"x"})
        faults = [sentence for sentence in self.log if sentence.startswith("it is read-only")]
        told = [sentence.endswith("; the broker tries again by itself") for sentence in faults]
        self.assertEqual(told, [True] * 6 + [False] * 2)
        self.assertEqual(len(faults), 8)  # one for each fault, none for each attempt
        self.assertEqual(sum(number for event, number in self.events if event == "journal: reopened"), 8)

    def test_faultTold(self) -> None:
        """The owner is called once for each fault."""
        self.fault()
        self.files.fail("create")
        self.reopen()
        self.assertEqual(self.faults, [1])

    def test_readOnlyUntilReopened(self) -> None:
        """Runs are refused until the new segment is on disk; state records meanwhile follow its checkpoint."""
        self.kept(b"a")
        self.fault()
        told: list[str | None] = []
        self.journal.reopen(told.append)
        self.steps.step()  # the check of the last segment; the new one is not written yet
        self.assertRaises(NotKept, self.append, b"b")
        self.assertEqual(self.journal.health()["state"], "read-only")
        self.journal.appendState(QueueAcknowledged("q:a", array("Q", [1])))
        self.steps.all()
        self.assertEqual(told, [None])
        self.kept(b"c")
        self.crash()
        self.assertEqual(replayed(self.begin())[1], [QueueAcknowledged("q:a", array("Q", [1]))])

    def test_clientIdsMeanwhile(self) -> None:
        """Client ids that were given out while it was read-only are in the new segment."""
        self.fault()
        self.journal.appendState(ClientIdsReserved(4000))
        self.reopen()
        self.crash()
        self.assertEqual(self.begin().nextClientId, 4000)

    def test_keeperFails(self) -> None:
        """Without a snapshot it is not reopened."""
        self.fault()
        self.queueStates.error = ValueError("no snapshot")
        self.assertEqual(self.reopen(), ["no snapshot"])
        self.assertRaises(NotKept, self.append, b"a")
        self.queueStates.error = None
        self.assertEqual(self.reopen(), [None])


class ThreadTests(JournalCase):
    """With the real threads."""

    def test_many(self) -> None:
        """Many runs come back in order, and are all there after a restart."""
        for fsync in (Fsync("always"), Fsync("interval", 1), Fsync("never")):
            self.journal.close()
            del self.told[:]
            self.begin(makeWorker=WriterThread, fsync=fsync, segmentBytes=8192)
            for number in range(300):
                self.append(bytes([number % 256]) * 3, "t")
            self.pump(lambda: len(self.told) == 300)
            offsets = [offset for _, offset, _ in self.told]
            self.assertEqual(offsets, list(range(offsets[0], offsets[0] + 900, 3)))
            self.assertEqual({reason for _, _, reason in self.told}, {None})
            self.assertEqual(self.journal.bounds()["t"].last, offsets[-1] + 2)

    def test_notesAlone(self) -> None:
        """Notes by themselves are written after a moment."""
        self.journal.close()
        self.begin(makeWorker=WriterThread)
        end = self.journal.segments.end
        self.journal.appendState(QueueAcknowledged("q:a", array("Q", [1])))
        self.pump(lambda: self.journal.segments.end > end)

    def test_close(self) -> None:
        """A stop needs no reactor."""
        self.journal.close()
        self.begin(makeWorker=WriterThread)
        for _ in range(50):
            self.append(b"x")
        self.journal.close()
        self.assertEqual(len(self.told), 50)
        self.assertTrue(self.begin().clean)

    def test_fetch(self) -> None:
        """Single messages are read back by their offsets."""
        self.kept(b"abcdef")
        found: list[Any] = []
        self.journal.fetch([2, 5], 1 << 20, found.extend)
        self.pump(lambda: len(found) == 2)
        self.assertEqual([(message.offset, message.payload) for message in found], [(2, b"b"), (5, b"e")])

    def test_offsetAt(self) -> None:
        """A time leads to the first offset that is not older."""
        self.kept(b"ab")
        self.now += 10
        self.kept(b"c")
        found: list[int] = []
        for time in (0, self.now - 9, self.now + 1):
            self.journal.offsetAt(time, found.append)
        self.pump(lambda: len(found) == 3)
        self.assertEqual(found, [1, 3, 4])

    def test_readBytes(self) -> None:
        """Bytes come in whole frames up to the durable end."""
        self.kept(b"ab")
        found: list[Any] = []
        self.journal.readBytes(0, 1 << 20, lambda *answer: found.append(answer))
        self.pump(lambda: bool(found))
        position, content, end = found[0]
        self.assertEqual((position, len(content)), (0, end))


class GapTests(SynchronousTestCase):
    """Where numbering goes on."""

    def test_next(self) -> None:
        """At the next multiple, also from one."""
        offsets = [1, BILLION - 1, BILLION, BILLION + 1]
        self.assertEqual([offsetAfterGap(offset) // BILLION for offset in offsets], [1, 1, 2, 2])


class StepsTests(SynchronousTestCase):
    """The worker of these tests can do what the real one does."""

    def test_sameMethods(self) -> None:
        """Each public method of the thread is there."""
        names = {name for name in dir(WriterThread) if not name.startswith("_")}
        self.assertLessEqual(names, set(dir(Steps)))


class CleaningTests(JournalCase):
    """What the rules let go makes room."""

    RULES = RetentionPolicy(durable=lambda topic: True, retentions=(RetentionRule("a", 3600, 0),))

    def setUp(self) -> None:
        super().setUp()
        self.journal.close()

    def freed(self) -> list[FreedSpace]:
        """Let a pass end, and return what it took out."""
        found: list[FreedSpace] = []
        self.idle()
        self.assertTrue(self.journal.clean(found.append))
        self.pump(lambda: bool(found))
        return found

    def idle(self) -> None:
        """Let a pass end that began by itself."""
        self.pump(lambda: self.journal.cleaner._thread is None)

    def age(self) -> None:
        """Let what was kept grow old."""
        self.now += 3601 * 1_000_000

    def test_withoutRules(self) -> None:
        """Nothing is taken out."""
        self.begin()
        self.assertFalse(self.journal.clean())

    def test_oldSegment(self) -> None:
        """A segment of which all is too old is removed, and its bytes do not count any more."""
        self.begin(segmentBytes=4096, rules=self.RULES)
        self.kept(b"x" * 200)
        before = self.journal.health()["bytes"]
        self.age()
        self.kept(b"y")  # the new segment begins a pass, too
        self.freed()
        self.assertLess(self.journal.health()["bytes"], before - 4096)
        self.assertEqual([payload for _, _, payload in self.records()], [b"y"])
        self.assertEqual(self.journal.bounds()["a"].first, 201)

    def test_quiet(self) -> None:
        """On a broker without further messages the segment ends by age, so that all of it is removed."""
        self.begin(rules=self.RULES)
        self.kept(b"x" * 200)
        self.now += 359 * 1_000_000
        self.freed()
        self.steps.all()
        self.assertEqual(self.journal.health()["segments"], 1)
        self.now += 1_000_000
        self.freed()
        self.steps.all()
        self.idle()
        self.assertEqual(self.journal.health()["segments"], 2)
        self.age()
        self.freed()
        self.steps.all()
        self.assertEqual((self.journal.health()["segments"], self.records()), (1, []))
        self.assertEqual(dict(self.journal.bounds()), {})

    def test_unread(self) -> None:
        """What a consumer group has not read goes all the same; the operator is told before, and it is counted."""
        self.begin(segmentBytes=4096, rules=self.RULES)
        self.patch(self.queueStates, "reading", lambda: {"g": 51})
        self.kept(b"x" * 200)
        self.age()
        self.kept(b"y")
        self.freed()
        self.assertEqual([payload for _, _, payload in self.records()], [b"y"])
        words = 'the consumer group "g" has not read the offsets 51 to 200, and what has expired of them is removed now'
        self.assertEqual(self.log, [words])
        self.assertIn(("journal: expired unread", 150), self.events)

    def test_needed(self) -> None:
        """What a queue needs stays, however old."""
        self.begin(segmentBytes=4096, rules=self.RULES)
        self.queueStates.state = {}
        self.patch(self.queueStates, "needed", lambda: {"a": 1})
        self.kept(b"x" * 200)
        self.age()
        self.kept(b"y")
        self.freed()
        self.assertEqual(len(self.records()), 201)

    def test_full(self) -> None:
        """A journal that is full begins another segment, so that all that is old can go, and takes messages again."""
        self.begin(maxBytes=8192, rules=self.RULES)
        self.journal.cleaner.monotonic = lambda: self.now / 1e6
        while self.journal.segments.bytes < 8192:
            self.kept(b"x" * 50)
        self.assertRaises(NotKept, self.append, b"y")
        self.steps.all()
        self.idle()
        self.age()
        self.assertRaises(NotKept, self.append, b"y")
        self.steps.all()
        self.pump(lambda: self.journal.segments.bytes < 8192)
        self.kept(b"z")
        self.assertEqual((self.told[-1][0], self.told[-1][2]), (b"z", None))

    def test_fullAfterStep(self) -> None:
        """A system clock that was set back does not delay the next attempt to free space."""
        self.begin(rules=self.RULES)
        self.kept(b"x")
        cleaner = self.journal.cleaner
        attempts: list[float] = []
        for moment in 0.0, RETRY_INTERVAL - 0.1, RETRY_INTERVAL + 0.1:
            self.now -= 3_600_000_000
            self.patch(cleaner, "monotonic", lambda moment=moment: moment)
            self.patch(cleaner, "roll", lambda moment=moment: attempts.append(moment))
            cleaner.makeRoom()
        self.assertEqual(attempts, [0.0, RETRY_INTERVAL + 0.1])

    def test_fullNotForEver(self) -> None:
        """The first refusal begins a segment, which can then be cleaned; later ones begin none."""
        self.begin(maxBytes=4096, rules=self.RULES)
        while self.journal.segments.bytes < 4096:
            self.kept(b"x" * 50)
        # A pass of the cleaner, which runs meanwhile, may remove any segment but the last.
        before = self.journal.segments.all[-1]
        self.assertRaises(NotKept, self.append, b"y")
        self.steps.all()
        begun = self.journal.segments.all[-1]
        self.assertIsNot(begun, before)
        for _ in range(10):
            self.assertRaises(NotKept, self.append, b"y")
            self.steps.all()
        self.assertIs(self.journal.segments.all[-1], begun)

    def test_closedMeanwhile(self) -> None:
        """A stop ends a pass."""
        self.begin(rules=self.RULES)
        self.journal.clean()
        self.journal.close()
        self.assertFalse(self.journal.clean())
