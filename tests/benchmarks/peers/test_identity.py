"""The texts of the Identity document that the benchmark sends and expects."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.identity import Identity
from tests.benchmarks.peers.test_websocket import unmasked


class IdentityTests(SynchronousTestCase):
    """Examples of the document, section 3."""

    peer = Identity()

    def test_publication(self) -> None:
        """A masked PUBLISH."""
        self.assertEqual(
            unmasked(self.peer.publication(b"user-1", b"news", b"Hello world!")), b"PUBLISH:news:Hello world!"
        )

    def test_delivery(self) -> None:
        """MSG with the sender's name."""
        self.assertEqual(self.peer.delivery(b"user-1", b"news", b"Hi"), b"\x81\x12MSG:news:user-1:Hi")

    def test_welcome(self) -> None:
        """The name is known when both greetings came."""
        greeting = b"HTTP/1.1 101 Switching\r\nA: b\r\n\r\n\x81\x0fIDENTITY:user-1\x81\x09CHANNELS:"
        self.assertEqual(self.peer.welcome(greeting), b"user-1")
        for size in range(len(greeting)):
            self.assertRaises(ValueError, self.peer.welcome, greeting[:size])
