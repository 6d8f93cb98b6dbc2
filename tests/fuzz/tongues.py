"""What can be said in each dialect: frames in parts, how the parts are framed, and how a conversation begins.

A part can be changed without breaking the frame around it, so that what is hostile comes further than to the scanner.
"""

import base64
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgpack

from fleximq.compiled import choice
from fleximq.wire.minimq_line import LineScanner
from fleximq.wire.websocket_frame import isUtf8
from tests.wire.flexi_frames import NAMES
from tests.wire.transcoded import TranscodedScanner

Parts = tuple[bytes, ...]

#: Stands for the client's own id, until it is known.
OWN_ID = b"\xa9\xa9\xa9\xa9"
#: What a scanner may take at most.
MOST = 1 << 16

#: The token of an HS256 JWT that nobody has signed.
JWT = ".".join(
    base64.urlsafe_b64encode(each).decode().rstrip("=")
    for each in (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"anna","exp":4102444800}', b"x" * 32)
)


class Tongue(NamedTuple):
    """One dialect.

    ``open`` begins a conversation, ``framed`` makes a frame of its parts, ``scanner`` a new scanner of its frames.
    ``rareness``: one frame in so many has its framing broken, after which nothing can be understood. ``once`` says that
    a connection is over after each frame anyway.
    """

    name: str
    open: bytes
    seeds: tuple[Parts, ...]
    framed: Callable[[Parts], bytes]
    scanner: Callable[[], Any]
    rareness: int = 64
    once: bool = False

    @property
    def frames(self) -> tuple[bytes, ...]:
        """All seeds as frames."""
        return tuple(map(self.framed, self.seeds))


# -- FlexiMQ ---------------------------------------------------------------------------------------

_TO_ALL = [{"client_id": 1000}, {"client_id": 1001, "path": "/x"}, {"client_id": 1}]
_ASK = {"type": "request", "id": "q1"}


def _flexi(kind: str, header: Any, payload: Any = None) -> Parts:
    raw = b"" if header is None else header if isinstance(header, bytes) else msgpack.packb(header)
    first = bytes((1, NAMES.index(kind)))
    return first, OWN_ID, bytes(16), raw, b"" if payload is None else msgpack.packb(payload)


def _flexiSeeds() -> Iterator[Parts]:
    for topic in ("a", "b/c", "b.d", "é", "$sys/x", "$dead/a"):
        yield _flexi("PUB", {"topic": topic}, "text")
        yield _flexi("SUB", {"topic": topic})
    yield _flexi("PUB", {"topic": "a"}, {"k": [1, 2.5, None, b"\0\xff", {"x": True}]})
    yield _flexi("PUB", {"topic": "a", "message_id": "m1", "key": b"k", "reply_to": "b", "correlation_id": "c"}, b"x")
    yield _flexi("PUB", {"topic": "a", "routing": _TO_ALL}, "narrow")
    yield _flexi("SUB", {"topic": "b/*"})
    yield _flexi("SUB", {"topic": "#"})
    yield _flexi("SUB", {"topic": "a", "start": {"offset": 0}})
    for topic in ("a", "#", "b/*"):
        yield _flexi("UNSUB", {"topic": topic})
    for path in ("/broker/about", "/broker/clients", "/broker/topics", "/journal/bounds", "/journal/read", "/nowhere"):
        yield _flexi("REQ", {"routing": [{"client_id": 1, "path": path}], "reqrep": _ASK}, {"after": 0, "limit": 5})
    yield _flexi("REQ", {"routing": [{"client_id": 1000, "path": "/x"}], "reqrep": _ASK}, [1])
    yield _flexi(
        "REP", {"routing": [{"client_id": 1000}], "reqrep": {"type": "correlation", "id": "q1"}, "status": 200}, 1
    )
    yield _flexi("NOTIF", {"routing": [{"client_id": 1000, "path": "/n"}, {"client_id": 7, "path": ""}]}, "n")
    yield _flexi("BCAST", None, "all")
    yield _flexi("PING", {"keepalive": {"timestamp": 1, "interval": 30}})
    yield _flexi("PONG", {"keepalive": {"timestamp": 1}})
    yield _flexi("JOIN", {"auth": {"type": "token", "token": JWT}})
    yield _flexi("PUB", msgpack.packb([None, None, "a", None, None, None]), "positional")


def _flexiFramed(parts: Parts) -> bytes:
    first, id, reserved, header, payload = parts
    fixed = (b"\x01" + first[1:2].ljust(1, b"\x05") + id[:4].ljust(4, b"\0") + reserved[:16]).ljust(22, b"\0")
    return b"".join((fixed, struct.pack(">I", len(header)), header, struct.pack(">Q", len(payload)), payload))


