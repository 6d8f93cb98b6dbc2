"""How far the journal goes is told to other processes whole or not at all."""

import os
from struct import Struct

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files.file_system import Files, readFile
from fleximq.journal.files.folder_files import DurableEnd, readEnd

NUMBERS = st.integers(0, 2**63 - 1)


class DurableEndTests(SynchronousTestCase):
    """On a real folder."""

    def setUp(self) -> None:
        self.folder = self.mktemp()
        os.mkdir(self.folder)
        self.end = DurableEnd(Files(), self.folder)
        self.addCleanup(self.end.close)

    def content(self) -> bytes:
        """Return the file as another process sees it."""
        return readFile(Files(), f"{self.folder}/end")

    def test_unpublished(self) -> None:
        """A new file says nothing yet."""
        self.assertEqual((len(self.content()), readEnd(self.content())), (64, None))

    def test_published(self) -> None:
        """What was published last is what is read, and it stands where the format says."""
        self.end.publish(1, 2, 3)
        self.end.publish(0x0102, 0x0304, 5)
        self.assertEqual(readEnd(self.content()), (0x0102, 0x0304, 5))
        magic, turn, position, offset, time, last = Struct("<8sQQQq16xQ").unpack(self.content())
        self.assertEqual((magic, turn, position, offset, time, last), (b"FXJE0001", 4, 0x0102, 0x0304, 5, 4))

    def test_again(self) -> None:
        """The next broker uses the same file."""
        self.end.publish(1, 2, 3)
        other = DurableEnd(Files(), self.folder)
        self.addCleanup(other.close)
        other.publish(7, 8, 9)
        self.assertEqual(readEnd(self.content()), (7, 8, 9))

    def test_foreign(self) -> None:
        """Other bytes, too few and too many are nothing."""
        self.end.publish(1, 2, 3)
        content = self.content()
        for wrong in (b"", content[:-1], content + b"\0", b"X" + content[1:]):
            self.assertIsNone(readEnd(wrong))

    @given(st.tuples(NUMBERS, NUMBERS, NUMBERS), st.tuples(NUMBERS, NUMBERS, NUMBERS), st.integers(0, 63))
    def test_torn(self, old: tuple[int, int, int], new: tuple[int, int, int], place: int) -> None:
        """Whoever reads in the middle of it gets the old, the new, or nothing, wherever the middle is."""
        memory = bytearray(64)
        seen: list[object] = []

        class Watched(DurableEnd):
            def __init__(self) -> None:
                self._memory = memory  # type: ignore[assignment]
                self._turn = 0

        end = Watched()
        end.publish(*old)
        before = bytes(memory)
        end.publish(*new)
        after = bytes(memory)
        for mixed in (before[:place] + after[place:], after[:place] + before[place:]):
            seen.append(readEnd(mixed))
        self.assertLessEqual(set(seen), {None, old, new})
