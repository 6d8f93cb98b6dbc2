"""The way back to whole frames is found behind any damage, and a payload never passes for a frame."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files.frame_scan import Window, frameAt, nextFrame
from fleximq.journal.format.column_builder import AppendedRun
from fleximq.journal.format.frame import FrameError, seal
from fleximq.journal.format.record_columns import encodeRecords
from fleximq.values.records import Run
from tests.journal.recorder import Recorder

BASE = 1024
SEGMENT = 0x1122334455667788


def sealed(*payloads: bytes, position: int, previous: int = 0, segment: int = SEGMENT) -> tuple[bytes, int]:
    """Return a frame with these payloads, as it is written at a position, and its crc."""
    (frame,) = encodeRecords([AppendedRun("t", 1, "p", 1, 5, Run(b"", list(payloads), 1))], 1)
    buffers, crc = seal(frame, segment, position, previous)
    return b"".join(buffers), crc


class NextFrameTests(SynchronousTestCase):
    """Three frames, the middle one of which is damaged."""

    def setUp(self) -> None:
        self.made(b"middle" * 30)

    def made(self, payload: bytes) -> None:
        """Make the frames, the middle one with this payload."""
        self.first, crc = sealed(b"first", position=BASE)
        self.at = BASE + len(self.first)
        self.middle, crc = sealed(payload, position=self.at, previous=crc)
        self.behind = self.at + len(self.middle)
        self.last, _ = sealed(b"last", position=self.behind, previous=crc)

    def window(self, middle: bytes, last: bytes | None = None) -> Window:
        """Return a view of the frames with another middle one."""
        content = self.first + middle + (self.last if last is None else last)
        disk = Recorder()
        descriptor = disk.create("/f")
        disk.write(descriptor, [content], 0)
        return Window(disk, descriptor, BASE, BASE + len(content), 256)

    def test_whole(self) -> None:
        """What is whole is given, with all its bytes."""
        header, frame = frameAt(self.window(self.middle), self.at, SEGMENT)
        self.assertEqual((header.position, bytes(frame)), (self.at, self.middle))

    def test_everyFlippedBit(self) -> None:
        """Whichever bit of the middle frame is wrong, it is no frame, and the last one is found."""
        for bit in range(len(self.middle) * 8):
            wrong = bytearray(self.middle)
            wrong[bit // 8] ^= 1 << bit % 8
            window = self.window(bytes(wrong))
            with self.assertRaises(FrameError):
                frameAt(window, self.at, SEGMENT)
            self.assertEqual(nextFrame(window, self.at, SEGMENT), self.behind)

    def test_overwritten(self) -> None:
        """Where nothing of a frame is left, the next one is found."""
        for filler in (b"\0", b"F", b"FXJ1"):
            middle = (filler * len(self.middle))[: len(self.middle)]
            self.assertEqual(nextFrame(self.window(middle), self.at, SEGMENT), self.behind)

    def test_nothingBehind(self) -> None:
        """Where nothing whole is left, nothing is found."""
        self.assertIsNone(nextFrame(self.window(self.middle[:-1], b""), self.at, SEGMENT))
        self.assertIsNone(nextFrame(self.window(self.middle[:-1], self.last[:-1]), self.at, SEGMENT))

    def around(self, segment: int, shift: int) -> tuple[int, bytes]:
        """Make the middle frame's payload begin with a frame; return the place at which that really stands.

        :param shift: how far from there it says that it stands.
        """
        inner, _ = sealed(b"never", position=0, segment=segment)
        for pad in range(8):
            self.made(bytes(pad) + inner + bytes(16 - pad))
            place = self.at + self.middle.index(inner)
            if place % 8 == 0:
                break
        inner, _ = sealed(b"never", position=place + shift, segment=segment)
        self.made(bytes(pad) + inner + bytes(16 - pad))
        return place, inner

    def test_payloadLikeAFrame(self) -> None:
        """A payload that is a frame, but of another segment or another place, is passed over."""
        for segment, shift in ((SEGMENT + 1, 0), (SEGMENT, 8), (SEGMENT, -BASE)):
            place, inner = self.around(segment, shift)
            self.assertEqual(self.window(self.middle).at(place, len(inner)), inner)
            wrong = bytearray(self.middle)
            wrong[0] ^= 1
            self.assertEqual(nextFrame(self.window(bytes(wrong)), self.at, SEGMENT), self.behind)

    def test_payloadExactlyLikeAFrame(self) -> None:
        """Even one that has it all right is passed over, as long as the frame around it still says how long it is."""
        place, inner = self.around(SEGMENT, 0)
        self.assertEqual(frameAt(self.window(self.middle), place, SEGMENT)[1], inner)
        wrong = bytearray(self.middle)
        wrong[-1] ^= 1
        self.assertEqual(nextFrame(self.window(bytes(wrong)), self.at, SEGMENT), self.behind)

    def test_says(self) -> None:
        """What is wrong is said."""
        window = self.window(self.middle)
        with self.assertRaisesRegex(FrameError, "is of segment 1122334455667788, not 0000000000000001"):
            frameAt(window, self.at, 1)
        moved = self.window(self.last)
        with self.assertRaisesRegex(FrameError, f"it says that it stands at {self.behind}"):
            frameAt(moved, self.at, SEGMENT)
        with self.assertRaisesRegex(FrameError, "behind the end of its segment"):
            frameAt(self.window(self.middle[:-8], b""), self.at, SEGMENT)
