"""Frames: sealed, checked, and refused when anything in them was changed."""

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.format.control_frames import REMOVED_BYTES
from fleximq.journal.format.frame import (
    HEADER_BYTES,
    SYNCED,
    Frame,
    FrameError,
    FrameHeader,
    FrameKind,
    checkFrame,
    completeFrame,
    readHeader,
    reseal,
    seal,
)
from tests.journal.frames import SEGMENT, chained, everyKind, read, written

U32, U64, I64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)


class SealTests(SynchronousTestCase):
    """Frames that get their place."""

    @given(st.sampled_from(FrameKind), st.integers(1, 3), U32, U64, I64, I64)
    def test_thereAndBack(self, kind: FrameKind, size: int, count: int, offset: int, first: int, last: int) -> None:
        """All that a frame says, and its place, is in its header; its pieces are its body."""
        pieces = [bytes([number]) * 8 for number in range(size)]
        frame = Frame(kind, pieces, count=count, baseOffset=offset, firstTime=first, lastTime=last)
        buffers, crc = seal(frame, SEGMENT, 4096, 77, synced=True)
        header, view = completeFrame(b"".join(buffers))
        length = HEADER_BYTES + 8 * len(pieces)
        wanted = FrameHeader(1, kind, SYNCED, length, crc, 77, count, SEGMENT, 4096, offset, first, last)
        self.assertEqual(header, wanted)
        self.assertEqual(view[HEADER_BYTES:], b"".join(pieces))

    def test_noCopies(self) -> None:
        """The buffers of the body are the frame's own."""
        frame = Frame(FrameKind.GAP, [b"12345678", b"abcdefgh"])
        self.assertEqual([id(each) for each in seal(frame, 1, 2, 3)[0][1:]], [id(each) for each in frame.pieces])

    def test_crc(self) -> None:
        """The check sum is the common one of zlib over all but itself."""
        raw = written(everyKind()[2])
        self.assertEqual(readHeader(raw).crc, crc32(raw[:12] + raw[16:]))

    def test_chain(self) -> None:
        """Each frame of a segment has the check sum of the one before it, the first has 0."""
        headers = [readHeader(each) for each in chained(everyKind())]
        self.assertEqual([each.previous for each in headers], [0, *(each.crc for each in headers[:-1])])

    def test_reseal(self) -> None:
        """A frame can be chained to another one, and is the same as if it had been in the first place."""
        for frame in everyKind():
            again, crc = reseal(written(frame, 4096, 5, synced=True), 6)
            self.assertEqual(again, written(frame, 4096, 6, synced=True))
            self.assertEqual(readHeader(again).crc, crc)

    def test_smallest(self) -> None:
        """Whatever kind a frame is of, a REMOVED frame has room in its place."""
        self.assertEqual(REMOVED_BYTES, HEADER_BYTES + 8)
        self.assertEqual([each.length for each in everyKind() if each.length < REMOVED_BYTES or each.length % 8], [])


class RefusalTests(SynchronousTestCase):
    """Bytes that are no frames."""

    def test_everyBit(self) -> None:
        """A frame of any kind in which one bit was changed is refused, whichever it is."""
        for raw in chained(everyKind(), 1 << 20):
            for bit in range(8 * len(raw)):
                changed = bytearray(raw)
                changed[bit // 8] ^= 1 << bit % 8
                self.assertRaises(FrameError, completeFrame, changed)

    def test_everyCut(self) -> None:
        """A frame of any kind that was cut off is refused, wherever."""
        for raw in chained(everyKind()):
            for size in range(len(raw)):
                self.assertRaises(FrameError, completeFrame, raw[:size])

    def test_behind(self) -> None:
        """What stands before and behind a frame does not matter."""
        raw = written(everyKind()[0])
        header, view = completeFrame(b"before!!" + raw + b"behind", 8)
        self.assertEqual(view, raw)
        self.assertEqual(header, readHeader(raw))

    @given(st.binary(max_size=100))
    def test_anything(self, raw: bytes) -> None:
        """Any bytes are a frame or refused, and nothing else."""
        self.assertRaises(FrameError, completeFrame, raw)

    @given(st.binary(min_size=HEADER_BYTES, max_size=200))
    def test_anythingWithMagic(self, raw: bytes) -> None:
        """Even when they begin as a frame does."""
        self.assertRaises(FrameError, completeFrame, b"FXJ1\x01\x00" + raw)

    def refusal(self, place: int, *changed: int) -> str:
        """Return why a header is refused that has these bytes at a place."""
        raw = bytearray(written(everyKind()[0]))
        raw[place : place + len(changed)] = bytes(changed)
        return str(self.assertRaises(FrameError, readHeader, raw))

    def test_words(self) -> None:
        """The refusal says what is wrong."""
        self.assertEqual(self.refusal(0, 0), "a frame begins with b'FXJ1', not with b'\\x00XJ1'")
        self.assertEqual(self.refusal(4, 2), "version 2 of the format is not known, only 1")
        self.assertEqual(self.refusal(7, 3), "the flags 3 are not known, only 1")
        for length in (0, 64, 73, 0x80000000):
            words = f"a frame cannot have {length} bytes"
            self.assertEqual(self.refusal(8, *length.to_bytes(4, "little")), words)
        self.assertEqual(
            str(self.assertRaises(FrameError, readHeader, b"FXJ1")), "4 bytes are no frame header, it has 64"
        )

    def test_wordsOfChecks(self) -> None:
        """So does that of a whole frame."""
        header, raw = read(written(everyKind()[0]))
        changed = raw[:-1] + b"\x01"
        self.assertEqual(str(self.assertRaises(FrameError, checkFrame, header, changed)), "the check sum is wrong")
        words = str(self.assertRaises(FrameError, checkFrame, header, raw[:-8]))
        self.assertEqual(words, f"the frame has {len(raw) - 8} bytes instead of {len(raw)}")
