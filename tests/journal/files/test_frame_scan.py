"""A file seen in pieces looks as it does whole."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files.frame_scan import Window
from tests.journal.recorder import Recorder
from tests.nightly import repetitions

BASE = 4096


def window(content: bytes, size: int, end: int | None = None) -> Window:
    """Return a view of a file whose first byte is at BASE."""
    disk = Recorder()
    descriptor = disk.create("/f")
    disk.write(descriptor, [content], 0)
    return Window(disk, descriptor, BASE, BASE + len(content) if end is None else end, size)


class WindowTests(SynchronousTestCase):
    """Looking, and looking for something."""

    def test_at(self) -> None:
        """Any bytes can be looked at, in any order, whatever is fetched at once."""
        content = bytes(range(256))
        for size in (1, 7, 1000):
            view = window(content, size)
            for start, length in ((0, 10), (250, 6), (5, 100), (4, 3), (0, 256)):
                self.assertEqual(view.at(BASE + start, length), content[start : start + length])

    def test_end(self) -> None:
        """Nothing behind the end is seen, although the file has it."""
        view = window(b"0123456789", 100, BASE + 4)
        self.assertEqual(view.at(BASE + 2, 100), b"23")
        self.assertEqual(view.at(BASE + 4, 1), b"")
        self.assertIsNone(view.find(b"34", BASE))
        self.assertEqual(view.find(b"23", BASE), BASE + 2)

    def test_shorterFile(self) -> None:
        """A file that ends before it should is no error: there is just less."""
        view = window(b"0123", 100, BASE + 10)
        self.assertEqual(view.at(BASE + 2, 8), b"23")
        self.assertIsNone(view.find(b"9", BASE))

    @settings(max_examples=repetitions(80, 1000), deadline=None)
    @given(st.lists(st.sampled_from(b"ab"), max_size=40), st.integers(1, 9), st.integers(0, 40))
    def test_find(self, letters: list[int], size: int, start: int) -> None:
        """The first place is found, also where it lies across what is fetched at once."""
        content = bytes(letters)
        found = window(content, size).find(b"abb", BASE + start)
        place = content.find(b"abb", start)
        self.assertEqual(found, None if place < 0 else BASE + place)

    def test_keepsWhatItGave(self) -> None:
        """What was given stays as it is while other parts are looked at."""
        view = window(bytes(range(100)), 10)
        first = view.at(BASE, 10)
        view.at(BASE + 50, 10)
        self.assertEqual(first, bytes(range(10)))
