"""fleximq.cluster.stream_log: what an owner concludes from answers, lost answers and the slot."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from fleximq.cluster.interfaces import HEADROOM, Deposed, Piece, Unknown
from fleximq.cluster.stream_log import FENCE, MOST, StreamWorker
from fleximq.cluster.stream_replica import ReplicaError
from fleximq.journal.format.body import readBody
from fleximq.journal.format.frame import FrameKind, completeFrame, readHeader
from fleximq.journal.writing.commit import SegmentOpening, Snapshot
from tests.cluster.memory import MemoryCluster
from tests.cluster.store_case import StoreCase, headersOf
from tests.journal.frames import JOURNAL, TIME


class FenceTests(StoreCase):
    """StreamLog.fence."""

    def test_first(self) -> None:
        """The first messages are a SEGMENT frame with node and term, which begins with its header; the copy has it."""
        self.owner("east-1", 7)
        self.assertEqual([piece.left for piece in self.stream.pieces], list(range(FENCE))[::-1])
        self.assertEqual(readHeader(self.stream.pieces[0].data).kind, FrameKind.SEGMENT)
        header, frame = completeFrame(b"".join(piece.data for piece in self.stream.pieces))
        self.assertEqual(
            readBody(header, frame, FrameKind.SEGMENT),
            {"journal": JOURNAL, "created": TIME, "node": "east-1", "term": 7},
        )
        self.assertEqual((self.copy.sequence, self.copy.end, self.copy.next), (FENCE, header.length, 1))

    def test_readsAll(self) -> None:
        """A new owner reads what its copy lacks first, and the frames of both follow each other."""
        first = self.owner("a", 1)
        self.completed(first.carryOut(self.commit(b"one", b"two")))
        self.owner("b", 2)
        self.assertEqual((self.copy.sequence, self.copy.next), (2 * FENCE + 1, 3))
        headers = headersOf(self.stream.pieces)
        self.assertEqual([header.baseOffset for header in headers], [1, 1, 3])
        self.assertEqual(headers[2].position, headers[1].position + headers[1].length)

    def test_appendBetween(self) -> None:
        """If the former owner appends in between, the new one reads that too."""
        first = self.owner("a", 1)
        second = self.log(None, "b", 2)
        copy = self.copy
        self.servers.faults.old = 1.0
        fenced = self.begin(second.fence())
        self.pass_(1.0)
        self.assertNoResult(fenced)
        self.servers.faults.old = 0.0
        self.copy = first._copy
        self.completed(first.carryOut(self.commit(b"late")))
        self.pass_(5.0)
        self.successResultOf(fenced)
        self.assertEqual((copy.sequence, copy.next), (2 * FENCE + 1, 2))

    def test_readsMany(self) -> None:
        """Many missing messages are read in batches, not one after the other."""
        first = self.owner("a", 1)
        for number in range(60):
            self.completed(first.carryOut(self.commit(b"%d" % number)))
        second = self.log(None, "b", 2)
        single: list[int] = []
        slot = second._cluster.slot

        def counted(shard: int, sequence: int) -> Deferred[Piece | None]:
            single.append(sequence)
            return slot(shard, sequence)

        self.patch(second._cluster, "slot", counted)
        self.completed(second.fence())
        self.assertEqual((self.copy.sequence, self.copy.next), (60 + 2 * FENCE, 61))
        self.assertEqual(single[0], 61 + FENCE)

    def test_readsManyUntilStopped(self) -> None:
        """A node that loses the shard while it reads many messages writes no more of them to its copy."""
        first = self.owner("a", 1)
        for number in range(60):
            self.completed(first.carryOut(self.commit(b"%d" % number)))
        second = self.log(None, "b", 2)
        fenced = self.begin(second.fence())
        while self.copy.sequence < 3:
            self.clock.advance(0.001)
        second.stop()
        self.pass_(5)
        self.failureResultOf(fenced, Deposed)
        self.assertLess(self.copy.sequence, 40)
        self.assertEqual(self.servers.feeds, [])

    def test_setBack(self) -> None:
        """A stream that ends before the copy cannot be fenced; an owner whose stream was set back learns it."""
        first = self.owner("a", 1)
        for number in range(3):
            self.completed(first.carryOut(self.commit(b"%d" % number)))
        del self.stream.pieces[17:]
        fenced = self.begin(self.log(self.copy, "a", 2).fence())
        self.pass_(10)
        self.assertIn(
            "ends with message 17, but this copy has 19", str(self.failureResultOf(fenced, ReplicaError).value)
        )
        for _ in range(7):
            self.completed(first.look())
        looked = self.begin(first.look())
        self.pass_(1)
        self.assertIn("ends with message 17, but", str(self.failureResultOf(looked, ReplicaError).value))

    def test_removed(self) -> None:
        """A copy that ends before the stream begins is not brought up to date by fencing, so this ends."""
        first = self.owner("a", 1)
        for number in range(3):
            self.completed(first.carryOut(self.commit(b"%d" % number)))
        self.stream.first = 3
        fenced = self.begin(self.log(None, "b", 2).fence())
        self.pass_(1.0)
        self.assertIn("begins with 3", str(self.failureResultOf(fenced, Deposed).value))

    def test_incomplete(self) -> None:
        """A commit in pieces is read to its last one, though reads are old for some time."""
        first = self.owner("a", 1)
        first._cluster.maxPayload = HEADROOM + 100
        self.completed(first.carryOut(self.commit(bytes(300))))
        second = self.log(None, "b", 2)
        pieces, self.stream.pieces = self.stream.pieces, self.stream.pieces[: FENCE + 2]
        fenced = self.begin(second.fence())
        self.pass_(1.0)
        self.assertNoResult(fenced)
        self.assertTrue(self.copy.incomplete)
        self.stream.pieces = pieces
        self.pass_(1.0)
        self.successResultOf(fenced)
        self.assertEqual((self.copy.sequence, self.copy.next), (len(pieces), 2))

    def test_stopped(self) -> None:
        """A log that is stopped while it asks how full the stream is has not taken over, and appends nothing."""
        log = self.log()
        fenced = self.begin(log.fence())
        while not self.sent:
            self.pass_(0.01)
        log.stop()
        self.pass_(0.1)
        self.failureResultOf(fenced, Deposed)
        stopped = self.begin(log.carryOut(self.commit(b"one")))
        self.pass_(0.1)
        self.failureResultOf(stopped, Deposed)
        self.assertEqual(len(self.stream.pieces), FENCE)

    def test_ahead(self) -> None:
        """A copy that has more than the stream does not become an owner's."""
        log = self.owner()
        self.completed(log.carryOut(self.commit(b"one")))
        del self.stream.pieces[FENCE:]
        again = self.openCopy(self.copy._files)  # type: ignore[arg-type]
        fenced = self.begin(self.log(again, "a", 2).fence())
        self.pass_(1.0)
        self.assertIn("more than the stream", str(self.failureResultOf(fenced, ReplicaError).value))
        self.assertEqual(len(self.stream.pieces), FENCE)


