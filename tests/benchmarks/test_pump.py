"""The byte pump counts exactly, and refuses everything that is not exact."""

import socket
import sys
from functools import partial

from twisted.trial.unittest import SynchronousTestCase

from benchmarks import pump as module
from benchmarks.pump import Load, Receipt, forked, limitWaits, pump
from benchmarks.refused import Refused

BLOCK = b"0123456789" * 1000


class PumpTests(SynchronousTestCase):
    """Sockets that are connected to each other stand for a broker that copies."""

    def setUp(self) -> None:
        """A pair of sockets, and no long waits."""
        self.patch(module, "SILENCE", 0.3)  # a busy machine may pause longer than a short one
        self.left, self.right = self.pair()

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Return two connected sockets that are closed at the end."""
        left, right = socket.socketpair()
        for each in (left, right):
            self.addCleanup(each.close)
            limitWaits(each, 5)
        return left, right

    def refusal(self, *receipts: Receipt, loads: int = 1) -> str:
        """Return why a run was refused in which 100 blocks were sent."""
        return str(self.assertRaises(Refused, pump, [Load(self.left, BLOCK, 100)] * loads, receipts))

    def test_exact(self) -> None:
        """A run in which everything arrives lasts a time."""
        seconds = pump([Load(self.left, BLOCK, 100)], [Receipt(self.right, 100 * len(BLOCK))])
        self.assertGreater(seconds, 0)

    def test_twice(self) -> None:
        """The same sockets serve for many runs, and small ones."""
        for times in (1, 100, 1):
            pump([Load(self.left, BLOCK, times)], [Receipt(self.right, times * len(BLOCK))])

    def test_several(self) -> None:
        """All receivers are waited for."""
        left, right = self.pair()
        loads = [Load(self.left, BLOCK, 100), Load(left, BLOCK, 3)]
        pump(loads, [Receipt(self.right, 100 * len(BLOCK)), Receipt(right, 3 * len(BLOCK))])

    def test_byteLost(self) -> None:
        """One byte that does not arrive refuses the run."""
        self.assertIn("1 bytes did not arrive", self.refusal(Receipt(self.right, 100 * len(BLOCK) + 1)))

    def test_messageLost(self) -> None:
        """So does one whole block, larger than what a receiver is woken for."""
        self.assertIn(
            "100,000 bytes did not arrive at 1 of 1 connections", self.refusal(Receipt(self.right, 110 * len(BLOCK)))
        )

    def test_byteTooMany(self) -> None:
        """One byte more than expected refuses it."""
        self.assertIn("more than were published", self.refusal(Receipt(self.right, 100 * len(BLOCK) - 1)))

    def test_byteLater(self) -> None:
        """Even where nothing was expected, whether it comes before the others have all of theirs or behind that."""
        left, right = self.pair()
        left.send(b"!")
        receipts = [Receipt(right, 1), Receipt(self.right, 0)]
        error = self.assertRaises(Refused, pump, [Load(self.left, b"!")], receipts)
        self.assertIn("than were published", str(error))

    def test_answer(self) -> None:
        """Who must get nothing must get nothing."""
        self.right.send(b"-ERR something")
        _, right = self.pair()
        error = self.assertRaises(Refused, pump, [], [Receipt(self.left, 0), Receipt(right, 1)])
        self.assertIn("-ERR something", str(error))

    def test_closed(self) -> None:
        """A receiver that loses its connection refuses the run at once."""
        left, right = self.pair()
        left.close()
        self.assertIn("closed", self.refusal(Receipt(right, 1 << 20)))

    def test_notSent(self) -> None:
        """A sender that cannot send everything refuses it, though nobody waits for more."""
        left, right = self.pair()
        right.close()
        self.assertRaises(Refused, pump, [Load(left, BLOCK)], [])

    def test_late(self) -> None:
        """A run has an end, whatever trickles in."""
        self.right.send(b"x")
        self.assertRaises(Refused, pump, [], [Receipt(self.left, 2)], 0.01)

    def test_wakesNormallyAfterwards(self) -> None:
        """What was set to wake less often is set back."""
        pump([Load(self.left, BLOCK, 1)], [Receipt(self.right, len(BLOCK))])
        self.left.send(b"x")
        self.assertEqual(self.right.recv(100), b"x")


class ForkedTests(SynchronousTestCase):
    """Processes that wait for a word to begin."""

    def test_beginTogether(self) -> None:
        """Nothing runs before the word, and everything has ended afterwards."""
        left, right = socket.socketpair()
        self.addCleanup(left.close)
        self.addCleanup(right.close)
        right.setblocking(False)
        with forked([partial(left.sendall, b"a"), partial(left.sendall, b"a")]) as go:
            self.assertRaises(BlockingIOError, right.recv, 10)
            go()
        self.assertEqual(right.recv(10), b"aa")

    def test_failure(self) -> None:
        """A task that fails is reported."""

        def run() -> None:
            with forked([partial(sys.exit, 1)]) as go:
                go()

        self.assertRaises(Refused, run)
