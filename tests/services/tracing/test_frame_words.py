"""Frames in words, for each dialect."""

from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.tracing.frame_words import Reader, readerOf, unframed
from fleximq.wire import blipmq_payload
from fleximq.wire.blipmq_frame import FrameType
from fleximq.wire.blipmq_frame import encodeFrame as blip
from fleximq.wire.fleximq_frame import encodeFrame as flexi
from fleximq.wire.fleximq_header import MessageType, packHeader
from fleximq.wire.websocket_frame import BINARY, CLOSE, encodeFrame

SECRET = "S3CRET"


def flexiFrame(kind: MessageType, fields: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return a frame of FlexiMQ."""
    return flexi(kind, 1000, packHeader(fields) if fields else b"", payload)


def lines(read: Reader, data: bytes, size: int = 1 << 30) -> list[tuple[str, int, int, str]]:
    """Return the lines of some bytes, in pieces of some size."""
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return [(line.kind, line.count, line.bytes, line.words) for piece in pieces for line in read(piece)]


class FlexiTests(SynchronousTestCase):
    """FlexiMQ."""

    def test_kinds(self) -> None:
        """A frame is told with its type, topic, other keys and the size of its payload."""
        pub = flexiFrame(MessageType.PUB, {"topic": "a", "message_id": "m1"}, msgpack.packb(SECRET))
        sub = flexiFrame(MessageType.SUB, {"topic": "a.*", "from": {"time": 5}})
        found = lines(readerOf("fleximq"), pub + sub)
        self.assertEqual(
            found,
            [
                ("PUB", 1, len(pub), "topic 'a', message_id 'm1', 7 bytes of payload"),
                ("SUB", 1, len(sub), "topic 'a.*', from {time: 5}, 0 bytes of payload"),
            ],
        )

    def test_pieces(self) -> None:
        """Frames in pieces are told once each."""
        data = b"".join(flexiFrame(MessageType.PUB, {"topic": name}, b"\xc0") for name in "abc")
        for size in (1, 7):
            self.assertEqual([words for *_, words in lines(readerOf("fleximq"), data, size)],
                             [f"topic '{name}', 1 bytes of payload" for name in "abc"])  # fmt: skip

    def test_runs(self) -> None:
        """Neighbours with one header are few lines with their number."""
        frame = flexiFrame(MessageType.PUB, {"topic": "a"}, b"\xc0")
        self.assertEqual(sum(count for _, count, *_ in lines(readerOf("fleximq"), frame * 100)), 100)

    def test_secrets(self) -> None:
        """Credentials are never told, nor payloads."""
        frame = flexiFrame(MessageType.JOIN, {"auth": {"type": "token", "token": SECRET}}, SECRET.encode())
        [line] = lines(readerOf("fleximq"), frame)
        self.assertIn("with credentials", line[3])
        self.assertNotIn(SECRET, str(line))

    def test_hostile(self) -> None:
        """Long and odd headers make short printable words; an unknown type is told as a number."""
        frame = flexiFrame(MessageType.PUB, {"topic": "\x1b[31m" + "x" * 900, "key": ["\n" * 50] * 1000})
        [line] = lines(readerOf("fleximq"), frame)
        self.assertLess(len(line[3]), 500)
        self.assertTrue(line[3].isprintable())
        strange = bytearray(flexiFrame(MessageType.PUB, {}))
        strange[1] = 77
        self.assertEqual(lines(readerOf("fleximq"), bytes(strange))[0][0], "type 77")


class OtherTests(SynchronousTestCase):
    """The other dialects."""

    def test_blipmq(self) -> None:
        """BlipMQ is told with topics, subscriptions and errors, without keys and payloads."""
        data = (
            blip(FrameType.AUTH, 1, blipmq_payload.encodeAuth(SECRET))
            + blip(FrameType.PUBLISH, 2, blipmq_payload.encodePublish("a", 1) + SECRET.encode())
            + blip(FrameType.SUBSCRIBE, 3, blipmq_payload.encodeSubscribe("b", 0))
            + blip(FrameType.POLL, 4, blipmq_payload.encodeSubscription(9))
            + blip(FrameType.NACK, 5, blipmq_payload.encodeNack(404, "no such"))
            + blip(FrameType.PUBLISH, 6, b"\x01")
        )
        found = lines(readerOf("blipmq"), data, 5)
        self.assertEqual(
            [(kind, words) for kind, _, _, words in found],
            [
                ("AUTH", "with credentials, correlation 1"),
                ("PUBLISH", "topic 'a', QoS 1, 6 bytes of payload, correlation 2"),
                ("SUBSCRIBE", "topic 'b', QoS 0, correlation 3"),
                ("POLL", "subscription 9, correlation 4"),
                ("NACK", "404 'no such', correlation 5"),
                ("PUBLISH", "invalid PUBLISH payload, correlation 6"),
            ],
        )
        self.assertEqual(sum(size for _, _, size, _ in found), len(data))

    def test_minimq(self) -> None:
        """MiniMQ is told line by line."""
        data = f"PRODUCE:a:::{SECRET}\nCONSUME:a\nACK:7\nNO_MSG\nERROR:400:what\n01:::{SECRET}:::\n".encode()
        found = [(kind, words) for kind, _, _, words in lines(readerOf("minimq"), data, 3)]
        self.assertEqual(
            found,
            [
                ("PRODUCE", "10 bytes"), ("CONSUME", "'a'"), ("ACK", "'7'"), ("line", "'NO_MSG'"),
                ("ERROR", "'400:what'"), ("message", "14 bytes"),
            ],
        )  # fmt: skip

    def test_identity(self) -> None:
        """Identity is told text by text."""
        read = readerOf("identity")
        self.assertEqual(lines(read, b"PUBLISH:c:" + SECRET.encode())[0][::3], ("PUBLISH", "'c', 16 bytes"))
        self.assertEqual(lines(read, b"ann:c:" + SECRET.encode())[0][::3], ("text", "12 bytes"))
        self.assertEqual(lines(read, b"\xff:\xff")[0][0], "text")

    def test_http(self) -> None:
        """HTTP is told by its first lines, without query and fields."""
        read = readerOf("http")
        request = f"POST /topics/a?token={SECRET} HTTP/1.1\r\nAuthorization: {SECRET}\r\n\r\n{SECRET}".encode()
        found = [*lines(read, request), *lines(read, b"HTTP/1.1 200 OK\r\n\r\n"), *lines(read, SECRET.encode())]
        self.assertEqual([kind for kind, *_ in found], ["POST", "answer", "body"])
        self.assertEqual(found[0][3], f"'/topics/a', {len(request)} bytes")
        self.assertNotIn(SECRET, str(found))

    def test_webSocket(self) -> None:
        """Frames of a server are taken off, in any pieces, and closing ones are told."""
        inner = flexiFrame(MessageType.PONG, {"keepalive": {"timestamp": 1}})
        data = encodeFrame(BINARY, inner[:20]) + encodeFrame(BINARY, inner[20:] * 1) + encodeFrame(CLOSE, b"\x03\xe8")
        for size in (1, 1000):
            found = lines(unframed(readerOf("fleximq")), data, size)
            self.assertEqual([kind for kind, *_ in found], ["PONG", "WebSocket"])

    def test_largeFrame(self) -> None:
        """A large frame that is not complete is not kept."""
        head = bytes([BINARY, 127]) + (1 << 40).to_bytes(8, "big")
        found = lines(unframed(readerOf("fleximq")), head + b"x" * (3 << 20), 1 << 20)
        self.assertEqual(found[0][3], "a large frame, which is not read")

    def test_plugin(self) -> None:
        """Reads of another dialect are told by their sizes."""
        self.assertEqual(lines(readerOf("echo"), b"abc"), [("bytes", 1, 3, "3 bytes")])
