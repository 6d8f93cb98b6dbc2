"""fleximq.cluster.stream_replica, follower and trim: a folder with a stream's bytes, after any fault of its disk."""

from random import Random

from fleximq.cluster.follower import Follower
from fleximq.cluster.interfaces import AHEAD, Piece, StreamBounds
from fleximq.cluster.stream_log import FENCE
from fleximq.cluster.stream_replica import ReplicaError, StreamBehind, StreamReplica
from fleximq.cluster.trim import trimCopy, trimStream
from fleximq.errors import JournalError
from fleximq.journal.files.folder_files import ASIDE, STREAM
from fleximq.journal.files.folder_survey import Finding, FolderSurvey
from fleximq.journal.files.frame_scan import CompleteFrame
from fleximq.journal.files.segment_index import indexName
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import SegmentStart, Transaction, encodeSegment
from fleximq.journal.recovery.recovery import recover
from fleximq.journal.writing.commit import SegmentOpening, Snapshot, StagedPart, TransactionPart
from tests.cluster.simulation import tables
from tests.cluster.store_case import FOLDER, StoreCase, emptyDisk
from tests.journal.frames import JOURNAL, TIME, appended, chained
from tests.journal.recorder import Recorder, State, crashes


def contentOf(disk: Recorder) -> tuple[int, bytes]:
    """Return the position at which the segments in a folder begin, and all their bytes."""
    names = [name for name in disk.names(FOLDER) if name.endswith(".fxj")]
    state = disk.now()
    return int(names[0][:20]), b"".join(state.files[state.names[f"{FOLDER}/{name}"]] for name in names)


class CopyCase(StoreCase):
    """``bases`` are the positions at which the segments of the stream begin. Its first frame has :data:`FENCE`
    messages, each later commit one.
    """

    def setUp(self) -> None:
        super().setUp()
        self.owned = log = self.owner()
        self.bases = [0]
        for number in range(6):
            made = self.commit(bytes([number]) * 300, b"second")
            if number in (2, 4):
                made.opening = SegmentOpening(JOURNAL, Snapshot({}, (), 0, self.copy.next, TIME), self.copy.next)
                self.bases.append(self.copy.end)
            self.completed(log.carryOut(made))
        self.own = self.copy
        self.pieces = list(self.stream.pieces)
        self.bytes = b"".join(piece.data for piece in self.pieces)

    def bounds(self, last: int | None = None) -> StreamBounds:
        """Return the bounds of the stream."""
        return StreamBounds(self.stream.created, self.stream.first, len(self.pieces) if last is None else last)

    def fill(self, copy: StreamReplica, until: int | None = None) -> None:
        """Let a copy read the stream, up to a sequence."""
        for sequence in range(copy.join(self.bounds()), (until or len(self.pieces)) + 1):
            copy.receive(sequence, self.pieces[sequence - 1])


