"""WebSocket frames, against the examples of RFC 6455."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers import websocket


def unmasked(frame: bytes) -> bytes:
    """Return the text of a client's short frame, as a server reads it (RFC 6455, 5.3)."""
    mask, masked = frame[2:6], frame[6:]
    return bytes(byte ^ mask[place % 4] for place, byte in enumerate(masked))


class FrameTests(SynchronousTestCase):
    """Single frames."""

    def test_fromServer(self) -> None:
        """RFC 6455, 5.7: a single-frame unmasked text message."""
        self.assertEqual(websocket.fromServer(b"Hello"), b"\x81\x05Hello")

    def test_fromClient(self) -> None:
        """A client's frame says that it is masked, and gives the text back."""
        frame = websocket.fromClient(b"Hello")
        self.assertEqual(frame[:2], b"\x81\x85")
        self.assertEqual(unmasked(frame), b"Hello")

    def test_masks(self) -> None:
        """Every frame has a mask of its own."""
        self.assertEqual(len({websocket.fromClient(b"Hello")[2:6] for _ in range(100)}), 100)

    def test_lengths(self) -> None:
        """RFC 6455, 5.2: lengths from 126 on take two more bytes, from 65,536 on eight."""
        for size, head in [
            (125, b"\x81\x7d"), (126, b"\x81\x7e\x00\x7e"), (65_535, b"\x81\x7e\xff\xff"),
            (65_536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
        ]:  # fmt: skip
            self.assertEqual(websocket.fromServer(bytes(size)), head + bytes(size))

    def test_texts(self) -> None:
        """Several frames are read back, and half a one is told."""
        said = websocket.fromServer(b"one") + websocket.fromServer(b"t" * 200)
        self.assertEqual(websocket.texts(said), [b"one", b"t" * 200])
        for size in range(6, len(said)):
            self.assertRaises(ValueError, websocket.texts, said[:size])
