"""The client's side of a WebSocket, against frames made by the letter of RFC 6455."""

import base64
import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadFraming
from fleximq.wire.websocket_client import WebSocketClientStream
from fleximq.wire.websocket_frame import BINARY, readSmallFrames

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(first: int, payload: bytes = b"", mask: int = 0) -> bytes:
    """Return a frame as a server sends it."""
    size = len(payload)
    if size < 126:
        return struct.pack(">BB", first, mask | size) + payload
    if size < 1 << 16:
        return struct.pack(">BBH", first, mask | 126, size) + payload
    return struct.pack(">BBQ", first, mask | 127, size) + payload


def stream(limit: int = 1 << 20) -> WebSocketClientStream:
    """Return a stream whose random bytes are known."""
    return WebSocketClientStream("localhost:80", "/ws", "fleximq", limit, lambda size: bytes(range(1, size + 1)))


def answer(made: WebSocketClientStream, **changed: str) -> bytes:
    """Return what a server agrees with."""
    [asked] = made.due
    fields = dict(line.split(": ") for line in asked.decode().split("\r\n")[1:] if line)
    digest = hashlib.sha1(fields["Sec-WebSocket-Key"].encode() + GUID).digest()
    accept = changed.get("accept", base64.b64encode(digest).decode())
    status = changed.get("status", "101 Switching Protocols")
    protocol = changed.get("protocol", "fleximq")
    lines = f"Upgrade: websocket\r\nsec-websocket-accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n"
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode()


def opened(limit: int = 1 << 20) -> WebSocketClientStream:
    """Return a stream that the server has agreed to."""
    made = stream(limit)
    made.received(answer(made))
    made.due.clear()
    return made


