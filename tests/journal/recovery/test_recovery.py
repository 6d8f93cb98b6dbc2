"""What a journal holds is found again, whatever state its folder is in."""

from random import Random
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import readIdentity
from fleximq.journal.files.segment_index import decodeIndex
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.format.frame import FrameKind
from fleximq.journal.recovery.recovery import SKIP, recover, verifyTail
from fleximq.values.state_records import ClientIdsReserved, QueueAcknowledged
from tests.journal.at_once import JournalAtOnce, published
from tests.journal.recorder import Recorder, State, crashes
from tests.journal.small import FOLDER, contents, makeSmall


class Failing(Recorder):
    """A disk that refuses something: ``fails`` is asked with the operation and the path."""

    def fails(self, what: str, path: str) -> bool:
        """Nothing fails unless a test says so."""
        return False

    def _path(self, descriptor: int) -> str:
        return next(name for name, number in self._names.items() if number == self._open[descriptor])

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Read, or fail."""
        if self.fails("read", self._path(descriptor)):
            raise OSError(5, "input/output error")
        return super().read(descriptor, size, position)

    def write(self, descriptor: int, buffers: Any, position: int) -> int:
        """Write, or fail."""
        if self.fails("write", self._path(descriptor)):
            raise OSError(28, "No space left on device")
        return super().write(descriptor, buffers, position)


def opened(state: State) -> tuple[JournalAtOnce, Any]:
    """Return a journal on a disk, and what was found when it was opened."""
    journal = JournalAtOnce(Recorder(state))
    return journal, journal.open()


class FoundTests(SynchronousTestCase):
    """What there is to say of a journal."""

    def test_clean(self) -> None:
        """After a clean stop numbering goes on without a gap, and nothing is torn or lost."""
        small = makeSmall()
        _, found = opened(small.state)
        last = max(small.records)
        self.assertEqual((found.clean, found.torn, found.lost), (True, [], []))
        self.assertEqual((found.nextOffset, found.lastOffset), (last + 1, last + 1))
        self.assertEqual(found.records, len(small.records))

    def test_notClean(self) -> None:
        """After a kill numbering goes on at the next thousand million, although nothing is torn."""
        small = makeSmall(clean=False)
        _, found = opened(small.state)
        last = max(small.records)
        self.assertEqual((found.clean, found.torn), (False, []))
        self.assertEqual((found.lastOffset, found.nextOffset), (last + 1, (last // SKIP + 1) * SKIP))

    def test_skipsEvenFromARoundNumber(self) -> None:
        """A journal that was killed before its first message behind a gap skips ahead again."""
        disk = Recorder()
        disk.makeFolder("/disk")
        for expected in (1, SKIP, 2 * SKIP):
            journal = JournalAtOnce(disk)
            self.assertEqual(journal.open().nextOffset, expected)
            journal.begin()

    def test_new(self) -> None:
        """A new journal begins with 1 and is clean."""
        disk = Recorder()
        disk.makeFolder("/disk")
        found = JournalAtOnce(disk).open()
        self.assertEqual((found.clean, found.nextOffset, found.end, found.snapshot), (True, 1, 0, None))

    def test_replay(self) -> None:
        """All from the last checkpoint on is given, in order; with it, all is known that ever was."""
        small = makeSmall(clean=False)
        _, found = opened(small.state)
        frames = [frame for name in small.segments() for frame in small.frames(name)]
        checkpoint = [frame for frame in frames if frame.kind == FrameKind.CHECKPOINT][-1]
        batches: list[Any] = []
        notes: list[Any] = []
        found.replay(batches.append, notes.append)
        self.assertEqual(
            contents(batches),
            {at: record for at, record in small.records.items() if at >= checkpoint.baseOffset},
        )
        self.assertIn(ClientIdsReserved(1064), notes)
        self.assertIsInstance(notes[-1], QueueAcknowledged)
        self.assertEqual(found.nextClientId, 1064)

    def test_transactions(self) -> None:
        """The last batch of each query is known, and what is staged and still open."""
        small = makeSmall(clean=False)
        _, found = opened(small.state)
        self.assertEqual({query: batch for query, (batch, _, _) in found.transactions.items()}, {"one": 7, "two": 3})
        for base, count in ((base, count) for _, base, count in found.transactions.values()):
            topics = [small.records[base + place][0] for place in range(count)]
            self.assertEqual(topics, ["sink0", "sink0", "sink1", "sink1", "sink2", "sink2"])
        staged = {key: [count for _, _, count in each] for key, each in found.stagedOpen.items()}
        expected = {("one", batch): [2, 2, 2] for batch in (2, 5, 8)}
        self.assertEqual(staged, {**expected, ("one", 9): [1], ("two", 2): [2, 2, 2], ("two", 4): [1]})

    def test_damagedCheckpoint(self) -> None:
        """If the last checkpoint is damaged, the one before it serves, and more is given again."""
        small = makeSmall(clean=False)
        name = small.segments()[-1]
        frames = small.frames(name)
        place = next(frame for frame in frames if frame.kind == FrameKind.CHECKPOINT)
        _, whole = opened(small.state)
        _, found = opened(small.flipped(name, (place.position - frames[0].position + 70) * 8))
        self.assertLess(found.replayFrom, whole.replayFrom)
        self.assertEqual(found.nextClientId, 1064)
        self.assertEqual(found.transactions, whole.transactions)

    def test_indexesAreMadeAgain(self) -> None:
        """Missing indexes are written, and are as they were."""
        small = makeSmall()
        indexes = {name: small.content(name) for name in small.state.names if name.endswith(".idx")}
        disk = Recorder(small.without(*indexes))
        JournalAtOnce(disk).open()
        after = disk.now()
        for name, content in indexes.items():
            found, before = decodeIndex(after.files[after.names[name]]), decodeIndex(content)
            for field in Segment.__slots__:
                self.assertEqual(getattr(found, field), getattr(before, field), field)

    def test_leftovers(self) -> None:
        """What was being written to take another file's place is removed."""
        small = makeSmall()
        disk = Recorder(small.state)
        for name in ("00000000000000000000.idx.new", "00000000000000000000.fxj.new"):
            disk.close(disk.create(f"{FOLDER}/{name}"))
        JournalAtOnce(disk).open()
        self.assertEqual([name for name in disk.names(FOLDER) if name.endswith(".new")], [])


