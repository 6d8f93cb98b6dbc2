"""The receive buffer: nothing lost, nothing joined twice."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.wire.receive_buffer import SMALL_BYTES, ReceiveBuffer


class ReceiveBufferTests(SynchronousTestCase):
    """What is taken out is what was put in."""

    def test_passesThrough(self) -> None:
        """Where nothing is held, a read comes back as the very same object."""
        data = b"x" * 100
        self.assertIs(ReceiveBuffer().take(data), data)

    def test_waitsForWhatIsNeeded(self) -> None:
        """Nothing is returned one byte below what was asked for, everything at it."""
        buffer = ReceiveBuffer()
        buffer.keep(b"ab", 5)
        self.assertEqual((buffer.take(b"cd"), buffer.buffered), (None, 4))
        self.assertEqual((buffer.take(b"e"), buffer.buffered), (b"abcde", 0))

    def test_moreThanNeeded(self) -> None:
        """What arrives beyond the need is returned too."""
        buffer = ReceiveBuffer()
        buffer.keep(b"ab", 3)
        self.assertEqual(buffer.take(b"cdef"), b"abcdef")

    def test_forgetsTheNeed(self) -> None:
        """After a take the next read passes through, whatever was needed before."""
        buffer = ReceiveBuffer()
        buffer.keep(b"ab", 4)
        buffer.take(b"cd")
        self.assertEqual(buffer.take(b"e"), b"e")

    def test_keepsNothing(self) -> None:
        """An empty rest holds nothing, so that the next read passes through."""
        buffer = ReceiveBuffer()
        buffer.keep(b"", 4)
        self.assertEqual((buffer.buffered, buffer.take(b"a")), (0, b"a"))

    def test_addAndDrain(self) -> None:
        """Pieces may be held and fetched without asking for a number."""
        buffer = ReceiveBuffer()
        for piece in (b"a", b"b" * SMALL_BYTES, b"c", b""):
            buffer.add(piece)
        self.assertEqual(buffer.buffered, SMALL_BYTES + 2)
        self.assertEqual((buffer.drain(), buffer.buffered), (b"a" + b"b" * SMALL_BYTES + b"c", 0))

    def test_joinedOnce(self) -> None:
        """The large pieces of a frame are held as they came: nothing is copied before the last one is there."""
        buffer = ReceiveBuffer()
        piece = b"x" * 65536
        buffer.keep(piece, 256 * 65536)
        tracemalloc.start()
        for _ in range(254):
            self.assertIsNone(buffer.take(piece))
        grown = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertLess(grown, 65536)
        self.assertEqual(buffer.take(piece), piece * 256)

    def test_smallPiecesWeighLittle(self) -> None:
        """A frame that arrives two bytes at a time takes little more memory than its bytes."""
        buffer = ReceiveBuffer()
        tracemalloc.start()
        buffer.keep(b"ab", 400_000)
        for number in range(199_998):
            buffer.take(number.to_bytes(2, "big", signed=False) if number < 65536 else b"zz")
        grown = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertEqual(buffer.buffered, 399_998)
        self.assertLess(grown, 2_000_000)

    @given(st.lists(st.tuples(st.sampled_from([1, 3, SMALL_BYTES - 1, SMALL_BYTES, 5000]), st.integers(0, 9000))))
    def test_anyPieces(self, steps: list[tuple[int, int]]) -> None:
        """Whatever the sizes and needs, the bytes come out once, in order, and enough of them at a time."""
        buffer, sent, seen = ReceiveBuffer(), b"", b""
        needed = 0
        for number, (size, need) in enumerate(steps):
            piece = bytes([number % 256]) * size
            sent += piece
            taken = buffer.take(piece)
            if taken is None:
                continue
            self.assertGreaterEqual(len(taken), needed)
            half = len(taken) // 2
            seen += taken[:half]
            buffer.keep(taken[half:], need)
            needed = need if half < len(taken) else 0
        self.assertEqual(seen + buffer.drain(), sent)
