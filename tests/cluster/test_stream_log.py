"""fleximq.cluster.stream_log: what an owner concludes from answers, lost answers and the slot."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from fleximq.cluster.interfaces import HEADROOM, Deposed, Piece, Unknown
from fleximq.cluster.stream_log import StreamWorker
from fleximq.cluster.stream_replica import ReplicaError
from fleximq.journal.format.body import readBody
from fleximq.journal.format.frame import FrameKind, completeFrame
from fleximq.journal.writing.commit import SegmentOpening, Snapshot
from tests.cluster.memory import MemoryCluster
from tests.cluster.store_case import StoreCase, headersOf
from tests.journal.frames import JOURNAL, TIME


class FenceTests(StoreCase):
    """StreamLog.fence."""

    def test_first(self) -> None:
        """The first message is a SEGMENT frame with node and term; the copy has it too."""
        self.owner("east-1", 7)
        header, frame = completeFrame(self.stream.pieces[0].data)
        self.assertEqual(
            readBody(header, frame, FrameKind.SEGMENT),
            {"journal": JOURNAL, "created": TIME, "node": "east-1", "term": 7},
        )
        self.assertEqual((self.copy.sequence, self.copy.end, self.copy.next), (1, header.length, 1))

    def test_readsAll(self) -> None:
        """A new owner reads what its copy lacks first, and the frames of both follow each other."""
        first = self.owner("a", 1)
        self.completed(first.carryOut(self.commit(b"one", b"two")))
        self.owner("b", 2)
        self.assertEqual((self.copy.sequence, self.copy.next), (3, 3))
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
        self.assertEqual((copy.sequence, copy.next), (3, 2))

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
        self.assertEqual((self.copy.sequence, self.copy.next), (62, 61))
        self.assertEqual(single[0], 62)

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
        self.assertLess(self.copy.sequence, 20)
        self.assertEqual(self.servers.feeds, [])

    def test_setBack(self) -> None:
        """A stream that ends before the copy cannot be fenced; an owner whose stream was set back learns it."""
        first = self.owner("a", 1)
        for number in range(3):
            self.completed(first.carryOut(self.commit(b"%d" % number)))
        del self.stream.pieces[2:]
        fenced = self.begin(self.log(self.copy, "a", 2).fence())
        self.pass_(10)
        self.assertIn("ends with message 2, but this copy has 4", str(self.failureResultOf(fenced, ReplicaError).value))
        for _ in range(7):
            self.completed(first.look())
        looked = self.begin(first.look())
        self.pass_(1)
        self.assertIn("ends with message 2, but", str(self.failureResultOf(looked, ReplicaError).value))

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
        pieces, self.stream.pieces = self.stream.pieces, self.stream.pieces[:3]
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
        self.assertEqual(len(self.stream.pieces), 1)

    def test_ahead(self) -> None:
        """A copy that has more than the stream does not become an owner's."""
        log = self.owner()
        self.completed(log.carryOut(self.commit(b"one")))
        del self.stream.pieces[1:]
        again = self.openCopy(self.copy._files)  # type: ignore[arg-type]
        fenced = self.begin(self.log(again, "a", 2).fence())
        self.pass_(1.0)
        self.assertIn("more than the stream", str(self.failureResultOf(fenced, ReplicaError).value))
        self.assertEqual(len(self.stream.pieces), 1)


class AppendTests(StoreCase):
    """StreamLog.carryOut, of an owner whose stream has one message."""

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
        self.assertEqual((len(self.stream.pieces), self.copy.end), (2, end))

    def test_lostAnswer(self) -> None:
        """After a lost answer the slot has these bytes: committed, once, without a sign of life."""
        self.servers.cutIn.add("a")
        committed = self.carryOut(b"one")
        self.pass_(1.0)
        self.servers.heal()
        self.pass_(1.5)
        self.successResultOf(committed)
        self.assertEqual((len(self.stream.pieces), self.copy.sequence, self.made.reason), (2, 2, None))
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
        self.assertEqual(len(self.stream.pieces), 2)

    def test_lateLanding(self) -> None:
        """A late copy of a request is stored once; if another owner was faster, it is not stored at all."""
        self.servers.faults.late = 1.0
        late = self.carryOut(b"one")
        self.pass_(0.001)
        self.servers.faults.late = 0.0
        self.pass_(25.0)
        self.successResultOf(late)
        self.assertEqual(len(self.stream.pieces), 2)
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
        """A certain refusal is the commit's result, and the next commit takes its place."""
        self.servers.room = 1
        refused = self.carryOut(b"one")
        self.pass_(0.1)
        self.successResultOf(refused)
        self.assertEqual((self.made.reason, len(self.stream.pieces)), ("the stream is full", 1))
        self.servers.room = 0
        self.completed(self.owned.carryOut(self.commit(b"two")))
        self.assertEqual(len(headersOf(self.stream.pieces)), 2)

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
        pieces = self.stream.pieces[1:]
        self.assertEqual([piece.left for piece in pieces], list(range(len(pieces)))[::-1])
        self.assertGreater(len(pieces), 3)
        self.assertEqual((self.copy.sequence, self.copy.end), (1 + len(pieces), pieces[0].end))

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
        self.assertEqual([header.kind for header in headersOf(self.stream.pieces[1:])], [0, 7, 1])
        header, frame = completeFrame(self.stream.pieces[1].data)
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
        """Work begins when the work before has ended, whether it waits or not."""
        first: Deferred[Any] = Deferred()
        begun: list[str] = []
        self.hand("first", lambda: first)
        self.hand("second", lambda: begun.append("second"))
        self.assertEqual((begun, self.done), ([], []))
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
