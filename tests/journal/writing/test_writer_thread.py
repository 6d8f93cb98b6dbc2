"""The log writes and syncs as its mode says, the thread does what it is handed; old bytes leave the memory."""

import os
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.journal_options import Fsync
from fleximq.journal.files.file_system import readFile
from fleximq.journal.files.segment_table import segmentName
from fleximq.journal.format.control_frames import decodeCheckpoint, decodeGap, decodeSegment, decodeStateRecords
from fleximq.journal.format.frame import Frame, FrameKind
from fleximq.journal.writing import writer_thread
from fleximq.journal.writing.commit import Commit, RecordsPart, SegmentOpening, Snapshot
from fleximq.journal.writing.group_commit import appendedOf
from fleximq.journal.writing.writer_thread import ActiveSegment, CommitWriter, WriterThread, reasonOf
from fleximq.values.state_records import ClientIdsReserved
from tests.journal.faulty_files import FaultyFiles
from tests.journal.steps import ALWAYS, JOURNAL, framesIn, published

INTERVAL = Fsync("interval", 50)
NEVER = Fsync("never")


class LogCase(SynchronousTestCase):
    """A test with a log in a folder of its own."""

    def setUp(self) -> None:
        self.folder = self.mktemp()
        os.mkdir(self.folder)
        self.files = FaultyFiles()
        self.seconds = 0.0

    def log(self, fsync: Fsync = ALWAYS, end: int = 0) -> CommitWriter:
        """Return a log that begins at this position."""
        log = CommitWriter(self.files, self.folder, fsync, end, lambda: 77, lambda: self.seconds)
        self.addCleanup(log.close)
        return log

    def opening(self, first: int = 1, offset: int = 1, clientIds: int = 0) -> Commit:
        """Return a commit that opens a segment and has nothing else."""
        snapshot = Snapshot({"q": 1}, (), clientIds, offset, 5)
        return Commit(last=0, next=offset, time=5, opening=SegmentOpening(JOURNAL, snapshot, first))

    def run_(self, offset: int) -> Commit:
        """Return a commit with one record."""
        records = RecordsPart(offset, [appendedOf(*published(b"x"), 5)])
        return Commit(last=0, next=offset + 1, time=5, parts=[records])

    def carried(self, log: CommitWriter, commit: Commit) -> list[str]:
        """Carry a commit out and return the operations it took."""
        del self.files.calls[:]
        log.carryOut(commit)
        return self.files.calls[:]


class LogTests(LogCase):
    """One commit after the other."""

    def test_opening(self) -> None:
        """A segment begins with its id, the checkpoint, and the client ids, from which a restart goes on."""
        commit = self.opening(clientIds=2000)
        self.assertEqual(self.carried(self.log(), commit), ["create", "write", "sync", "syncFolder"])
        frames = framesIn(f"{self.folder}/{0:020d}.fxj")
        self.assertEqual(
            [header.kind for header, _ in frames], [FrameKind.SEGMENT, FrameKind.NOTES, FrameKind.CHECKPOINT]
        )
        self.assertEqual(decodeSegment(*frames[0]).journal, JOURNAL)
        self.assertEqual(decodeStateRecords(*frames[1]), [ClientIdsReserved(2000)])
        checkpoint = decodeCheckpoint(*frames[2])
        self.assertEqual((checkpoint.replay, checkpoint.clean, checkpoint.snapshot), (0, False, {"q": 1}))

    def test_gap(self) -> None:
        """Offsets that are never given are named."""
        self.carried(self.log(end=640), self.opening(first=7, offset=1000))
        frames = framesIn(f"{self.folder}/{640:020d}.fxj")
        self.assertEqual(
            [header.kind for header, _ in frames], [FrameKind.SEGMENT, FrameKind.GAP, FrameKind.CHECKPOINT]
        )
        self.assertEqual((decodeGap(*frames[1]).first, decodeGap(*frames[1]).next), (7, 1000))
        self.assertEqual([header.position for header, _ in frames][0], 640)

    def test_synced(self) -> None:
        """The first frame behind a sync says so, and no other."""
        log = self.log(NEVER)
        for commit in (self.opening(), self.run_(1), self.run_(2)):
            log.carryOut(commit)
        log.carryOut(self.opening())
        frames = framesIn(f"{self.folder}/{0:020d}.fxj")
        self.assertEqual([header.flags for header, _ in frames], [1, 0, 1, 0])

    def test_clean(self) -> None:
        """The last commit ends with a clean checkpoint; replay begins right before it."""
        log = self.log()
        log.carryOut(self.opening())
        commit = self.run_(1)
        commit.closing = Snapshot(None, (), 2000, 2, 6)
        log.carryOut(commit)
        *_, notes, (header, frame) = framesIn(f"{self.folder}/{0:020d}.fxj")
        checkpoint = decodeCheckpoint(header, frame)
        self.assertEqual((checkpoint.clean, checkpoint.replay), (True, notes[0].position))
        self.assertEqual(notes[0].kind, FrameKind.NOTES)

    def test_withoutSegment(self) -> None:
        """A commit that opens no segment where none is open is refused."""
        commit = self.run_(1)
        self.log().carryOut(commit)
        self.assertEqual(commit.reason, "no segment is open")

    def test_taken(self) -> None:
        """A file that is in the way is not written over."""
        path = f"{self.folder}/{0:020d}.fxj"
        self.files.close(self.files.create(path))
        commit = self.opening()
        self.log().carryOut(commit)
        self.assertEqual(commit.reason, "file exists")