def _flexiJoin() -> bytes:
    return _flexiFramed((b"\x01\x00", bytes(4), bytes(16), b"", b""))


# -- BlipMQ ----------------------------------------------------------------------------------------


def _blip(kind: int, payload: bytes, correlation: int = 7) -> Parts:
    return bytes([kind]), struct.pack(">Q", correlation), payload


def _blipName(topic: str) -> bytes:
    return struct.pack(">H", len(topic.encode())) + topic.encode()


def _blipSeeds() -> Iterator[Parts]:
    yield _blip(1, b"\0\1")
    yield _blip(2, _blipName("key"))
    for topic in ("a", "b/c", "é", ""):
        for quality in (0, 1, 2):
            yield _blip(3, bytes([quality]) + _blipName(topic) + b"message")
            yield _blip(4, _blipName(topic) + bytes([quality]))
    for id in (0, 1, 2, 3, 1 << 63):
        yield _blip(9, struct.pack(">Q", id))
        yield _blip(5, struct.pack(">Q", id), 1)
    yield _blip(6, struct.pack(">H", 400) + b"\0\1x")
    yield _blip(7, b"")
    yield _blip(8, b"")


def _blipFramed(parts: Parts) -> bytes:
    kind, correlation, payload = parts
    number = (kind[0] - 1) % 9 + 1 if kind else 7
    return struct.pack(">IB", 9 + len(payload), number) + correlation[:8].ljust(8, b"\0") + payload


# -- MiniMQ ----------------------------------------------------------------------------------------


def _miniSeeds() -> Iterator[Parts]:
    for topic in (b"a", b"b/c", b"", "é".encode(), b"$dead/a"):
        yield b"PRODUCE:", b"id1", b":::", topic, b":::", b"content", b":::", b"corr", b":::", b"b/c"
        yield b"PRODUCE:", topic, b":", b"content"
        yield b"CONSUME:", topic
    yield b"PRODUCE:", b"id2", b":::", b"a", b":::", b"content:with:::colons"
    yield b"ACK:", b"id1"
    yield b"ACK:", b"id2"
    yield b"PING:", b""
    yield b"PING:", b"\r"


def _miniFramed(parts: Parts) -> bytes:
    return b"".join(parts) + b"\n"


# -- Identity, and FlexiMQ over WebSocket ----------------------------------------------------------

_UPGRADE = (
    b"GET %s HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


_KINDS = (b"\x81", b"\x82", b"\x89", b"\x8a")


def _identitySeeds() -> Iterator[Parts]:
    for channel in (b"a", b"b/c", "é".encode(), b"", b"x y"):
        for word in (b"SUBSCRIBE:", b"UNSUBSCRIBE:"):
            yield b"\x81", word, channel
        yield b"\x81", b"PUBLISH:", channel, b":", b"message"
    yield b"\x81", b"PUBLISH:a:", b"text||key=value"
    yield b"\x81", b"SUBSCRIBE"
    yield b"\x82", b"PUBLISH:a:", b"binary"
    yield b"\x89", b"ping"
    yield b"\x8a", b"pong"


def _webSocketFramed(parts: Parts) -> bytes:
    """Return a whole frame that is masked with zeros; only the first byte of its first part is the opcode.

    What would end the connection is made a binary message: unknown opcodes, texts that are none, long control frames.
    """
    first, *rest = parts
    body = b"".join(rest)[:65535]
    kind = first[:1] if first[:1] in _KINDS else b"\x82"
    if (kind == b"\x81" and not isUtf8(body)) or (kind > b"\x82" and len(body) > 125):
        kind = b"\x82"
    return kind + _lengthOf(body) + bytes(4) + body


def _lengthOf(body: bytes) -> bytes:
    size = len(body)
    return bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)


def _overWebSocket(seeds: Iterator[Parts], framed: Callable[[Parts], bytes]) -> Callable[[Parts], bytes]:
    return lambda parts: _webSocketFramed((b"\x82", framed(parts)))


