"""What is left unread: its order, whatever is packed and taken in between, and what it weighs."""

import mmap

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.connection.write_backlog import WriteBacklog

KIBIBYTE = 1 << 10
#: Sizes around those at which chunks are held in another way: sheets of 64 KiB, and 128 KiB for references.
SIZES = st.one_of(st.integers(0, 100), st.integers((1 << 16) - 5, (1 << 16) + 5), st.integers((1 << 17) - 2, 1 << 18))


class HeldTests(SynchronousTestCase):
    """Bytes in, the same bytes out."""

    def setUp(self) -> None:
        """Nothing waits."""
        self.buffered = WriteBacklog()

    def test_empty(self) -> None:
        """Nothing is held at first, nor by a chunk without bytes, which nobody could ever take."""
        self.buffered.append(b"")
        self.assertFalse(self.buffered)
        self.assertEqual(self.buffered.take(10), b"")

    def test_references(self) -> None:
        """Up to a mebibyte a chunk is not copied, and packing is not asked for."""
        chunk = bytes(60 * KIBIBYTE)
        due = [self.buffered.append(chunk) for _ in range(18)]
        self.assertEqual(due, [False] * 17 + [True])

    def test_packed(self) -> None:
        """From then on every turn packs, until nothing waits any more."""
        for _ in range(18):
            self.buffered.append(bytes(60 * KIBIBYTE))
        self.buffered.pack()
        self.assertTrue(self.buffered.append(b"x"))
        self.assertEqual(len(self.buffered.take(2 * KIBIBYTE * KIBIBYTE)), 18 * 60 * KIBIBYTE + 1)
        self.assertFalse(self.buffered)
        self.assertFalse(self.buffered.append(b"x"))

    def test_views(self) -> None:
        """Of a large chunk a view can be taken, which is no copy, and what was not used of it be put back."""
        chunk = bytes(range(256)) * KIBIBYTE
        self.buffered.append(chunk)
        view = self.buffered.takeView(100 * KIBIBYTE)
        assert isinstance(view, memoryview)
        self.assertIs(view.obj, chunk)
        self.buffered.putBack(view[60 * KIBIBYTE :])
        rest = [bytes(self.buffered.takeView(KIBIBYTE * KIBIBYTE)) for _ in range(2)]
        self.assertEqual(bytes(view[: 60 * KIBIBYTE]) + b"".join(rest), chunk)
        self.assertFalse(self.buffered)
        self.assertEqual(self.buffered.takeView(10), b"")

    def test_smallViews(self) -> None:
        """Small chunks are joined as ever, however they are taken."""
        for piece in (b"ab", b"cd"):
            self.buffered.append(piece)
        self.assertEqual(self.buffered.takeView(3), b"abc")

    def test_copies(self) -> None:
        """What was packed does not keep the read alive that it was a part of."""
        read = bytearray(b"abc" * 1000)
        self.buffered.append(memoryview(read)[300:600])
        self.buffered.pack()
        read.clear()
        self.assertEqual(self.buffered.take(400), b"abc" * 100)

    def test_large(self) -> None:
        """A large chunk is not copied, and keeps its place."""
        large = bytes(200 * KIBIBYTE)
        for chunk in (b"first", large, b"last"):
            self.buffered.append(chunk)
        self.buffered.pack()
        self.assertEqual(self.buffered.take(5), b"first")
        self.assertIs(self.buffered.take(len(large)), large)
        self.assertEqual(self.buffered.take(5), b"last")

    def test_cleared(self) -> None:
        """What is forgotten is handed out for freeing, in sheets of the system's memory, and nothing is held."""
        for _ in range(3):
            self.buffered.append(bytes(60 * KIBIBYTE))
        self.buffered.pack()
        sheets = self.buffered.clear()
        self.assertEqual([type(sheet.obj) for sheet in sheets if isinstance(sheet, memoryview)], [mmap.mmap] * 2)
        self.assertFalse(self.buffered)

    @given(st.lists(st.tuples(SIZES, st.sampled_from(("append", "pack", "take", "takeMuch"))), max_size=30))
    def test_order(self, steps: list[tuple[int, str]]) -> None:
        """Whatever is done in whatever order, the bytes come out as they went in, and nothing is left."""
        held, put, got = WriteBacklog(), bytearray(), bytearray()
        for number, (size, step) in enumerate(steps):
            if step == "append":
                chunk = bytes([number]) * size
                held.append(memoryview(chunk) if number % 2 else chunk)
                put += chunk
            elif step == "pack":
                held.pack()
            else:
                portion = held.take(size if step == "take" else 1 << 20)
                self.assertLessEqual(len(portion), size if step == "take" else 1 << 20)
                got += portion
            self.assertEqual(bool(held), len(got) < len(put))
        while held:
            got += held.take(1 << 20)
        self.assertTrue(got == put)
