"""The BlipMQ frames that the benchmark sends and expects."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.blipmq import BlipMQ


class BlipMQTests(SynchronousTestCase):
    """Against the samples of the BlipMQ document."""

    peer = BlipMQ()

    def test_hello(self) -> None:
        """HELLO and AUTH, as in the samples."""
        hello = bytes.fromhex("0000000B 01 0000000000000001 0001")
        auth = bytes.fromhex("00000012 02 0000000000000002 0007") + b"dev-key"
        self.assertEqual(self.peer.hello(), hello + auth)

    def test_publication(self) -> None:
        """The sample of a PUBLISH, with correlation id 0."""
        expected = bytes.fromhex("00000012 03 0000000000000000 01 0004") + b"demohi"
        self.assertEqual(self.peer.publication(None, b"demo", b"hi", qos=1), expected)

    def test_delivery(self) -> None:
        """A delivery has its tag where the publication had its correlation id."""
        expected = bytes.fromhex("00000012 03 0000000000000007 01 0004") + b"demohi"
        self.assertEqual(self.peer.delivery(None, b"demo", b"hi", qos=1, tag=7), expected)

    def test_poll(self) -> None:
        """POLL names the subscription."""
        self.assertEqual(self.peer.poll(42, 5), bytes.fromhex("00000011 09 0000000000000005 000000000000002A"))

    def test_acknowledgement(self) -> None:
        """ACK has the tag as correlation id."""
        self.assertEqual(
            self.peer.acknowledgement(42, 3), bytes.fromhex("00000011 05 0000000000000003 000000000000002A")
        )