def _deflatedSeeds() -> Iterator[Parts]:
    for body in (b"PUBLISH:a:x", b"SUBSCRIBE:a", bytes(100_000), b""):
        deflater = zlib.compressobj(wbits=-15)
        yield (deflater.compress(body) + deflater.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff"), b""


def _deflatedFramed(parts: Parts) -> bytes:
    """Return a compressed text message, masked with zeros."""
    body = b"".join(parts)[:65535]
    return b"\xc1" + _lengthOf(body) + bytes(4) + body


# -- HTTP ------------------------------------------------------------------------------------------


def _httpSeeds() -> Iterator[Parts]:
    for path in (b"/", b"/ws", b"/metrics?x=1", b"/healthz", b"/api/clients", b"/messaging?token=abc"):
        yield b"GET ", path, b" HTTP/1.1\r\n", b"Host: localhost\r\n", b"Authorization: Basic YTpi\r\n", b"\r\n"
        yield b"POST ", path, b" HTTP/1.0\r\n", b"Content-Length: 3\r\n", b"X-Forwarded-For: 1.2.3.4\r\n", b"\r\nabc"
    yield b"GET ", b"/ws", b" HTTP/1.1\r\n", b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b"Origin: null\r\n\r\n"
    upgrade = _UPGRADE % b"/"
    yield upgrade[:30], upgrade[30:90], upgrade[90:]


def _plainSeeds() -> Iterator[Parts]:
    """Requests on a connection that stays open; the last part is the body."""
    query = b"?message_id=1&key=a&priority=9&delay=0.5&expires=60"
    for path in (b"/topics/a", b"/topics/b/%c3%a9", b"/queues/q", b"/request/nobody/x"):
        for kind, body in (
            (b"application/json", b'{"a": [1, "\\u00e9", null, -1.5e3]}'),
            (b"application/x-ndjson", b'1\n"two"\n'),
            (b"text/plain", b"hello"),
            (b"application/msgpack", b"\x81\xa1a\x01"),
        ):
            head = b" HTTP/1.1\r\n", b"Host: localhost\r\n", b"Content-Type: %b\r\n" % kind
            yield b"POST ", path, b"", *head, b"FlexiMQ-Key: k\r\n" if path[1] in b"tq" else b"", body
            if path[1] in b"tq":
                yield b"POST ", path, query, *head, b"Expect: 100-continue\r\n", body
    take = b" HTTP/1.1\r\n", b"Host: localhost\r\n"
    yield b"POST ", b"/queues/q/take", b"?most=2&lease=5&create=true", *take, b""
    yield b"POST ", b"/queues/q/settle", b"", *take, b"Content-Type: application/json\r\n", b'{"ack": [1]}'
    yield b"OPTIONS ", b"/topics/a", b"", *take, b""


def _plainFramed(parts: Parts) -> bytes:
    """Return a request whose last part is its body."""
    return b"".join(parts[:-1]) + b"Content-Length: %d\r\n\r\n" % len(parts[-1]) + parts[-1]


class _NoScanner:
    """Takes everything; nothing in HTTP is scanned by us frame by frame."""

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())


FLEXI = Tongue(
    "fleximq", _flexiJoin(), tuple(_flexiSeeds()), _flexiFramed, lambda: TranscodedScanner(MOST, compiled=True)
)
STRICT = Tongue("fleximq strict", b"", FLEXI.seeds, _flexiFramed, lambda: choice.FlexiScanner(MOST))
BLIP = Tongue(
    "blipmq",
    _blipFramed(_blip(1, b"\0\1")) + _blipFramed(_blip(2, _blipName("key"))),
    tuple(_blipSeeds()),
    _blipFramed,
    lambda: choice.BlipScanner(MOST),
)
MINI = Tongue("minimq", b"PING:\n", tuple(_miniSeeds()), _miniFramed, lambda: LineScanner(MOST))
IDENTITY = Tongue("identity", _UPGRADE % b"/", tuple(_identitySeeds()), _webSocketFramed, _NoScanner, 512)
FLEXI_WS = Tongue(
    "fleximq over WebSocket",
    _UPGRADE % b"/ws" + _webSocketFramed((b"\x82", _flexiJoin())),
    FLEXI.seeds,
    _overWebSocket(_flexiSeeds(), _flexiFramed),
    _NoScanner,
    512,
)
HTTP = Tongue("HTTP", b"", tuple(_httpSeeds()), b"".join, _NoScanner, 64, True)
PLAIN = Tongue("plain HTTP", b"", tuple(_plainSeeds()), _plainFramed, _NoScanner, 512)
DEFLATED = Tongue(
    "permessage-deflate", _UPGRADE % b"/", tuple(_deflatedSeeds()), _deflatedFramed, _NoScanner, 512, True
)

#: All that is spoken by sessions.
SPOKEN = (*(FLEXI, BLIP, MINI, IDENTITY, FLEXI_WS, PLAIN) * 24, HTTP, HTTP, DEFLATED)
#: All whose scanners are fed.
SCANNED = (FLEXI, STRICT, BLIP, MINI)
