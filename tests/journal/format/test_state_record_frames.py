"""NOTES frames: every note comes back, and what is none is refused."""

from array import array
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.format.body import frameOf
from fleximq.journal.format.control_frames import decodeStateRecords, encodeStateRecords
from fleximq.journal.format.frame import Frame, FrameError, FrameKind
from fleximq.values.state_records import (
    ClientIdsReserved,
    GroupForgotten,
    GroupProgress,
    QueueAcknowledged,
    QueueClosed,
    QueueDelivered,
    QueueOpened,
    RepeatDefined,
    SchedulesEnded,
    StateRecord,
)
from tests.journal.frames import TIME, everyKind, read, written

U64 = st.integers(0, 2**64 - 1)
OFFSETS = st.lists(U64, max_size=5).map(lambda offsets: array("Q", offsets))
NOTES = st.lists(
    st.one_of(
        st.builds(QueueOpened, st.text(), st.text(), st.integers(0, 1), U64, st.none() | st.text(), U64),
        st.builds(QueueClosed, st.text()),
        st.builds(QueueDelivered, st.text(), U64, OFFSETS, U64),
        st.builds(QueueAcknowledged, st.text(), OFFSETS),
        st.builds(ClientIdsReserved, U64),
        st.builds(GroupProgress, st.text(), U64, U64, U64),
        st.builds(GroupForgotten, st.text()),
        st.builds(SchedulesEnded, OFFSETS, OFFSETS),
        st.builds(RepeatDefined, st.text(), st.none() | st.dictionaries(st.text(), st.integers(0, 9) | st.binary())),
    ),
    max_size=8,
)


def decoded(frame: Frame) -> list[StateRecord]:
    """Return the notes of a frame that was written and read."""
    return decodeStateRecords(*read(written(frame)))


class NotesTests(SynchronousTestCase):
    """Notes, there and back."""

    @given(NOTES)
    def test_thereAndBack(self, notes: list[StateRecord]) -> None:
        """Each comes back as what it was."""
        frame = encodeStateRecords(notes, 5, TIME)
        found = decoded(frame)
        self.assertEqual(found, notes)
        self.assertEqual([type(note) for note in found], [type(note) for note in notes])
        self.assertEqual(
            (frame.kind, frame.count, frame.baseOffset, frame.lastTime), (FrameKind.NOTES, len(notes), 5, TIME)
        )

    def test_offsets(self) -> None:
        """Offsets may be given as any numbers; they come back as an array."""
        [note] = decoded(encodeStateRecords([QueueDelivered("k", 1, [4, 5])], 1, TIME))
        assert isinstance(note, QueueDelivered)
        self.assertEqual(note.again, array("Q", [4, 5]))

    def test_bytes(self) -> None:
        """An offset takes eight bytes, least first."""
        [piece] = encodeStateRecords([QueueAcknowledged("k", array("Q", [5]))], 1, TIME).pieces
        self.assertEqual(piece, b"\x91\x93\x03\xa1k\xc4\x08\x05" + bytes(7) + bytes(1))


class RefusalTests(SynchronousTestCase):
    """Bodies that hold no notes."""

    def refusal(self, *notes: Any) -> str:
        """Return why these are no notes."""
        frame = frameOf(FrameKind.NOTES, list(notes), 1, TIME, len(notes))
        return str(self.assertRaises(FrameError, decoded, frame))

    def test_kinds(self) -> None:
        """A note is an array that begins with a kind that is known."""
        note: Any
        for note in (5, {}, [], [12, 1], [-1, "k"], ["k"], [True, "k"], [None]):
            self.assertEqual(self.refusal(note), "a note must be an array that begins with its kind")

    def test_values(self) -> None:
        """It has as many values as its kind, each of its type."""
        for note, words in (
            ([1], "a note Closed has 1 values, not 0"),
            ([1, "k", 2], "a note Closed has 1 values, not 2"),
            ([1, b"k"], "'key' of a note Closed is wrong"),
            ([5, "g", -1, 1, 0], "'next' of a note Reached is wrong"),
            ([6, 1], "'group' of a note Forgotten is wrong"),
            ([0, "k", "t", 2, 1, None, 1], "'qos' of a note Opened is wrong"),
            ([0, "k", "t", True, 1, None, 1], "'qos' of a note Opened is wrong"),
            ([0, "k", "t", 1, -1, None, 1], "'id' of a note Opened is wrong"),
            ([0, "k", "t", 1, 1, 5, 1], "'owner' of a note Opened is wrong"),
            ([2, "k", 1.0, b"", 0], "'count' of a note HandedOut is wrong"),
            ([2, "k", 1, [1], 0], "'again' of a note HandedOut is wrong"),
            ([2, "k", 1, b"", None], "'time' of a note HandedOut is wrong"),
            ([3, "k", b"1234567"], "'offsets' of a note Acknowledged is wrong"),
            ([3, "k", "12345678"], "'offsets' of a note Acknowledged is wrong"),
            ([4, -1], "'until' of a note ClientIds is wrong"),
            ([7, b"12345678", b"1"], "'dues' of a note Cancelled is wrong"),
            ([8, "n", []], "'definition' of a note Repeated is wrong"),
        ):
            self.assertEqual(self.refusal([1, "fine"], note), words)

    def test_count(self) -> None:
        """There are as many as the header says."""
        frame = frameOf(FrameKind.NOTES, [[1, "k"]], 1, TIME, 2)
        self.assertEqual(str(self.assertRaises(FrameError, decoded, frame)), "there must be 2 notes")
        self.assertRaises(FrameError, decoded, frameOf(FrameKind.NOTES, {"a": 1}, 1, TIME, 1))

    def test_body(self) -> None:
        """The body is one value and less than eight zero bytes."""
        for body in (b"\x90" + bytes(15), b"\x90\x01" + bytes(6), b"\xc1" + bytes(7), b"\x92" + bytes(1) + b"\xdc" * 6):
            self.assertRaises(FrameError, decoded, Frame(FrameKind.NOTES, [body]))
        self.assertEqual(decoded(Frame(FrameKind.NOTES, [b"\x90" + bytes(7)])), [])

    def test_otherKind(self) -> None:
        """Every other kind of frame is refused."""
        for frame in everyKind():
            if frame.kind != FrameKind.NOTES:
                words = str(self.assertRaises(FrameError, decoded, frame))
                self.assertEqual(words, f"a frame of kind {frame.kind} is no NOTES")

    @given(st.binary(max_size=30))
    def test_anything(self, body: bytes) -> None:
        """Any bytes are notes or refused, and nothing else."""
        body += bytes(-len(body) % 8)
        try:
            found = decoded(Frame(FrameKind.NOTES, [body or bytes(8)], count=1))
        except FrameError:
            return
        self.assertEqual(len(found), 1)