class CopyTests(CopyCase):
    """StreamReplica."""

    def test_equal(self) -> None:
        """A follower's folder has the owner's bytes in the same files, and any reader of journals reads it."""
        disk = emptyDisk()
        copy = self.openCopy(disk)
        self.fill(copy)
        self.assertEqual(contentOf(disk), (0, self.bytes))
        self.assertEqual(contentOf(self.own._files), (0, self.bytes))  # type: ignore[arg-type]
        self.assertEqual((copy.end, copy.next, copy.time), (self.own.end, self.own.next, self.own.time))
        self.assertEqual([each for each in FolderSurvey(disk, FOLDER).check() if isinstance(each, Finding)], [])
        found = recover(disk, FOLDER, JOURNAL)
        self.assertEqual((found.records, found.lost, found.torn, found.end), (12, [], [], copy.end))
        self.assertEqual([segment.base for segment in found.segments.all], self.bases)

    def test_together(self) -> None:
        """Messages that arrive together leave the same folder as one by one, wherever they are divided."""
        messages = [(number, piece) for number, piece in enumerate(self.pieces, 1)]
        for first in range(len(messages) + 1):
            disk = emptyDisk()
            copy = self.openCopy(disk)
            copy.join(self.bounds())
            for part in (messages[:first], messages[first:]):
                copy.receiveAll(part)
            self.assertEqual((contentOf(disk), copy.sequence, copy.usable), ((0, self.bytes), len(messages), True))
            self.assertEqual((copy.next, copy.time), (self.own.next, self.own.time))

    def test_emptied(self) -> None:
        """A stream without messages whose sequences go on has lost them: no copy continues it."""
        disk = emptyDisk()
        copy = self.openCopy(disk)
        self.fill(copy, FENCE + 3)
        last = len(self.pieces)
        self.assertRaises(StreamBehind, copy.join, StreamBounds(self.stream.created, last + 1, last))
        self.assertEqual(self.openCopy().join(StreamBounds(self.stream.created, last + 1, last)), last + 1)

    def test_again(self) -> None:
        """A copy that was closed goes on after its last message."""
        disk = emptyDisk()
        copy = self.openCopy(disk)
        self.fill(copy, FENCE + 3)
        copy.close()
        copy = self.openCopy(disk)
        self.assertTrue(copy.usable)
        self.assertEqual(copy.join(self.bounds()), FENCE + 4)
        self.fill(copy)
        self.assertEqual(contentOf(disk), (0, self.bytes))

    def test_killed(self) -> None:
        """A copy that was not closed reads its last segment again, and may not be used before."""
        disk = emptyDisk()
        self.fill(self.openCopy(disk), FENCE + 4)
        copy = self.openCopy(disk)
        self.assertEqual((copy.usable, copy.join(self.bounds())), (False, FENCE + 3))
        self.assertEqual(copy.receive(FENCE + 3, self.pieces[FENCE + 2]), [])
        self.fill(copy)
        self.assertTrue(copy.usable)
        self.assertEqual(contentOf(disk), (0, self.bytes))

    def test_powerLoss(self) -> None:
        """A loss of power at any moment takes nothing that the stream does not bring back."""
        disk = emptyDisk()
        copy = self.openCopy(disk)
        self.fill(copy)
        copy.close()
        tried = 0
        for _, _, state in crashes(disk, Random(3)):
            tried += 1
            lost = Recorder(state)
            again = self.openCopy(lost)
            self.fill(again)
            self.assertEqual(contentOf(lost), (0, self.bytes))
            self.assertTrue(again.usable)
            self.assertEqual([name for name in lost.names(FOLDER) if name.endswith((".torn", ".damaged"))], [])
        self.assertGreater(tried, 50)

    def test_powerLossOfOpening(self) -> None:
        """So does a loss of power while a damaged copy is being opened."""
        disk = emptyDisk()
        self.fill(self.openCopy(disk))
        state = disk.now()
        last = state.names[f"{FOLDER}/{self.bases[-1]:020d}.fxj"]
        state.files[last] = state.files[last][:-8] + bytes(8)
        opened = Recorder(state)
        copy = self.openCopy(opened)
        self.assertEqual(copy.end, self.pieces[-2].end)
        self.assertEqual(contentOf(opened), (0, self.bytes[: copy.end]))
        for _, _, again in crashes(opened, Random(3)):
            disk = Recorder(again)
            self.fill(self.openCopy(disk))
            self.assertEqual(contentOf(disk), (0, self.bytes))

    def test_otherFrames(self) -> None:
        """Frames that are read again must be those in the copy."""
        disk = emptyDisk()
        self.fill(self.openCopy(disk))
        log = self.log(None, "b", 9)
        del self.stream.pieces[FENCE + 4 :]
        self.completed(log.fence())
        self.pieces = self.stream.pieces
        copy = self.openCopy(disk)
        self.assertRaises(ReplicaError, self.fill, copy)
        self.assertEqual((copy.usable, contentOf(disk)), (False, (0, self.bytes)))
        self.assertRaises(ReplicaError, copy.receive, len(self.pieces) + 1, self.pieces[-1])

    def test_notContinued(self) -> None:
        """A message that does not continue the copy changes nothing: missing, damaged, twice, of another journal."""
        third, fourth = self.pieces[FENCE + 1 : FENCE + 3]
        [foreign] = chained([encodeSegment(SegmentStart("0" * 32, TIME), 5)], third.end)
        [within] = chained([encodeSegment(SegmentStart(JOURNAL, TIME), 9)], fourth.end)
        for sequence, data in (
            (FENCE + 4, self.pieces[FENCE + 3].data),
            (FENCE + 3, fourth.data[:-1] + b"x"),
            (FENCE + 3, fourth.data[:-8]),
            (FENCE + 3, third.data),
            (FENCE + 3, self.pieces[FENCE + 4].data),
            (FENCE + 3, fourth.data * 2),
            (FENCE + 3, foreign),
            (FENCE + 3, fourth.data + within),
        ):
            disk = emptyDisk()
            copy = self.openCopy(disk)
            self.fill(copy, FENCE + 2)
            self.assertRaises(ReplicaError, copy.receive, sequence, Piece(data, third.end + len(data), 9))
            self.assertEqual(contentOf(disk), (0, self.bytes[: third.end]), (sequence, data))
            self.assertFalse(copy.usable)

    def test_streamBehind(self) -> None:
        """A stream that was created again or has less than the copy is not followed, and the copy stays."""
        disk = emptyDisk()
        copy = self.openCopy(disk)
        self.fill(copy)
        copy.close()
        copy = self.openCopy(disk)
        self.assertRaises(StreamBehind, copy.join, self.bounds(len(self.pieces) - 1))
        self.assertRaises(StreamBehind, copy.join, self.bounds()._replace(created=9))
        self.assertEqual(contentOf(disk), (0, self.bytes))
        self.assertEqual(copy.join(self.bounds()), len(self.pieces) + 1)

    def test_newNode(self) -> None:
        """An empty copy begins at the stream's first segment; one that ends before it moves its segments aside."""
        self.stream.first = 1 + next(i for i, piece in enumerate(self.pieces) if piece.end > self.bases[1])
        for until in (0, FENCE + 1):
            disk = emptyDisk()
            copy = self.openCopy(disk)
            for sequence in range(1, until + 1):
                copy.receive(sequence, self.pieces[sequence - 1])
            self.fill(copy)
            self.assertEqual(contentOf(disk), (self.bases[1], self.bytes[self.bases[1] :]))
            self.assertEqual(any(name.endswith(ASIDE) for name in disk.names(FOLDER)), bool(until))
            copy.close()
            self.assertTrue(self.openCopy(disk).usable)

    def test_loaded(self) -> None:
        """A loaded copy knows what is in its segments at any time, as a recovery would read it; it writes indexes."""
        self.addStaged()
        for until in range(len(self.pieces) + 1):
            disk = emptyDisk()
            copy = self.openCopy(disk)
            self.fill(copy, until)
            copy.load(self.fail)
            self.fill(copy)
            self.assertKnown(disk, copy)
            indexed = [base for base in self.bases[:-1] if disk.exists(f"{FOLDER}/{indexName(base)}")]
            self.assertEqual(indexed, self.bases[:-1])
            self.assertEqual(copy.segments.nextOffset, copy.next)  # type: ignore[union-attr]
            copy.trim(self.bases[1])
            self.assertKnown(disk, copy)

    def test_loadedAside(self) -> None:
        """When segments are moved aside, their content is unknown as well; while clients read them it is an error."""
        self.stream.first = 1 + next(i for i, piece in enumerate(self.pieces) if piece.end > self.bases[1])
        disk = emptyDisk()
        copy = self.openCopy(disk)
        copy.load(self.fail)
        for sequence in range(1, FENCE + 2):
            copy.receive(sequence, self.pieces[sequence - 1])
        copy.added = lambda frames: None
        self.assertRaises(ReplicaError, self.fill, copy)
        copy = self.openCopy(disk)
        copy.load(self.fail)
        self.fill(copy)
        self.assertKnown(disk, copy)

    def addStaged(self) -> None:
        """Add a transaction and one that is not committed to the end of the stream."""
        for batch in (1, 2):
            made = self.commit()
            part = StagedPart("q", batch, "p", [appended(b"one", b"two")], self.copy.next)
            made.parts.append(part)
            self.completed(self.owned.carryOut(made))
            positions = tuple(position for position, frame in made.written)
            if batch == 1:
                made = self.commit()
                made.next += 2
                made.parts.append(TransactionPart(Transaction("q", 1, positions), self.copy.next, 2, TIME))
                self.completed(self.owned.carryOut(made))
        self.pieces = list(self.stream.pieces)

    def assertKnown(self, disk: Recorder, copy: StreamReplica) -> None:
        """Check that a copy knows what a recovery reads."""
        known, read = tables(disk, copy)
        for each in (lambda table: dict(table.bounds()), SegmentTable.staged, lambda table: len(table)):
            self.assertEqual(each(known), each(read))

    def test_streamFile(self) -> None:
        """A damaged file DIR/stream is as none: all is read again; one of another shard is an error."""
        disk = emptyDisk()
        copy = self.openCopy(disk)
        self.fill(copy)
        copy.close()
        state = disk.now()
        number = state.names[f"{FOLDER}/{STREAM}"]
        state.files[number] = state.files[number].replace(b"stream 1 0 ", b"stream 1 1 ")
        self.assertEqual(self.openCopy(state).join(self.bounds()), 1)
        self.assertRaises(JournalError, StreamReplica(Recorder(disk.now()), FOLDER, 1).open)

    def test_sealedSegmentCut(self) -> None:
        """If a segment lacks bytes that DIR/stream says are on disk, all is read again."""
        disk = emptyDisk()
        copy = self.openCopy(disk)
        self.fill(copy)
        copy.close()
        state = disk.now()
        last = state.names[f"{FOLDER}/{self.bases[-1]:020d}.fxj"]
        state.files[last] = state.files[last][:-8]
        copy = self.openCopy(state)
        self.assertEqual(copy.join(self.bounds()), 1)
        self.fill(copy)
        self.assertTrue(copy.usable)

    def test_powerLossOfTrimming(self) -> None:
        """A loss of power while segments are removed leaves those without a gap that reach to the end."""
        disk = emptyDisk()
        self.fill(self.openCopy(disk))
        copy = self.openCopy(trimmed := Recorder(disk.now()))
        copy.trim(self.bases[2])
        found = set()
        for _, _, state in crashes(trimmed, Random(3)):
            start, content = contentOf(Recorder(state))
            self.assertEqual(content, self.bytes[start:])
            found.add(start)
        self.assertEqual(found, set(self.bases))

    def test_trim(self) -> None:
        """Whole segments before a position are removed."""
        disk = emptyDisk()
        copy = self.openCopy(disk)
        self.fill(copy)
        copy.trim(self.bases[1])
        self.assertEqual(contentOf(disk), (self.bases[1], self.bytes[self.bases[1] :]))
        copy.trim(1 << 40)
        self.assertEqual(contentOf(disk), (self.bases[2], self.bytes[self.bases[2] :]))


