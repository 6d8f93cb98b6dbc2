"""The frames about the journal itself, there and back."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.format.body import frameOf
from fleximq.journal.format.control_frames import (
    Checkpoint,
    CommittedBatch,
    LostRange,
    OffsetGap,
    SegmentStart,
    Transaction,
    encodeCheckpoint,
    encodeGap,
    encodeRemoved,
    encodeSegment,
    encodeTransaction,
)
from fleximq.journal.format.frame import Frame, FrameError, FrameKind
from tests.journal.frames import DECODERS, JOURNAL, TIME, everyKind, read, written

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
COMMITTED = st.builds(CommittedBatch, st.text(), st.integers(-(2**63), 2**64 - 1), U64, U64)
SNAPSHOTS = st.recursive(
    st.none() | st.booleans() | U64 | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | U64, inner, max_size=3),
    max_leaves=6,
)


def decoded(frame: Frame) -> Any:
    """Return what a frame says that was written and read."""
    return DECODERS[frame.kind](*read(written(frame)))


class ThereAndBackTests(SynchronousTestCase):
    """What is written is read."""

    @given(U64, st.integers(0, 2**63 - 1))
    def test_segment(self, offset: int, created: int) -> None:
        """The journal's id and when the segment was made; the offset of the next record is in the header."""
        frame = encodeSegment(SegmentStart(JOURNAL, created), offset)
        self.assertEqual(decoded(frame), SegmentStart(JOURNAL, created))
        self.assertEqual((frame.kind, frame.baseOffset, frame.firstTime), (FrameKind.SEGMENT, offset, created))

    @given(st.text(), st.integers(-(2**63), 2**64 - 1), st.lists(U64).map(tuple), st.booleans(), U64, U32, I64)
    def test_transaction(
        self, query: str, batch: int, staged: tuple[int, ...], aborted: bool, offset: int, count: int, time: int
    ) -> None:
        """What was staged where; its offsets are in the header."""
        transaction = Transaction(query, batch, staged, aborted)
        frame = encodeTransaction(transaction, offset, count, time)
        self.assertEqual(decoded(frame), transaction)
        self.assertEqual((frame.baseOffset, frame.count, frame.lastTime), (offset, count, time))

    @given(U64, U64, I64)
    def test_gap(self, one: int, other: int, time: int) -> None:
        """The first missing offset and the first behind them."""
        gap = OffsetGap(*sorted((one, other)))
        frame = encodeGap(gap, time)
        self.assertEqual(decoded(frame), gap)
        self.assertEqual(frame.baseOffset, gap.first)

    @given(U64, st.booleans(), SNAPSHOTS, st.lists(COMMITTED, max_size=3).map(tuple))
    def test_checkpoint(self, replay: int, clean: bool, snapshot: Any, committed: tuple[CommittedBatch, ...]) -> None:
        """Whatever a snapshot is, it comes back, and so does the rest."""
        checkpoint = Checkpoint(replay, clean, snapshot, committed)
        self.assertEqual(decoded(encodeCheckpoint(checkpoint, 5, TIME)), checkpoint)

    @given(U64, U64, U64, U64)
    def test_lost(self, position: int, length: int, one: int, other: int) -> None:
        """The bytes and the offsets that are lost."""
        lost = LostRange(position, length, *sorted((one, other)))
        self.assertEqual(decoded(frameOf(FrameKind.LOST, lost._asdict(), 5, TIME)), lost)

    @given(st.integers(72, 2**64 - 1), U64, U32, I64, I64)
    def test_removed(self, until: int, offset: int, count: int, first: int, last: int) -> None:
        """Where the next frame is, and what was taken out."""
        frame = encodeRemoved(until, offset, count, first, last)
        self.assertEqual(decoded(frame), until)
        found = frame.baseOffset, frame.count, frame.firstTime, frame.lastTime
        self.assertEqual(found, (offset, count, first, last))

    def test_moreKeys(self) -> None:
        """Keys that are not known are passed over."""
        frame = frameOf(FrameKind.GAP, {"first": 3, "next": 9, "reason": "later"}, 3, TIME)
        self.assertEqual(decoded(frame), OffsetGap(3, 9))