class AppendTests(StoreCase):
    """StreamLog.carryOut, of an owner whose stream has one frame."""

    def setUp(self) -> None:
        super().setUp()
        self.owned = self.owner()
        self.sent.clear()

    def carryOut(self, *payloads: bytes) -> Deferred[None]:
        """Begin a commit."""
        self.made = self.commit(*payloads)
        return self.begin(self.owned.carryOut(self.made))

    def test_committed(self) -> None:
        """Stream and copy have the frames, without flag 1; the commit has their positions."""
        before = self.clock.seconds()
        committed = self.carryOut(b"one")
        self.pass_(0.02)
        self.successResultOf(committed)
        header = headersOf(self.stream.pieces)[1]
        self.assertEqual(header.flags, 0)
        self.assertEqual([position for position, _ in self.made.written], [header.position])
        self.assertEqual((self.made.end, self.made.reason), (self.copy.end, None))
        self.assertEqual(self.copy.end, header.position + header.length)
        self.assertEqual(self.sent, [before])

    def test_copyLater(self) -> None:
        """The copy is not written before the stream has answered."""
        end = self.copy.end
        self.servers.cutIn.add("a")
        self.carryOut(b"one")
        self.pass_(1.0)
        self.assertEqual((len(self.stream.pieces), self.copy.end), (FENCE + 1, end))

    def test_lostAnswer(self) -> None:
        """After a lost answer the slot has these bytes: committed, once, without a sign of life."""
        self.servers.cutIn.add("a")
        committed = self.carryOut(b"one")
        self.pass_(1.0)
        self.servers.heal()
        self.pass_(1.5)
        self.successResultOf(committed)
        ends = FENCE + 1, FENCE + 1, None
        self.assertEqual((len(self.stream.pieces), self.copy.sequence, self.made.reason), ends)
        self.assertEqual(self.sent, [])

    def test_emptySlot(self) -> None:
        """An old read that shows no message proves nothing: the same bytes are sent again, until it is certain."""
        self.servers.faults.old = 1.0
        self.servers.cutIn.add("a")
        committed = self.carryOut(b"one")
        self.pass_(1.0)
        self.servers.cutIn.clear()
        self.pass_(20.0)
        self.assertNoResult(committed)
        self.servers.faults.old = 0.0
        self.pass_(1.0)
        self.successResultOf(committed)
        self.assertEqual(len(self.stream.pieces), FENCE + 1)

    def test_lateLanding(self) -> None:
        """A late copy of a request is stored once; if another owner was faster, it is not stored at all."""
        self.servers.faults.late = 1.0
        late = self.carryOut(b"one")
        self.pass_(0.001)
        self.servers.faults.late = 0.0
        self.pass_(25.0)
        self.successResultOf(late)
        self.assertEqual(len(self.stream.pieces), FENCE + 1)
        self.servers.cutOut.add("a")
        self.servers.faults.late = 1.0
        late = self.carryOut(b"two")
        self.pass_(0.001)
        self.servers.faults.late = 0.0
        self.owner("b", 2)
        self.pass_(25.0)
        self.assertNoResult(late)
        self.servers.heal()
        self.pass_(5.0)
        self.failureResultOf(late, Deposed)
        self.assertEqual([header.kind for header in headersOf(self.stream.pieces)], [0, 1, 0])

    def test_deposed(self) -> None:
        """Another owner's message in the slot ends it without a result."""
        copy = self.copy
        self.owner("b", 2)
        self.copy = copy
        end = copy.end
        deposed = self.carryOut(b"one")
        self.pass_(1.0)
        self.failureResultOf(deposed, Deposed)
        self.assertEqual((self.made.reason, copy.end), (None, end))

    def test_wrongSlot(self) -> None:
        """An answer with another sequence than the expected one ends it."""
        self.patch(MemoryCluster, "append", lambda *ignored: succeed(7))
        self.failureResultOf(self.carryOut(b"one"), Deposed)

    def test_full(self) -> None:
        """A certain refusal is the commit's result, and that of all later ones: this node gives the shard up."""
        self.servers.room = 1
        refused = self.carryOut(b"one")
        self.pass_(0.1)
        self.successResultOf(refused)
        self.assertEqual((self.made.reason, len(self.stream.pieces)), ("the stream is full", FENCE))
        self.servers.room = 0
        self.completed(self.owned.carryOut(later := self.commit(b"two")))
        self.assertEqual((later.reason, len(self.stream.pieces)), ("the stream is full", FENCE))

    def test_fullBeforeOthers(self) -> None:
        """A refusal is no result while a later commit is under way, which might fit in its place."""
        self.servers.room = 1
        refused = self.carryOut(b"one")
        made = self.made
        self.carryOut(b"two")
        self.pass_(0.1)
        self.assertIn("later commits", str(self.failureResultOf(refused, Deposed).value))
        self.assertIsNone(made.reason)

    def test_severalUnderWay(self) -> None:
        """Commits are sent before those before them are stored, and written to the copy in their order."""
        commits = [self.carryOut(b"%d" % number) for number in range(3)]
        self.assertEqual(self.owned._under, 3)
        self.pass_(5)
        for each in commits:
            self.successResultOf(each)
        self.assertEqual((len(headersOf(self.stream.pieces)), self.copy.sequence), (4, FENCE + 3))

    def test_laterFirst(self) -> None:
        """If the first of several requests is late, the others wait for it, and are stored in their order."""
        self.servers.faults.late = 1.0
        late = self.carryOut(b"one")
        self.servers.faults.late = 0.0
        other = self.carryOut(b"two")
        self.pass_(0.3)
        self.assertNoResult(other)
        self.pass_(30)
        self.successResultOf(late)
        self.successResultOf(other)
        self.assertEqual(self.copy.sequence, FENCE + 2)

    def test_fencedOut(self) -> None:
        """A late request of a deposed owner, which expects its own commits before it, does not fit after the fence."""
        self.servers.cutOut.add("a")
        self.servers.faults.late = 1.0
        for number in range(MOST):
            self.carryOut(b"%d" % number)
        self.servers.faults.late = 0.0
        self.owner("b", 2)
        copy = self.copy
        self.pass_(30)
        self.completed(self.log(copy, "b", 3).fence())
        kinds = [header.kind for header in headersOf(self.stream.pieces)]
        self.assertNotIn(FrameKind.RECORDS, kinds)
        self.assertEqual(len(self.stream.pieces), copy.sequence)

    def test_manyMessages(self) -> None:
        """A commit is not sent while those before it have as many messages as a fence, or more."""
        self.servers.maxPayload = HEADROOM + 100
        self.owned._cluster = self.cluster()
        large = self.carryOut(bytes(100 * FENCE))
        small = self.carryOut(b"small")
        self.assertGreater(self.owned._under, FENCE)
        sent = len(self.clock.getDelayedCalls())
        self.pass_(0.1)
        self.successResultOf(large)
        self.successResultOf(small)
        self.assertLess(sent, 4)

    def test_mostUnderWay(self) -> None:
        """One commit is under way where the stream may become full, and beside nodes of earlier versions."""
        self.assertEqual(self.owned.most, MOST)
        self.owned._mayHurry = lambda: False
        self.assertEqual(self.owned.most, 1)
        self.owned._mayHurry = lambda: True
        self.owned._limit, self.owned._left = 800, 201
        self.assertEqual(self.owned.most, MOST)
        self.owned._left = 200
        self.assertEqual(self.owned.most, 1)

    def test_fullButUncertain(self) -> None:
        """A refusal is no result while an earlier copy of the request may land."""
        self.servers.faults.late = 1.0
        uncertain = self.carryOut(b"one")
        self.pass_(0.001)
        self.servers.faults.late = 0.0
        self.servers.room = 1
        self.pass_(25.0)
        self.assertNoResult(uncertain)
        self.servers.room = 0
        self.pass_(1.0)
        self.successResultOf(uncertain)
        self.assertIsNone(self.made.reason)

    def test_stopped(self) -> None:
        """After a stop nothing is concluded, written or sent, even if the answer comes."""
        end = self.copy.end
        stopped = self.carryOut(b"one")
        self.owned.stop()
        self.pass_(0.1)
        self.failureResultOf(stopped, Deposed)
        self.assertEqual((self.copy.end, self.sent), (end, []))
        stopped = self.carryOut(b"one")
        self.pass_(5.0)
        self.failureResultOf(stopped, Deposed)

    def test_copyFails(self) -> None:
        """If the copy cannot be written, there is no result either: the stream has the commit."""
        self.copy._files.failing = "write"  # type: ignore[attr-defined]
        failed = self.carryOut(b"one")
        self.pass_(0.1)
        self.failureResultOf(failed, ReplicaError)
        self.assertFalse(self.copy.usable)

    def test_pieces(self) -> None:
        """A commit above the size of a message is stored in pieces; the slot of the first decides."""
        self.servers.maxPayload = HEADROOM + 100
        self.owned._cluster = self.cluster()
        self.servers.cutIn.add("a")
        committed = self.carryOut(bytes(250))
        self.pass_(1.0)
        self.servers.heal()
        self.pass_(2.0)
        self.successResultOf(committed)
        pieces = self.stream.pieces[FENCE:]
        self.assertEqual([piece.left for piece in pieces], list(range(len(pieces)))[::-1])
        self.assertGreater(len(pieces), 3)
        self.assertEqual((self.copy.sequence, self.copy.end), (FENCE + len(pieces), pieces[0].end))

    def test_tooLarge(self) -> None:
        """A commit of more than a thousand pieces is refused, and nothing is sent."""
        self.servers.maxPayload = HEADROOM + 1
        self.owned._cluster = self.cluster()
        refused = self.carryOut(bytes(2000))
        self.successResultOf(refused)
        self.assertIn("too large for the cluster", self.made.reason or "")

    def test_empty(self) -> None:
        """A commit without content appends a NOTES frame without notes."""
        self.completed(self.owned.carryOut(self.commit()))
        header = headersOf(self.stream.pieces)[1]
        self.assertEqual((header.kind, header.count), (FrameKind.NOTES, 0))

    def test_opening(self) -> None:
        """A commit may begin a segment, which names node and term as well."""
        made = self.commit(b"one")
        made.opening = SegmentOpening(JOURNAL, Snapshot({}, (), 0, 1, TIME), 1)
        self.completed(self.owned.carryOut(made))
        self.assertEqual([header.kind for header in headersOf(self.stream.pieces[FENCE:])], [0, 7, 1])
        header, frame = completeFrame(self.stream.pieces[FENCE].data)
        self.assertEqual(readBody(header, frame, FrameKind.SEGMENT)["term"], 1)
        self.assertEqual(made.begun and made.begun[0], self.stream.pieces[0].end)

    def test_time(self) -> None:
        """The clock of a new owner may be behind: times never go back."""
        log = self.owner("b", 2, now=5)
        self.assertEqual(log.now(), TIME)


