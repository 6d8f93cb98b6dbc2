"""Every publisher's dialect and every kind of payload: one message, and what arrives at subscribers of all dialects."""

from collections.abc import Callable
from typing import Any

import msgpack

from tests.conversations.case import Place, SocketCase, inPlace
from tests.conversations.clients import Delivery
from tests.conversations.payload_table import DIALECTS, delivered

MEBIBYTE = 1 << 20
#: A whole text of an Identity client may have a mebibyte; this leaves room for the word and the channel.
NEARLY = MEBIBYTE - 64


def _map(value: Any) -> dict[str, Any]:
    return {"k": [1, None, True, -1.5, value], "ü": {"nested": value}}


#: Payloads of FlexiMQ publishers.
MESSAGEPACK = {
    "nothing": b"",
    **{
        name: msgpack.packb(value)
        for name, value in {
            "nil": None,
            "emptyText": "",
            "emptyBin": b"",
            "emptyMap": {},
            "text": "text",
            "manyLanguages": "你好é😀",
            "utf8Bin": "né".encode(),
            "otherBin": b"\xff\x00",
            "number": -(1 << 63),
            "largeNumber": (1 << 64) - 1,
            "fraction": 0.1,
            "nan": float("nan"),
            "infinity": float("-inf"),
            "array": [1, "x", [b"\xff"]],
            "map": {"article": "x", "n": [1, 2, {"z": None}]},
            "mapWithBin": _map(b"\xff\x00"),
            "mapWithNan": _map(float("nan")),
            "mapWithExtension": _map(msgpack.ExtType(5, b"\x01\xff")),
            "mapWithTimestamp": _map(msgpack.Timestamp(1703123456, 789000000)),
            "mapWithWholeTimestamp": _map(msgpack.Timestamp(1703123456)),
            "mapWithOldTimestamp": _map(msgpack.Timestamp(-1, 1)),
            "mapWithNumbersForKeys": {1: "a", -2: "b", 1.5: "c", False: "d", None: "e"},
            "mapWithBinForKey": {b"\xff": 1},
            "mapWithLineBreaks": {"a\nb": "c\r\n\u2028"},
            "mapWithQuotes": {'"': '\\"\t\x00'},
            "extension": msgpack.ExtType(1, b"x"),
            "timestamp": msgpack.Timestamp(0),
            "lineBreak": "two\nlines",
            "carriageReturn": "two\rlines",
            "crlf": "two\r\nlines\r\n",
            "separator": "x:::y",
            "colons": ":::",
            "large": "é" * (MEBIBYTE // 2),
            "largeBin": bytes(range(256)) * (MEBIBYTE // 256),
        }.items()
    },
    "notOneValue": b"\x01\x02",
    "notMessagePack": b"\xc1",
    "cutShort": b"\xa5abc",
    "textNotUtf8": b"\xa2\xff\xfe",
}
#: Payloads of BlipMQ publishers.
BYTES = {
    "nothing": b"",
    "text": b"text",
    "manyLanguages": "你好é😀".encode(),
    "other": b"\xff\x00",
    "lineBreak": b"two\nlines",
    "carriageReturn": b"two\rlines",
    "separator": b"x:::y",
    "messagePack": msgpack.packb({"k": 1}),
    "large": b"x" * MEBIBYTE,
    "largeOther": bytes(range(256)) * (MEBIBYTE // 256),
}
#: Contents of MiniMQ's publishers, and messages of Identity's.
LINES = {
    "nothing": b"",
    "text": b"text",
    "manyLanguages": "你好é😀".encode(),
    "separator": b"x:::y",
    "colons": b":::a:b::",
    "carriageReturn": b"two\rlines",
    "json": b'{"k":"v:1"}',
    "large": "é".encode() * (NEARLY // 2),
}
TEXTS = LINES | {"lineBreak": b"two\nlines", "crlf": b"two\r\nlines\r\n", "metadata": b"Hello!||timestamp=1"}
PAYLOADS = {"fleximq": MESSAGEPACK, "fleximqWs": MESSAGEPACK, "blipmq": BYTES, "minimq": LINES, "identity": TEXTS}


class MatrixTests(SocketCase):
    """One test for each; they are made below."""

    # -- subscribers: what they return brings the payload that arrives ------------------------------

    def subscribe_fleximq(self) -> Callable[[], bytes]:
        """Subscribe over TCP."""
        return self._flexiHears(self.flexi())

    def subscribe_fleximqWs(self) -> Callable[[], bytes]:
        """Subscribe over WebSocket."""
        return self._flexiHears(self.flexiWs())

    def _flexiHears(self, client: Any) -> Callable[[], bytes]:
        client.subscribe(self.topic).barrier()
        return lambda: client.hear().payload

    def subscribe_blipmq(self) -> Callable[[], bytes]:
        """Subscribe, and poll once there is something."""
        client = self.blip()
        subscription = client.subscribe(self.topic)

        def polled() -> bytes:
            found = self.eventually(lambda: client.poll(subscription), "a delivery")
            self.assertEqual(found, Delivery(1, 1, self.topic, found.message))
            return bytes(found.message)

        return polled

    def subscribe_minimq(self) -> Callable[[], bytes]:
        """Begin the queue, and consume once there is something."""
        client = self.mini()
        client.consume(self.topic)

        def consumed() -> bytes:
            line = self.eventually(lambda: (found := client.consume(self.topic)) != "NO_MSG" and found, "a message")
            _, topic, rest = line.split(":::", 2)
            content, correlation, replyTo = rest.rsplit(":::", 2)
            self.assertEqual((topic, correlation, replyTo), (self.topic, "", ""))
            return str(content).encode()

        return consumed

    def subscribe_identity(self) -> Callable[[], bytes]:
        """Subscribe."""
        client = self.identity(self.topic)
        return lambda: client.hear().split(":", 3)[3].encode()

    # -- publishers --------------------------------------------------------------------------------

    def publish_fleximq(self, payload: bytes) -> None:
        """Publish over TCP."""
        self.flexi().send("PUB", {"topic": self.topic}, payload)

    def publish_fleximqWs(self, payload: bytes) -> None:
        """Publish over WebSocket."""
        self.flexiWs().send("PUB", {"topic": self.topic}, payload)

    def publish_blipmq(self, payload: bytes) -> None:
        """Publish."""
        self.blip().publish(self.topic, payload)

    def publish_minimq(self, payload: bytes) -> None:
        """Produce."""
        self.assertEqual(self.mini().produce(self.topic, "id", payload.decode()), "id")

    def publish_identity(self, payload: bytes) -> None:
        """Publish to a channel one has subscribed to."""
        self.identity(self.topic).say(f"PUBLISH:{self.topic}:{payload.decode()}")

    # -- the tests ---------------------------------------------------------------------------------

    def check(self, source: str, payload: bytes) -> None:
        """Publish a payload and check what arrives at a subscriber of each dialect."""
        arriving = {target: getattr(self, f"subscribe_{target}")() for target in DIALECTS}
        getattr(self, f"publish_{source}")(payload)
        for target, arrives in arriving.items():
            seen, wanted = arrives(), delivered(source, target, payload)
            if seen != wanted:
                self.fail(f"sent {_shown(payload)} to {target}, wanted {_shown(wanted)}, saw {_shown(seen)}")


def _shown(payload: bytes) -> str:
    return repr(payload) if len(payload) < 200 else f"{payload[:100]!r} ... ({len(payload)} bytes)"


def _testOf(source: str, payload: bytes) -> Callable[[MatrixTests], None]:
    def test(self: MatrixTests) -> None:
        self.check(source, payload)

    return test


for _source in DIALECTS:
    for _name, _payload in PAYLOADS[_source].items():
        setattr(MatrixTests, f"test_{_name}From{_source[0].upper()}{_source[1:]}ReachesAll", _testOf(_source, _payload))

#: A journal changes nothing in what arrives.
globals().update(inPlace(Place("--journal", "journal", "--durable", "#"), "AllDurable", MatrixTests))