class ModeTests(LogCase):
    """When what was written is synced."""

    def opened(self, fsync: Fsync) -> CommitWriter:
        """Return a log with a segment."""
        log = self.log(fsync)
        log.carryOut(self.opening())
        return log

    def test_always(self) -> None:
        """Each commit."""
        log = self.opened(ALWAYS)
        self.assertEqual(self.carried(log, self.run_(1)), ["write", "sync"])
        self.assertIsNone(log.wait)

    def test_interval(self) -> None:
        """The first one of them within the interval, all by one sync; without a write none."""
        log = self.opened(INTERVAL)
        self.assertIsNone(log.wait)
        self.assertEqual(self.carried(log, self.run_(1)), ["write"])
        self.seconds = 0.03
        self.carried(log, self.run_(2))
        self.assertAlmostEqual(log.wait or 0, 0.02)
        self.assertIsNone(log.syncDue())
        self.assertNotIn("sync", self.files.calls)
        self.seconds = 0.05
        self.assertIsNone(log.syncDue())
        self.assertEqual(self.files.calls, ["write", "sync"])
        self.seconds = 10.0
        self.assertIsNone(log.syncDue())
        self.assertEqual(self.files.calls, ["write", "sync"])

    def test_intervalFails(self) -> None:
        """If that sync fails the reason is given, once, and nothing is written or synced any more."""
        log = self.opened(INTERVAL)
        log.carryOut(self.run_(1))
        self.files.fail("sync")
        self.seconds = 1.0
        self.assertEqual(log.syncDue(), "input/output error")
        self.files.heal()
        del self.files.calls[:]
        self.assertIsNone(log.syncDue())
        commit = self.run_(2)
        log.carryOut(commit)
        self.assertEqual((commit.reason, self.files.calls), ("input/output error", []))

    def test_never(self) -> None:
        """Only before another segment begins, and at a clean end."""
        log = self.opened(NEVER)
        self.assertEqual(self.carried(log, self.run_(1)), ["write"])
        self.assertIsNone(log.wait)
        self.assertEqual(self.carried(log, self.opening()), ["sync", "create", "write", "sync", "syncFolder"])
        commit = self.run_(2)
        commit.closing = Snapshot(None, (), 0, 3, 6)
        self.assertEqual(self.carried(log, commit), ["write", "sync"])

    def test_sealFails(self) -> None:
        """If the segment before cannot be synced, no new one is begun."""
        log = self.opened(NEVER)
        log.carryOut(self.run_(1))
        self.files.fail("sync")
        commit = self.opening()
        self.assertEqual(self.carried(log, commit), ["sync", "truncate"])
        self.assertEqual(commit.reason, "input/output error")

    def test_portionFails(self) -> None:
        """The first portion of a group is removed if the next one cannot be written."""
        self.patch(writer_thread, "_WRITTEN_BYTES", 1)
        log = self.opened(ALWAYS)
        [name] = os.listdir(self.folder)
        before = os.path.getsize(f"{self.folder}/{name}")
        self.files.fail("write", after=1)
        commit = self.run_(1)
        commit.parts += self.run_(2).parts
        self.assertEqual(self.carried(log, commit), ["write", "write", "truncate"])
        self.assertEqual(commit.reason, "input/output error")
        self.assertEqual(os.path.getsize(f"{self.folder}/{name}"), before)


