"""The MiniMQ lines that the benchmark sends and expects."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.minimq import MiniMQ


class MiniMQTests(SynchronousTestCase):
    """Examples of the MiniMQ document, section 5."""

    peer = MiniMQ()

    def test_publication(self) -> None:
        """PRODUCE with five fields."""
        self.assertEqual(
            self.peer.publication(None, b"my-topic", b"This is a test message.", id=b"111-aaa"),
            b"PRODUCE:111-aaa:::my-topic:::This is a test message.::::::\n",
        )

    def test_delivery(self) -> None:
        """CONSUME brings the same five fields."""
        self.assertEqual(
            self.peer.delivery(None, b"my-topic", b"This is a test message.", id=b"111-aaa"),
            b"111-aaa:::my-topic:::This is a test message.::::::\n",
        )

    def test_commands(self) -> None:
        """CONSUME and ACK."""
        self.assertEqual(self.peer.consume(b"my-topic"), b"CONSUME:my-topic\n")
        self.assertEqual(self.peer.acknowledgement(b"111-aaa"), b"ACK:111-aaa\n")
