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

    def forget(self, descriptor: int, start: int, size: int) -> None:
        """Note it, and do it."""
        self.forgotten.append((start, size))
        super().forget(descriptor, start, size)


class ForgettingTests(SynchronousTestCase):
    """Ten bytes are remembered, and forgotten are a hundred at once."""

    def setUp(self) -> None:
        self.patch(active_segment, "CACHED_BYTES", 10)
        self.patch(active_segment, "_PORTION", 100)
        self.folder = self.mktemp()
        os.mkdir(self.folder)
        self.files = Forgetful()
        self.segment = ActiveSegment(self.files, self.folder, 4096, 1)

    def write(self, length: int) -> None:
        """Write one frame of this length."""
        self.segment.write([Frame(FrameKind.NOTES, [bytes(length - 64)])])

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
