"""The lines of the NATS protocol that the benchmark sends and expects."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.nats import Nats


class NatsTests(SynchronousTestCase):
    """Examples of the protocol's documentation, with our names."""

    peer = Nats()

    def test_publication(self) -> None:
        """PUB, subject, size, payload."""
        self.assertEqual(self.peer.publication(None, b"a", b"hello"), b"PUB a 5\r\nhello\r\n")

    def test_delivery(self) -> None:
        """MSG names the subscription; all ids have the same length."""
        self.assertEqual(self.peer.delivery(None, b"a", b"hello"), b"MSG a 00000 5\r\nhello\r\n")
        self.assertEqual(self.peer.delivery(None, b"a", b"hello", 999), b"MSG a 00999 5\r\nhello\r\n")

    def test_welcome(self) -> None:
        """One is connected when the PING behind CONNECT is answered."""
        self.assertIsNone(self.peer.welcome(b'INFO {"x":1}\r\nPONG\r\n'))
        for said in (b"", b'INFO {"x":1}\r\n', b'INFO {"x":1}\r\nPON', b"-ERR 'no'\r\n"):
            self.assertRaises(ValueError, self.peer.welcome, said)
