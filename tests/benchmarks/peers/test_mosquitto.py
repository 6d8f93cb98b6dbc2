"""The MQTT packets that the benchmark sends and expects."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.mosquitto import Mosquitto


class MosquittoTests(SynchronousTestCase):
    """Packets of MQTT 3.1.1."""

    peer = Mosquitto()

    def test_hello(self) -> None:
        """CONNECT (3.1): protocol MQTT, level 4, clean session, no keep-alive, no client id."""
        self.assertEqual(self.peer.hello(), b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00")

    def test_publication(self) -> None:
        """PUBLISH (3.3) at QoS 0 has no packet id."""
        self.assertEqual(self.peer.publication(None, b"a/b", b"hi"), b"\x30\x07\x00\x03a/bhi")

    def test_delivery(self) -> None:
        """The server sends the same."""
        self.assertEqual(self.peer.delivery(None, b"a/b", b"hi"), b"\x30\x07\x00\x03a/bhi")

    def test_length(self) -> None:
        """Lengths (2.2.3) take one byte up to 127, two up to 16,383, three up to 2,097,151."""
        for size, expected in [
            (127, b"\x7f"), (128, b"\x80\x01"), (16_383, b"\xff\x7f"), (16_384, b"\x80\x80\x01"),
        ]:  # fmt: skip
            packet = self.peer.publication(None, b"t", bytes(size - 3))
            self.assertEqual(packet[1 : len(expected) + 1], expected, size)
            self.assertEqual(len(packet), 1 + len(expected) + size)
