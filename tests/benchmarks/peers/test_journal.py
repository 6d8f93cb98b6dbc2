"""What is said to our broker with a journal, and how many bytes come back."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.fleximq import frame
from benchmarks.peers.journal import Durable


class DurableTests(SynchronousTestCase):
    """One PING confirms all."""

    peer = Durable()

    def test_confirmations(self) -> None:
        """However many there were, it is one PONG."""
        pong = frame(9, 1, {"keepalive": {"timestamp": 1}})
        self.assertEqual([self.peer.confirmations(1), self.peer.confirmations(9)], [len(pong)] * 2)
        self.assertEqual(self.peer.closing(1000), frame(8, 1000, {"keepalive": {"timestamp": 1}}))

    def test_replayed(self) -> None:
        """A replayed message is longer by its offset, which has 64 bits."""
        longer = frame(5, 1000, {"topic": "t", "offset": 1 << 63}, b"\xc4\x05hello")
        self.assertEqual(self.peer.replayed(1000, b"t", b"hello"), len(longer))