class ReopenTests(LogCase):
    """After a fault."""

    def test_neverTwice(self) -> None:
        """Nothing is synced or written again through the descriptor that failed; a new file is begun."""
        log = self.log()
        log.carryOut(self.opening())
        self.files.fail("sync")
        failed = self.run_(1)
        log.carryOut(failed)
        self.files.heal()
        verified: list[int] = []

        def verify(end: int) -> int:
            verified.append(end)
            return end

        del self.files.calls[:]
        self.assertIsNone(log.reopen(verify))
        self.assertNotIn("sync", self.files.calls)
        commit = self.opening(first=1, offset=1000)
        log.carryOut(commit)
        self.assertIsNone(commit.reason)
        self.assertEqual(verified, [commit.begun[0]])  # type: ignore[index]

    def test_notWhole(self) -> None:
        """If what should be there is not, it stays as it was."""

        def verify(end: int) -> int:
            raise ValueError("it is damaged")

        log = self.log()
        log.carryOut(self.opening())
        self.files.fail("write")
        log.carryOut(self.run_(1))
        self.files.heal()
        self.assertEqual(log.reopen(verify), "it is damaged")
        commit = self.opening()
        log.carryOut(commit)
        self.assertEqual(commit.reason, "it is damaged")

    def test_failedRoll(self) -> None:
        """A segment that could not be begun, and could not be removed either, is in nobody's way."""
        log = self.log()
        log.carryOut(self.opening())
        for operation in ("sync", "remove"):
            self.files.fail(operation)
        failed = self.opening()
        log.carryOut(failed)
        self.assertEqual(len(self.files.names(self.folder)), 2)
        self.files.heal()
        self.assertIsNone(log.reopen(lambda end: end))
        commit = self.opening()
        log.carryOut(commit)
        self.assertIsNone(commit.reason)


class ReasonTests(SynchronousTestCase):
    """Why something failed, in words."""

    def test_words(self) -> None:
        """The system's where it has some, else the error's own, else its name."""
        errors = [OSError(28, "No space left on device"), OSError("nothing"), ValueError("odd"), MemoryError()]
        words = ["no space left on device", "nothing", "odd", "MemoryError"]
        self.assertEqual([reasonOf(error) for error in errors], words)


class FakeLog:
    """A log whose next sync is due when a test says so."""

    wait: float | None = None
    reason: str | None = None

    def syncDue(self) -> str | None:
        """Return the reason once."""
        reason, self.reason = self.reason, None
        self.wait = None
        return reason


class WriterThreadTests(SynchronousTestCase):
    """The real thread; ``calls`` is the way back to the reactor's."""

    def setUp(self) -> None:
        self.calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self.failed: list[str] = []
        self.log = FakeLog()
        self.thread = WriterThread(self.log, self.calls.put, self.failed.append)  # type: ignore[arg-type]

    def start(self) -> None:
        """Start the thread, which ends with the test."""
        self.thread.start()
        self.addCleanup(self.thread.stop, 10)

    def test_inOrder(self) -> None:
        """Work is done in order, and its end told on the reactor's thread."""
        done: list[int] = []
        told: list[int] = []
        for number in range(5):
            self.thread.hand(lambda number=number: done.append(number), lambda number=number: told.append(number))  # type: ignore[misc]
        self.start()
        while len(told) < 5:
            self.calls.get(timeout=300)()
        self.assertEqual((done, told), ([0, 1, 2, 3, 4],) * 2)

    def test_drain(self) -> None:
        """Who cannot wait for the reactor takes what is done himself; what he took is not told twice."""
        told: list[int] = []
        self.start()
        self.assertFalse(self.thread.drain())
        self.thread.hand(lambda: None, lambda: told.append(1))
        self.assertTrue(self.thread.drain(10))
        self.calls.get(timeout=300)()
        self.assertEqual(told, [1])

    def test_remind(self) -> None:
        """A reminder comes once."""
        told: list[int] = []
        self.start()
        self.thread.remind(0.001, lambda: told.append(1))
        self.calls.get(timeout=300)()
        self.assertEqual(told, [1])

    def test_failedSync(self) -> None:
        """When a sync in between fails, that is told."""
        self.log.wait, self.log.reason = 0.0, "no"
        self.start()
        self.calls.get(timeout=300)()
        self.assertEqual(self.failed, ["no"])

    def test_stop(self) -> None:
        """It ends when all its work is done."""
        done: list[int] = []
        self.thread.hand(lambda: done.append(1), lambda: None)
        self.thread.start()
        self.assertTrue(self.thread.stop(10))
        self.assertEqual(done, [1])