class ErrorTests(SynchronousTestCase):
    """What cannot be gone on with is one sentence, and nothing is changed."""

    def refused(self, disk: Recorder) -> str:
        """Return why a journal cannot be opened, after a look at what was changed."""
        before = disk.now()
        with self.assertRaises(JournalError) as caught:
            JournalAtOnce(disk).open()
        self.assertEqual(
            {name: disk.now().files[number] for name, number in disk.now().names.items() if number > 0},
            {name: before.files[number] for name, number in before.names.items() if number > 0},
        )
        return str(caught.exception)

    def test_unreadable(self) -> None:
        """A segment that the disk does not give is an error, not an end: nothing is cut."""
        small = makeSmall(clean=False)
        disk = Failing(small.state)
        disk.fails = lambda what, path: what == "read" and path == small.segments()[-1]  # type: ignore[method-assign]
        self.assertEqual(self.refused(disk), f"the journal in {FOLDER} cannot be read: input/output error")

    def test_otherJournal(self) -> None:
        """A segment of another journal is not read."""
        small, other = makeSmall(), makeSmall(clean=False)
        name = small.segments()[0]
        state = small.changed(name, other.content(other.segments()[0]))
        del state.names[name.replace(".fxj", ".idx")]
        self.assertIn("belongs to another journal", self.refused(Recorder(state)))

    def test_indexCannotBeWritten(self) -> None:
        """That an index cannot be written is said, and hinders nobody."""
        small = makeSmall(clean=False)
        disk = Failing(small.state)
        disk.fails = lambda what, path: what == "write" and ".idx" in path  # type: ignore[method-assign]
        said: list[str] = []
        found = recover(disk, FOLDER, readIdentity(disk, FOLDER), said.append)
        self.assertEqual(found.records, len(small.records))
        self.assertEqual(len(said), 1)
        self.assertIn("no space left on device", said[0])

    def test_cannotKeepWhatIsCut(self) -> None:
        """Where the copy of an unfinished end cannot be written, nothing is cut."""
        small = makeSmall(clean=False)
        name = small.segments()[-1]
        disk = Failing(small.changed(name, small.content(name)[:-1]))
        disk.fails = lambda what, path: what == "write" and ".torn" in path  # type: ignore[method-assign]
        with self.assertRaises(JournalError):
            JournalAtOnce(disk).open()
        state = disk.now()
        self.assertEqual(state.files[state.names[name]], small.content(name)[:-1])