class WorkerTests(StoreCase):
    """StreamWorker."""

    def setUp(self) -> None:
        super().setUp()
        self.ended: list[Exception] = []
        self.done: list[str] = []
        self.worker = StreamWorker(self.clock, self.ended.append)
        self.worker.start()

    def hand(self, name: str, work: Callable[[], object]) -> None:
        """Hand over a piece of work."""
        self.worker.hand(work, lambda: self.done.append(name))

    def test_order(self) -> None:
        """Work begins at once, and is reported when the work before has ended, whether it waits or not."""
        first: Deferred[Any] = Deferred()
        begun: list[str] = []
        self.hand("first", lambda: first)
        self.hand("second", lambda: begun.append("second"))
        self.assertEqual((begun, self.done), (["second"], []))
        first.callback(None)
        self.assertEqual((begun, self.done), (["second"], ["first", "second"]))

    def test_ends(self) -> None:
        """After an error it says so once, and reports nothing any more."""
        first: Deferred[Any] = Deferred()
        self.hand("first", lambda: first)
        self.hand("second", lambda: None)
        first.errback(Failure(Deposed("another")))
        self.hand("third", lambda: None)
        self.assertEqual((self.done, [str(error) for error in self.ended]), ([], ["another"]))

    def test_stop(self) -> None:
        """After a stop neither results, errors nor reminders are reported."""
        first: Deferred[Any] = Deferred()
        self.hand("first", lambda: first)
        self.worker.remind(1.0, lambda: self.done.append("reminder"))
        self.assertFalse(self.worker.stop(0))
        self.clock.advance(2)
        first.errback(Failure(Unknown("gone")))
        self.assertEqual((self.done, self.ended, self.worker.drain()), ([], [], False))
        self.assertTrue(self.worker.stop(0))

    def test_reminder(self) -> None:
        """A reminder comes after its delay."""
        self.worker.remind(1.0, lambda: self.done.append("reminder"))
        self.clock.advance(0.9)
        self.assertEqual(self.done, [])
        self.clock.advance(0.2)
        self.assertEqual(self.done, ["reminder"])
