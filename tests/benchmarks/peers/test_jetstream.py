"""What is said to JetStream, and how many bytes confirm it."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.jetstream import JetStream


class JetStreamTests(SynchronousTestCase):
    """Publications with an inbox, and acknowledgements with numbers."""

    def test_kept(self) -> None:
        """The publication names where its acknowledgement goes."""
        said = JetStream().kept(b"_INBOX.kept.0000", b"a", b"hello")
        self.assertEqual(said, b"PUB a _INBOX.kept.0000 5\r\nhello\r\n")

    def test_confirmations(self) -> None:
        """Numbers count on over all calls, and grow longer."""
        peer = JetStream()
        one = len(b'MSG _INBOX.kept.0000 0001 26\r\n{"stream":"bench","seq":1}\r\n')
        self.assertEqual([peer.confirmations(9), peer.confirmations(1), peer.confirmations(2)],
                         [9 * one, one + 1, 2 * (one + 1)])  # fmt: skip

    def test_nothingCloses(self) -> None:
        """Each message is confirmed for itself."""
        self.assertEqual(JetStream().closing(None), b"")