class CutShortTests(SynchronousTestCase):
    """A recovery that does not come to its end."""

    def test_atEveryOperation(self) -> None:
        """The next one finds the same, whatever the first one had done, and whatever of it came to the disk."""
        small = makeSmall(clean=False)
        name = small.segments()[-1]
        for cut in (1, 300, len(small.content(name)) - 40):
            state = small.changed(name, small.content(name)[:-cut])
            disk = Recorder(state)
            journal = JournalAtOnce(disk)
            first = journal.open()
            expected = contents(journal.everything())
            for _, _, left in crashes(disk, Random(cut)):
                again, found = opened(left)
                self.assertEqual((contents(again.everything()), found.lost), (expected, []))
                self.assertEqual(found.nextOffset, first.nextOffset)


class VerifyTailTests(SynchronousTestCase):
    """What is done before a journal is written again after a fault."""

    def setUp(self) -> None:
        self.disk = Recorder()
        self.disk.makeFolder("/disk")
        self.journal = JournalAtOnce(self.disk)
        self.journal.open()
        self.journal.begin()
        for number in range(3):
            self.journal.append(*published([b"%d" % number * 100]), lambda offset, reason: None)
            self.journal.worker.drain()
        self.segments = self.journal.segments
        self.name = f"{FOLDER}/{0:020d}.fxj"

    def size(self) -> int:
        """Return the length of the segment's file."""
        state = self.disk.now()
        return len(state.files[state.names[self.name]])

    def test_cuts(self) -> None:
        """What stands behind the end is cut."""
        end = self.segments.end
        descriptor = self.disk.open(self.name)
        self.disk.write(descriptor, [b"junk" * 100], end)
        self.assertEqual(verifyTail(self.disk, FOLDER, self.segments, end), end)
        self.assertEqual(self.size(), end)

    def test_writtenOnceMore(self) -> None:
        """What should be there is written and synced again, since nobody knows whether it is on disk."""
        done = len(self.disk.changes)
        end = self.segments.end
        verifyTail(self.disk, FOLDER, self.segments, end)
        changes = self.disk.changes[done:]
        self.assertEqual(sum(len(change.bytes) for change in changes if change.what == "write"), end)
        self.assertEqual(changes[-1].what, "sync")

    def test_damaged(self) -> None:
        """Damage before the end is an error."""
        descriptor = self.disk.open(self.name)
        self.disk.write(descriptor, [b"X"], self.segments.end - 20)
        with self.assertRaisesRegex(JournalError, "is damaged at position"):
            verifyTail(self.disk, FOLDER, self.segments, self.segments.end)

    def test_shorter(self) -> None:
        """So is a file that is shorter."""
        descriptor = self.disk.open(self.name)
        self.disk.truncate(descriptor, self.segments.end - 8)
        with self.assertRaises(JournalError):
            verifyTail(self.disk, FOLDER, self.segments, self.segments.end)


class RealFilesTests(SynchronousTestCase):
    """The same on the machine's own file system."""

    def test_thereAndBack(self) -> None:
        """What was kept is found again."""
        folder = self.mktemp()
        for number in range(3):
            journal = JournalAtOnce(Files(), folder, segmentBytes=2000)
            found = journal.open()
            self.assertEqual((found.records, found.clean), (number * 20, True))
            journal.begin()
            for _ in range(20):
                journal.append(*published([bytes(100)]), lambda offset, reason: None)
                journal.worker.drain()
            journal.close()
