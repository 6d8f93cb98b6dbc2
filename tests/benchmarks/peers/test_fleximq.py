"""The FlexiMQ frames that the benchmark sends and expects."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.fleximq import FlexiMQ, LayoutB, pure

#: Version 1, PUB, client 1000, 16 reserved bytes, 14 bytes of header.
PUB = b"\x01\x05\x00\x00\x03\xe8" + bytes(16) + b"\x00\x00\x00\x0e" + b"\x81\xa5topic\xa6a.1234"


class FlexiMQTests(SynchronousTestCase):
    """Bytes of the FlexiMQ document, 2.1."""

    peer = FlexiMQ()

    def test_hello(self) -> None:
        """A JOIN has client id 0, no header, no payload."""
        self.assertEqual(self.peer.hello(), b"\x01" + bytes(33))

    def test_publication(self) -> None:
        """A PUB carries the publisher's id, the topic, and the payload as a MessagePack bin."""
        self.assertEqual(self.peer.publication(1000, b"a.1234", b"hi"), PUB + bytes(7) + b"\x04\xc4\x02hi")

    def test_delivery(self) -> None:
        """A subscriber gets the very frame."""
        sent = self.peer.publication(1000, b"a", b"hi")
        self.assertEqual(self.peer.delivery(1000, b"a", b"hi", place=7), sent)

    def test_welcome(self) -> None:
        """The answer to the JOIN gives the client its id, and not before it is whole."""
        answer = b"\x01\x02\x00\x00\x03\xe9" + bytes(16) + b"\x00\x00\x00\x0a" + b"\x81\xa6status\xcc\xc8" + bytes(8)
        self.assertEqual(self.peer.welcome(answer), 1001)
        for size in range(len(answer)):
            self.assertRaises(ValueError, self.peer.welcome, answer[:size])

    def test_refusal(self) -> None:
        """Another status is no welcome."""
        answer = b"\x01\x02" + bytes(20) + b"\x00\x00\x00\x0a" + b"\x81\xa6status\xcd\x01\x91" + bytes(8)
        self.assertRaises(ValueError, self.peer.welcome, answer)

    def test_layoutB(self) -> None:
        """In layout B the length of the payload is before the header; the rest is alike."""
        expected = PUB[:26] + bytes(7) + b"\x04" + PUB[26:] + b"\xc4\x02hi"
        self.assertEqual(LayoutB().publication(1000, b"a.1234", b"hi"), expected)

    def test_pure(self) -> None:
        """The same broker in pure Python has a name of its own, and the variable that chooses Python."""
        kind = pure(FlexiMQ)
        self.assertEqual((kind.broker, kind().environment()["FLEXIMQ_PURE"]), ("fleximq-pure", "1"))
        self.assertEqual((FlexiMQ.broker, FlexiMQ().environment()["FLEXIMQ_PURE"]), ("fleximq", "0"))
