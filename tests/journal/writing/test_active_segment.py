"""What was written to a segment stays in the system's memory for a while only."""

import os
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files.file_system import readFile
from fleximq.journal.files.segment_table import segmentName
from fleximq.journal.format.frame import Frame, FrameKind
from fleximq.journal.writing import active_segment
from fleximq.journal.writing.active_segment import ActiveSegment
from tests.journal.faulty_files import FaultyFiles


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
        self.patch(active_segment, "CACHED_BYTES", 10)
        self.patch(active_segment, "_PORTION", 100)
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
        self.patch(active_segment, "_WRITTEN_BYTES", 200)

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