class HandshakeTests(SynchronousTestCase):
    """The way in."""

    def test_whatIsAskedForIsDueFirstAndSaysWhereWhatForAndInWhichVersion(self) -> None:
        """What is asked for is due first, and says where, what for, and in which version."""
        [asked] = stream().due
        first, *lines = asked.decode().split("\r\n")
        self.assertEqual(first, "GET /ws HTTP/1.1")
        for line in ("Host: localhost:80", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                     "Sec-WebSocket-Protocol: fleximq"):  # fmt: skip
            self.assertIn(line, lines)

    def test_keysDiffer(self) -> None:
        """Each connection has a key of its own."""
        one, two = (WebSocketClientStream("a", "", "fleximq", 100).due for _ in range(2))
        self.assertNotEqual(one, two)

    def test_keyAndAnswerOfRFC6455Section13BelongTogether(self) -> None:
        """The key and the answer of RFC 6455, section 1.3, belong together."""
        made = WebSocketClientStream("a", "", "p", 100, lambda size: b"the sample nonce"[:size])
        self.assertIn(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", made.due[0])
        made.received(answer(made, accept="s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", protocol="p"))
        self.assertTrue(made.isOpen)

    def test_everySplit(self) -> None:
        """The answer is understood at every split, and what stands behind it is the stream's."""
        data = answer(stream()) + frame(0x82, b"behind")
        for place in range(len(data) + 1):
            made = stream()
            self.assertEqual(made.received(data[:place]) + made.received(data[place:]), b"behind")
            self.assertTrue(made.isOpen)

    def test_refused(self) -> None:
        """Another status, accept or protocol, and something that is no HTTP at all are refused."""
        for data in (
            answer(stream(), protocol="mqtt"),
            answer(stream(), status="404 Not Found"),
            answer(stream(), accept="x"),
            b"SSH-2.0\r\n\r\n",
        ):
            self.assertRaises(BadFraming, stream().received, data)

    def test_answerWithoutEndIsRefusedWhenItIsOver16KiBAndNotBefore(self) -> None:
        """An answer without an end is refused when it is over 16 KiB, and not before."""
        made = stream()
        made.received(b"x" * 16_384)
        self.assertRaises(BadFraming, made.received, b"x")


class SaidTests(SynchronousTestCase):
    """Frames to the server."""

    def test_framesAreReadByBrokersOwnReader(self) -> None:
        """They are read by the broker's own reader, at every kind of length that it takes."""
        for size in (0, 1, 3, 125, 126, 127, 65_535):
            payload = bytes(n % 251 for n in range(size))
            data, got = opened().framed(payload), list[bytes]()
            self.assertEqual(readSmallFrames(data, 0, (BINARY,), 1 << 20, False, got.append), len(data))
            self.assertEqual(got, [payload])

    def test_longOneHasLengthOf64BitsAndIsMasked(self) -> None:
        """A long one has a length of 64 bits, and is masked."""
        data = opened().framed(bytes(70_000))
        self.assertEqual(data[:14], b"\x82\xff" + struct.pack(">Q", 70_000) + b"\1\2\3\4")
        self.assertEqual(data[14:], b"\1\2\3\4" * 17_500)


class HeardTests(SynchronousTestCase):
    """Frames from the server."""

    def test_everySplit(self) -> None:
        """Data frames, fragments and control frames between them are one stream, at every split."""
        data = frame(0x82, b"one") + frame(0x02, b"two") + frame(0x89, b"?") + frame(0x80, b"three" * 40)
        for place in range(len(data) + 1):
            made = opened()
            self.assertEqual(made.received(data[:place]) + made.received(data[place:]), b"onetwo" + b"three" * 40)
            self.assertEqual(made.due, [b"\x8a\x81\1\2\3\4" + bytes([ord("?") ^ 1])])

    @given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 50), min_size=1, max_size=20))
    def test_inArbitraryPiecesItIsWhatWasSent(self, payloads: list[bytes], sizes: list[int]) -> None:
        """In arbitrary pieces it is what was sent."""
        data, made, got, turn = b"".join(frame(0x82, each) for each in payloads), opened(), b"", 0
        while data:
            size = sizes[turn % len(sizes)]
            got, data, turn = got + made.received(data[:size]), data[size:], turn + 1
        self.assertEqual(got, b"".join(payloads))

    @given(st.binary(max_size=200))
    def test_arbitraryBytesAreReadOrRefused(self, data: bytes) -> None:
        """Arbitrary bytes are read or refused."""
        try:
            opened().received(data)
        except BadFraming:
            pass

    def test_closeIsAnsweredAndWhatStandsBehindItIsPassedOver(self) -> None:
        """A CLOSE is answered, and what stands behind it is passed over."""
        made = opened()
        self.assertEqual(made.received(frame(0x82, b"a") + frame(0x88, b"\x03\xe8") + frame(0x82, b"b")), b"a")
        self.assertTrue(made.isClosed)
        self.assertEqual(len(made.due), 1)
        self.assertEqual(made.due[0][:2], b"\x88\x82")

    def test_broken(self) -> None:
        """Masked frames, extensions, unknown kinds, and control frames that are cut or too long are refused."""
        for data in (
            frame(0x82, b"a", 0x80) + b"mask",
            frame(0xC2, b"a"),
            frame(0x83, b"a"),
            frame(0x8B, b"a"),
            frame(0x09, b"a"),
            frame(0x89, bytes(126)),
        ):
            self.assertRaises(BadFraming, opened().received, data)

    def test_order(self) -> None:
        """Text is refused, and so are a continuation of nothing and a message that begins inside another one."""
        begun = frame(0x02, b"a")
        for data in (
            frame(0x81, b"a"),
            frame(0x01, b"a"),
            frame(0x80, b"a"),
            frame(0x00, b"a"),
            begun + frame(0x82, b"b"),
            begun + frame(0x02, b"b"),
            begun + frame(0x80, b"b") + frame(0x80, b"c"),
        ):
            self.assertRaises(BadFraming, opened().received, data)
        whole = begun + frame(0x00, b"b") + frame(0x80, b"c") + frame(0x82, b"d") + begun
        self.assertEqual(opened().received(whole), b"abcda")

    def test_manyPings(self) -> None:
        """Only the last of several PINGs is answered, so that a server that reads nothing cannot fill the memory."""
        made = opened()
        made.due.clear()
        for size in (3, 2, 1):
            made.received(frame(0x89, bytes(size)))
        self.assertEqual([len(each) for each in made.due], [2 + 4 + 1])
        made.due.clear()
        made.received(frame(0x89, b"ab"))
        self.assertEqual([len(each) for each in made.due], [2 + 4 + 2])

    def test_frameOverLimitIsRefusedOnItsHead(self) -> None:
        """A frame over the limit is refused on its head; one at it is read."""
        self.assertEqual(opened(200).received(frame(0x82, bytes(200))), bytes(200))
        self.assertRaises(BadFraming, opened(200).received, frame(0x82, bytes(300))[:10])


class TextTests(SynchronousTestCase):
    """A stream of texts, for dialects that are spoken in them."""

    def test_textsAreSaidAndHeardEachForItselfAndBinaryFramesRefused(self) -> None:
        """Texts are said and heard, each for itself, and binary frames refused."""
        made = WebSocketClientStream("localhost:80", "/", "fleximq", 1000, bytes, isText=True)
        self.assertEqual(made.pieces(answer(made) + frame(0x81, b"one") + frame(0x81, b"two")), [b"one", b"two"])
        self.assertEqual(made.framed(b"three"), frame(0x81, bytes(4) + b"three", 0x80).replace(b"\x89", b"\x85"))
        self.assertRaises(BadFraming, made.pieces, frame(0x82, b"four"))
