"""How times are taken out of a stream."""

import socket
import struct
import time

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.line import Line
from benchmarks.peers.nats import Nats
from benchmarks.refused import Refused
from benchmarks.work.latency import Layout, Paced, Reader


class _Nobody:
    who = None


def layout(size: int = 16) -> Layout:
    """Return how messages look in the NATS protocol."""
    nobody: Line = _Nobody()  # type: ignore[assignment]
    return Layout(Nats(), nobody, b"t", size)


def delivery(stamp: int) -> bytes:
    """Return a delivery that carries a time."""
    return b"MSG t 00000 16\r\n" + struct.pack("=Q", stamp) + bytes(8) + b"\r\n"


class LayoutTests(SynchronousTestCase):
    """Where the time stands."""

    def test_places(self) -> None:
        """At the beginning of the payload, on both ways."""
        self.assertEqual((layout().sentAt, layout().deliveredAt, layout().size), (10, 16, 34))


class ReaderTests(SynchronousTestCase):
    """One subscriber's stream, cut anywhere."""

    def setUp(self) -> None:
        """40 messages, of which numbers 0, 16 and 32 carry the time 1, 2 and 3."""
        self.left, self.right = socket.socketpair()
        self.addCleanup(self.left.close)
        self.addCleanup(self.right.close)
        stamps = {0: 1, 16: 2, 32: 3}
        self.stream = b"".join(delivery(stamps.get(number, 1 << 62)) for number in range(40))

    def stamps(self, pieces: list[bytes]) -> list[int]:
        """Return what a reader makes of the times that it finds; it has to find those three."""
        reader = Reader(self.right, layout(), 40)
        before = time.monotonic_ns()
        for piece in pieces:
            self.left.sendall(piece)
            reader.read()
        after = time.monotonic_ns()
        self.assertEqual(reader.left, 0)
        for trip in reader.trips:
            self.assertTrue(before - 3 <= trip <= after, trip)
        return reader.trips

    def test_everySplit(self) -> None:
        """Cut in two at every byte, all three are found and no other."""
        for cut in range(1, len(self.stream)):
            self.assertEqual(len(self.stamps([self.stream[:cut], self.stream[cut:]])), 3, cut)

    def test_smallPieces(self) -> None:
        """So they are in pieces of 1 to 9 bytes."""
        for size in range(1, 10):
            pieces = [self.stream[at : at + size] for at in range(0, len(self.stream), size)]
            self.assertEqual(len(self.stamps(pieces)), 3, size)

    def test_tooMuch(self) -> None:
        """More than was published is refused."""
        self.left.sendall(self.stream + b"!")
        self.assertRaises(Refused, Reader(self.right, layout(), 40).read)

    def test_closed(self) -> None:
        """So is an end."""
        self.left.close()
        self.assertRaises(Refused, Reader(self.right, layout(), 40).read)


class PacedTests(SynchronousTestCase):
    """How a rate becomes bursts."""

    def test_rate(self) -> None:
        """Bursts are multiples of 16 and make up the rate."""
        for rate in (10_000.0, 60_000.0, 1_400_000.0):
            paced = Paced.at(rate, 1.0)
            self.assertEqual(paced.burst % 16, 0)
            self.assertApproximates(paced.burst / paced.pace, rate, rate / 1000)
            self.assertApproximates(paced.messages, rate, rate / 100)

    def test_about1ms(self) -> None:
        """A burst is about a millisecond's."""
        self.assertEqual(Paced.at(1_400_000.0, 1.0).burst, 1408)