class TrimTests(CopyCase):
    """trimStream and trimCopy."""

    def test_trim(self) -> None:
        """The stream is cut before a segment, and copies follow; a position within a segment is refused."""
        cluster = self.cluster()
        self.assertFalse(self.completed(trimStream(cluster, 0, self.bases[1] + 8)))
        self.assertEqual(self.stream.first, 1)
        self.assertTrue(self.completed(trimStream(cluster, 0, self.bases[2])))
        self.assertEqual(self.stream.pieces[self.stream.first - 2].end, self.bases[2])
        self.completed(trimCopy(cluster, 0, self.own))
        self.assertEqual(contentOf(self.own._files)[0], self.bases[2])  # type: ignore[arg-type]


class FollowerTests(CopyCase):
    """Follower."""

    def follower(self, disk: Recorder | State | None = None) -> Follower:
        """Return a follower that has begun."""
        self.frames: list[CompleteFrame] = []
        self.heard = 0

        def heard(isLater: bool) -> None:
            self.heard += 1

        self.followed = self.openCopy(disk)
        self.followed.added = self.frames.extend
        follower = Follower(self.cluster("b"), 0, self.followed, self.clock, heard=heard)
        self.assertIsNone(follower.applied)
        follower.start()
        return follower

    def test_follows(self) -> None:
        """It brings the copy up to date, and says what was added."""
        follower = self.follower()
        self.pass_(1)
        self.assertEqual(follower.applied, len(self.stream.pieces))
        self.assertEqual((self.followed.end, self.heard > 0), (self.own.end, True))
        self.assertEqual(b"".join(bytes(each.frame) for each in self.frames), self.bytes)
        follower.stop()
        self.stream.pieces.append(self.pieces[0])
        self.servers.wake()
        self.pass_(1)
        self.assertGreater(self.heard, 0)

    def test_unavailable(self) -> None:
        """While the store does not answer it tries again; a stop and a start in between join once."""
        self.servers.faults.unavailable.add("streams")
        follower = self.follower()
        self.pass_(5)
        self.assertIn("not joined", follower.reason)
        follower.start()
        self.servers.heal()
        self.pass_(4)
        self.assertEqual(follower.applied, len(self.stream.pieces))
        self.assertGreater(self.heard, 0)

    def test_behind(self) -> None:
        """While the stream has less than the copy, it says so and waits."""
        disk = emptyDisk()
        copy = self.openCopy(disk)
        self.fill(copy)
        copy.close()
        last = self.stream.pieces.pop()
        follower = self.follower(disk)
        self.pass_(3)
        self.assertIn("the stream ends with message", follower.reason)
        self.assertEqual(follower.applied, AHEAD)
        self.stream.pieces.append(last)
        self.pass_(3)
        self.assertEqual(follower.applied, len(self.stream.pieces))

    def test_ahead(self) -> None:
        """It is the same if the copy was not closed, so that only its frames show what it has."""
        disk = emptyDisk()
        self.fill(self.openCopy(disk))
        last = self.stream.pieces.pop()
        follower = self.follower(disk)
        self.assertIsNone(follower.applied)
        self.pass_(3)
        self.assertEqual((follower.reason, follower.applied), ("", AHEAD))
        self.stream.pieces.append(last)
        self.servers.wake()
        self.pass_(1)
        self.assertEqual(follower.applied, len(self.pieces))

    def test_fails(self) -> None:
        """After a message that does not continue the copy it stops, and says why."""
        follower = self.follower()
        self.pass_(1)
        self.stream.pieces.append(self.pieces[FENCE])
        self.servers.wake()
        self.pass_(1)
        self.assertIn("does not continue", follower.reason)
        self.assertIsNone(follower.applied)
        self.assertEqual(self.followed.end, self.own.end)
        self.assertEqual(len(self.flushLoggedErrors()), 0)
