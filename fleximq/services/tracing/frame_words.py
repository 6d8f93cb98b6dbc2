"""Describes the frames of a connection in words, for each dialect: their type and their header, without payloads and
credentials.

A reader takes the bytes of one direction, from the beginning of a frame on. Neighbouring frames with equal headers are
one line. After bytes that are not valid in the dialect a reader raises an error, and its trace ends.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fleximq.errors import BrokerError
from fleximq.limits import GIBIBYTE, MEBIBYTE
from fleximq.values.printable import printable, shortened
from fleximq.wire.blipmq_frame import BlipScanner, FrameType
from fleximq.wire.blipmq_payload import decodeNack, decodePublish, decodeSubscribe
from fleximq.wire.fleximq_header import MessageType, peek
from fleximq.wire.fleximq_scanner import FIXED_BYTES, FlexiScanner
from fleximq.wire.minimq_line import LineScanner
from fleximq.wire.websocket_frame import endOfFrame, hasHead, headBytes

#: The longest text of a header in the words.
_TEXT = 120
#: Keys of a FlexiMQ header that are left out: credentials, and the topic, with which the description begins.
_OMITTED = frozenset({"auth", "topic"})
#: Maximum size of an incomplete frame in the buffer.
_MOST = 2 * MEBIBYTE
_OPCODES = {0: "continuation", 1: "text", 2: "binary", 8: "close", 9: "PING of WebSocket", 10: "PONG of WebSocket"}
_BASE = 34
_NAMES = {int(kind): kind.name for kind in MessageType}


class FrameWords(NamedTuple):
    """One line of a trace: the kind of the frames, how many there are, their bytes, and words about them."""

    kind: str
    count: int  # type: ignore[assignment]  # tuple.count is not used
    bytes: int
    words: str


Reader = Callable[[bytes], Iterator[FrameWords]]


def readerOf(dialect: str) -> Reader:
    """Return a reader of the stream of this dialect; for an unknown one, of the sizes of reads."""
    return _READERS.get(dialect, lambda: _plain)()


def unframed(read: Reader) -> Reader:
    """Return a reader of the WebSocket frames of a server, whose payloads another one reads."""
    rest = bytearray()

    def feed(data: bytes) -> Iterator[FrameWords]:
        rest.extend(data)
        offset, whole = 0, bytes(rest)
        while hasHead(whole, offset) and (end := endOfFrame(whole, offset)) <= len(whole):
            opcode, start = whole[offset] & 0x0F, offset + headBytes(whole[offset + 1])
            payload, size, offset = whole[start:end], end - offset, end
            if opcode in (1, 2):
                yield from read(payload)
            else:
                yield FrameWords("WebSocket", 1, size, _OPCODES.get(opcode, f"opcode {opcode}"))
        del rest[:offset]
        if len(rest) > _MOST:
            yield FrameWords("WebSocket", 1, len(rest), "a large frame, which is not read")
            rest.clear()

    return feed


def _plain(data: bytes) -> Iterator[FrameWords]:
    yield FrameWords("bytes", 1, len(data), f"{len(data)} bytes")


def _text(value: object) -> str:
    return repr(shortened(printable(str(value)), _TEXT))


# -- FlexiMQ ---------------------------------------------------------------------------------------------


def _flexiReader() -> Reader:
    scanner = FlexiScanner(GIBIBYTE)

    def feed(data: bytes) -> Iterator[FrameWords]:
        for envelope, frames, count in scanner.feed(data):
            yield _flexiWords(envelope, len(frames), count)

    return feed


def _flexiWords(envelope: bytes, size: int, count: int) -> FrameWords:
    fields = peek(envelope[FIXED_BYTES:])
    number = envelope[1]
    kind = _NAMES.get(number, f"type {number}")
    topic, payload = fields.get("topic"), size // count - len(envelope) - _BASE + FIXED_BYTES
    about = [f"topic {_text(topic)}"] if topic is not None else []
    about += [f"{printable(str(name))} {_value(value)}" for name, value in fields.items() if name not in _OMITTED]
    about.append(f"{payload} bytes of payload" if count == 1 else f"{size} bytes in {count} messages")
    if "auth" in fields:
        about.append("with credentials")
    return FrameWords(kind, count, size, shortened(", ".join(about), 4 * _TEXT))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{printable(str(name))}: {_value(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(each) for each in value[:5]) + ("..." if len(value) > 5 else "") + "]"
    return _text(value) if isinstance(value, str) else shortened(printable(str(value)), _TEXT)


# -- BlipMQ ----------------------------------------------------------------------------------------------


def _blipReader() -> Reader:
    scanner = BlipScanner()

    def feed(data: bytes) -> Iterator[FrameWords]:
        for kind, head, correlations, messages in scanner.feed(data):
            count = len(correlations)
            size = 13 * count + len(head) * count + sum(map(len, messages))
            try:
                words = _blipWords(kind, head, messages)
            except BrokerError as error:
                words = str(error)
            yield FrameWords(kind.name, count, size, f"{words}, correlation {correlations[0]}")

    return feed


def _blipWords(kind: FrameType, head: bytes, messages: list[bytes]) -> str:
    if kind is FrameType.PUBLISH:
        topic, qos = decodePublish(head)
        return f"topic {_text(topic)}, QoS {qos}, {sum(map(len, messages))} bytes of payload"
    if kind is FrameType.SUBSCRIBE:
        topic, qos = decodeSubscribe(head)
        return f"topic {_text(topic)}, QoS {qos}"
    if kind is FrameType.NACK:
        code, words = decodeNack(head)
        return f"{code} {_text(words)}"
    if kind in (FrameType.POLL, FrameType.ACK):
        return f"subscription {int.from_bytes(head[:8], 'big')}"
    return "with credentials" if kind is FrameType.AUTH else f"{len(head)} bytes"


# -- MiniMQ, Identity, HTTP --------------------------------------------------------------------------------


def _miniReader() -> Reader:
    scanner = LineScanner(GIBIBYTE)

    def feed(data: bytes) -> Iterator[FrameWords]:
        for line in scanner.feed(data):
            word, colon, rest = line.partition(b":")
            kind, words = "message", f"{len(line)} bytes"
            if word in (b"CONSUME", b"ACK", b"ERROR"):
                kind, words = word.decode(), _text(rest.decode(errors="replace"))
            elif word in (b"PRODUCE", b"PING", b"PONG"):
                kind, words = word.decode(), f"{len(rest)} bytes"
            elif not colon:
                kind, words = "line", _text(line.decode(errors="replace"))
            yield FrameWords(kind, 1, len(line) + 1, words)

    return feed


def _identityReader() -> Reader:
    def feed(data: bytes) -> Iterator[FrameWords]:
        word, _, rest = data.partition(b":")
        name = word.decode(errors="replace")
        if name in ("PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE", "SUB-ACK", "UNSUB-ACK", "ERROR", "IDENTITY"):
            about = rest if name == "ERROR" else rest.partition(b":")[0]
            yield FrameWords(name, 1, len(data), f"{_text(about.decode(errors='replace'))}, {len(data)} bytes")
        else:
            yield FrameWords("text", 1, len(data), f"{len(data)} bytes")

    return feed


def _httpReader() -> Reader:
    def feed(data: bytes) -> Iterator[FrameWords]:
        line = data.partition(b"\r\n")[0][:2000].decode("latin-1")
        method, _, rest = line.partition(" ")
        if rest and (method.isupper() or method.startswith("HTTP/")):
            target = rest.partition("?")[0].partition(" ")[0] if method.isupper() else rest
            isAnswer = method.startswith("HTTP/")
            words = f"{_text(rest if isAnswer else target)}, {len(data)} bytes"
            yield FrameWords("answer" if isAnswer else method, 1, len(data), words)
        else:
            yield FrameWords("body", 1, len(data), f"{len(data)} bytes")

    return feed


_READERS: Mapping[str, Callable[[], Reader]] = {
    "fleximq": _flexiReader,
    "blipmq": _blipReader,
    "minimq": _miniReader,
    "identity": _identityReader,
    "http": _httpReader,
}
