"""The RESP that the benchmark sends and expects."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.redis import Redis


class RedisTests(SynchronousTestCase):
    """Bytes as redis-cli would send and show them."""

    peer = Redis()

    def test_publication(self) -> None:
        """PUBLISH is an array of three bulk strings."""
        self.assertEqual(
            self.peer.publication(None, b"ab", b"hello"), b"*3\r\n$7\r\nPUBLISH\r\n$2\r\nab\r\n$5\r\nhello\r\n"
        )

    def test_delivery(self) -> None:
        """So is what a subscriber gets."""
        self.assertEqual(
            self.peer.delivery(None, b"ab", b"hello"), b"*3\r\n$7\r\nmessage\r\n$2\r\nab\r\n$5\r\nhello\r\n"
        )

    def test_reply(self) -> None:
        """A publisher is told how many got it."""
        self.assertEqual(self.peer.reply(100), b":100\r\n")
