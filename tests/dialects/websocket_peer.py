"""A WebSocket client for tests: encodes masked frames, decodes what a server sends, and knows nothing of our code.

::

    peer = WebSocketPeer(IdentityFactory(context)).upgrade()
    peer.sayText("SUBSCRIBE:news")
    self.assertEqual(peer.texts(), [...])
"""

import struct
from typing import Any, NamedTuple

from twisted.internet.interfaces import IAddress

from tests.dialects.conversations import HERE, Peer

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x5a\xa5\x0f\xf1"
#: The key and the answer to it of RFC 6455, section 1.3.
KEY, ACCEPT = b"dGhlIHNhbXBsZSBub25jZQ==", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
DEFLATE = "permessage-deflate; client_max_window_bits"


class Frame(NamedTuple):
    """A frame as it stands on the wire; ``rsv`` are its three reserved bits as a number."""

    opcode: int
    payload: bytes
    fin: bool = True
    rsv: int = 0


def masked(
    opcode: int,
    payload: bytes = b"",
    fin: bool = True,
    rsv: int = 0,
    mask: bytes | None = MASK,
    width: int | None = None,
    length: int | None = None,
) -> bytes:
    """Return a frame as a client sends it.

    :param mask: None leaves it unmasked, which no client may do.
    :param width: bytes of the extended length (0, 2 or 8) where the shortest is not wanted.
    :param length: what the head says, where that is not the length of the payload.
    """
    size = len(payload) if length is None else length
    if width is None:
        width = 0 if size < 126 else 2 if size < 1 << 16 else 8
    short = size if width == 0 else 126 if width == 2 else 127
    head = bytes([fin << 7 | rsv << 4 | opcode, (mask is not None) << 7 | short])
    head += b"" if width == 0 else size.to_bytes(width, "big")
    if mask is None:
        return head + payload
    return head + mask + bytes(byte ^ mask[place & 3] for place, byte in enumerate(payload))


def text(words: str) -> bytes:
    """Return a text as one frame of a client."""
    return masked(TEXT, words.encode())


def decode(data: bytes) -> tuple[list[Frame], bytes]:
    """Return the whole frames of a server, and the bytes behind them.

    :raises ValueError: for a masked frame, and for a length that is not written as short as possible.
    """
    frames = []
    while len(data) >= 2:
        first, second = data[:2]
        width = {126: 2, 127: 8}.get(second, 0)
        size = int.from_bytes(data[2 : 2 + width], "big") if width else second
        if len(data) < 2 + width + size:
            break
        if second & 0x80:
            raise ValueError("a server must not mask")
        if (width == 2 and size < 126) or (width == 8 and size < 1 << 16):
            raise ValueError("a length is longer than it has to be")
        payload, data = data[2 + width : 2 + width + size], data[2 + width + size :]
        frames.append(Frame(first & 15, payload, bool(first & 0x80), first >> 4 & 7))
    return frames, data


class WebSocketPeer(Peer):
    """Somebody connected to a factory's WebSocket.

    ``head`` is the answer to the upgrade. What was received and not asked for yet is kept.
    """

    def __init__(self, factory: Any, address: IAddress = HERE, piece: int = 0) -> None:
        super().__init__(factory, address, piece)
        self.head = b""
        self._received = b""

    def upgrade(self, behind: bytes = b"", path: str = "/", **fields: str) -> "WebSocketPeer":
        """Ask for a WebSocket and read the answer; underscores in names of header fields stand for hyphens.

        :param behind: what is sent in one go with the request.
        """
        lines = [
            f"GET {path} HTTP/1.1",
            "Host: localhost:7890",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {KEY.decode()}",
            *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items()),
        ]
        self.say(("\r\n".join(lines) + "\r\n\r\n").encode() + behind)
        self.head, _, self._received = self.heard().partition(b"\r\n\r\n")
        return self

    def sayText(self, *texts: str) -> "WebSocketPeer":
        """Send each text as a frame, all in one go."""
        self.say(b"".join(map(text, texts)))
        return self

    def frames(self) -> list[Frame]:
        """Return the frames received since the last time."""
        frames, self._received = decode(self._received + self.heard())
        return frames

    def texts(self) -> list[str]:
        """Return the texts received since the last time; whatever else came is an error.

        :raises ValueError: if something else came.
        """
        frames = self.frames()
        if any(frame.opcode != TEXT or not frame.fin or frame.rsv for frame in frames):
            raise ValueError(f"not only texts: {frames}")
        return [frame.payload.decode() for frame in frames]

    def askText(self, *texts: str) -> list[str]:
        """Send texts and return the texts that came back."""
        return self.sayText(*texts).texts()

    def closeCode(self) -> int | None:
        """Return the code of the close frame that came last; None if the last frame is none, or has no code."""
        frames = self.frames()
        if not frames or frames[-1].opcode != CLOSE or not frames[-1].payload:
            return None
        (code,) = struct.unpack(">H", frames[-1].payload[:2])
        return int(code)

    @property
    def aborted(self) -> bool:
        """Whether the connection was dropped without sending what waited."""
        return bool(self.transport.disconnected)