class Forgetful(FaultyFiles):
    """Notes what may be forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[tuple[int, int]] = []
        self.begun: list[tuple[int, int]] = []

    def beginSync(self, descriptor: int, start: int, size: int) -> None:
        """Note it, and do it."""
        self.begun.append((start, size))
        super().beginSync(descriptor, start, size)

    def forget(self, descriptor: int, start: int, size: int) -> None:
        """Note it, and do it."""
        self.forgotten.append((start, size))
        super().forget(descriptor, start, size)


class SegmentCase(SynchronousTestCase):
    """A test with a new segment; ten bytes are remembered, and forgotten are a hundred at once."""

    def setUp(self) -> None:
        self.patch(writer_thread, "CACHED_BYTES", 10)
        self.patch(writer_thread, "_PORTION", 100)
        self.folder = self.mktemp()
        os.mkdir(self.folder)
        self.files = Forgetful()
        self.segment = ActiveSegment(self.files, self.folder, 4096, 1)

    def write(self, *lengths: int, hurry: bool = True) -> None:
        """Write frames of these lengths."""
        self.segment.write((Frame(FrameKind.NOTES, [bytes(length - 64)]) for length in lengths), hurry)


class PortionTests(SegmentCase):
    """Frames are written as soon as they have enough bytes together."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(writer_thread, "_WRITTEN_BYTES", 200)

    def test_portions(self) -> None:
        """The disk begins with each full portion if a sync follows; the rest is left to that."""
        for hurry, begun in (True, [(0, 240), (240, 200)]), (False, []):
            del self.files.calls[:], self.files.begun[:]
            start = self.segment.end - self.segment.base
            self.write(120, 120, 200, 96, hurry=hurry)
            self.assertEqual(self.files.calls, ["write"] * 3)
            self.assertEqual(self.files.begun, [(start + place, size) for place, size in begun])
        self.assertEqual(self.segment.end, 4096 + 2 * 536)

    def test_encodedLater(self) -> None:
        """A frame is asked for when the portion before it is written."""
        seen: list[int] = []
        for frame in self.segment.write(map(self.made, [seen] * 3), hurry=False):
            self.assertEqual(frame[1].pieces, ())
        self.assertEqual(seen, [0, 1, 2])

    def made(self, seen: list[int]) -> Frame:
        """Return a frame of records, and note how many portions were written."""
        seen.append(self.files.calls.count("write"))
        return Frame(FrameKind.RECORDS, [bytes(200)])


class ForgettingTests(SegmentCase):
    """What is old is forgotten."""

    def test_afterSync(self) -> None:
        """What is behind the last bytes is forgotten when it was synced, not before, and each byte once."""
        self.write(120)
        self.assertEqual(self.files.forgotten, [])
        self.segment.sync()
        self.assertEqual(self.files.forgotten, [(0, 110)])
        self.write(96)
        self.segment.sync()
        self.assertEqual(self.files.forgotten, [(0, 110)])
        self.write(72)
        self.segment.sync()
        self.segment.close()
        self.assertEqual(self.files.forgotten, [(0, 110), (110, 168), (278, 0)])

    def test_keepsWhatIsNotOnDisk(self) -> None:
        """A file that was not synced is closed as it is."""
        self.write(200)
        self.segment.close()
        self.assertEqual(self.files.forgotten, [])

    def test_readable(self) -> None:
        """What was forgotten is read as it was written."""
        self.write(8192)
        self.segment.sync()
        self.segment.close()
        self.assertEqual(len(readFile(self.files, f"{self.folder}/{segmentName(4096)}")), 8192)

    def test_impossible(self) -> None:
        """A system that cannot forget is no fault."""
        self.patch(os, "posix_fadvise", self._refuse)
        self.write(200)
        self.segment.sync()
        self.assertFalse(self.segment.unsynced)
        self.segment.close()

    def _refuse(self, *ignored: Any) -> None:
        raise OSError(22, "Invalid argument")