class RefusalTests(SynchronousTestCase):
    """What is refused, and in which words."""

    def refusal(self, kind: FrameKind, **fields: Any) -> str:
        """Return why a frame with these fields is refused."""
        return str(self.assertRaises(FrameError, decoded, frameOf(kind, fields, 3, TIME)))

    def test_otherKinds(self) -> None:
        """A frame of another kind is refused by every reader."""
        for kind, decode in DECODERS.items():
            for frame in everyKind():
                if DECODERS[frame.kind] is not decode:
                    self.assertRaises(FrameError, decode, *read(written(frame)))
            self.assertIn(kind, {frame.kind for frame in everyKind()})

    def test_missing(self) -> None:
        """A field that is missing is named."""
        self.assertEqual(self.refusal(FrameKind.GAP, first=3), "the field 'next' is missing")
        self.assertEqual(
            self.refusal(FrameKind.CHECKPOINT, replay=3, clean=True, committed=[]), "the field 'snapshot' is missing"
        )

    def test_types(self) -> None:
        """So is one of a wrong type."""
        for kind, fields, name in (
            (FrameKind.GAP, {"first": "3", "next": 4}, "first"),
            (FrameKind.GAP, {"first": True, "next": 4}, "first"),
            (FrameKind.SEGMENT, {"journal": b"", "created": 1}, "journal"),
            (FrameKind.CHECKPOINT, {"replay": 1, "clean": 1, "snapshot": None, "committed": []}, "clean"),
            (FrameKind.TRANSACTION, {"query": 1, "batch": 1, "staged": [], "aborted": False}, "query"),
            (FrameKind.TRANSACTION, {"query": "q", "batch": 1, "staged": 5, "aborted": False}, "staged"),
        ):
            words = self.refusal(kind, **fields)
            self.assertEqual(words, f"the field {name!r} is of a wrong type")
        self.assertEqual(self.refusal(FrameKind.GAP, first=-3, next=4), "the field 'first' is no number from 0 on")

    def test_meaning(self) -> None:
        """What cannot be is refused."""
        for kind, fields, words in (
            (FrameKind.GAP, {"first": 3, "next": 2}, "a gap must begin at its frame's base offset and end behind it"),
            (FrameKind.GAP, {"first": 4, "next": 5}, "a gap must begin at its frame's base offset and end behind it"),
            (FrameKind.SEGMENT, {"journal": "x" * 32, "created": 1}, "the id of a journal has 32 hexadecimal digits"),
            (FrameKind.SEGMENT, {"journal": "a" * 31, "created": 1}, "the id of a journal has 32 hexadecimal digits"),
            (
                FrameKind.LOST,
                {"position": 1, "length": 2, "first": 4, "next": 3},
                "what is lost must end behind its beginning",
            ),
            (
                FrameKind.TRANSACTION,
                {"query": "q", "batch": 1, "staged": [-1], "aborted": False},
                "'staged' must be positions",
            ),
        ):
            self.assertEqual(self.refusal(kind, **fields), words)

    def test_committed(self) -> None:
        """A checkpoint's batches are queries, each with three numbers."""
        for each in (
            5,
            [],
            ["q", 1, 2],
            ["q", 1, 2, 3, 4],
            [5, 1, 2, 3],
            ["q", "1", 2, 3],
            ["q", 1, -2, 3],
            ["q", 1, 2, None],
        ):
            words = self.refusal(FrameKind.CHECKPOINT, replay=1, clean=True, snapshot=None, committed=[each])
            self.assertEqual(words, "'committed' must be of queries, each with batch, base and count")

    def test_noMap(self) -> None:
        """A body that is no map is refused."""
        for kind in (FrameKind.SEGMENT, FrameKind.TRANSACTION, FrameKind.GAP, FrameKind.CHECKPOINT, FrameKind.LOST):
            words = str(self.assertRaises(FrameError, decoded, frameOf(kind, [1], 3, TIME)))
            self.assertEqual(words, f"the body of a {kind.name} must be a map")

    def test_removed(self) -> None:
        """What was removed ends behind its frame, and the frame has just that to say."""
        decode: Callable[..., Any] = DECODERS[FrameKind.REMOVED]
        for until in (0, 4096, 4096 + 71):
            raw = written(encodeRemoved(until, 1, 1, 1, 1), 4096)
            words = str(self.assertRaises(FrameError, decode, *read(raw)))
            self.assertEqual(words, "what was removed must end behind its frame")
        self.assertEqual(decode(*read(written(encodeRemoved(4096 + 72, 1, 1, 1, 1), 4096))), 4096 + 72)
        self.assertRaises(FrameError, decode, *read(written(Frame(FrameKind.REMOVED, [bytes(16)]))))
