"""The bytes of WebSocket that the benchmark needs: a handshake, and whole text frames (RFC 6455)."""

import base64
import os
import random
import struct

_TEXT, _PING, _PONG = 0x81, 0x89, 0x8A
#: Masks are random as clients have to make them, but the same in every run.
_masks = random.Random(6455)


def upgrade(port: int, path: str = "/") -> bytes:
    """Return a client's request for a WebSocket without extensions."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
    return "\r\n".join(lines).encode()


def fromServer(text: bytes, first: int = _TEXT) -> bytes:
    """Return a server's frame."""
    return bytes([first]) + _length(len(text), 0) + text


def fromClient(text: bytes, first: int = _TEXT) -> bytes:
    """Return a client's frame, with a mask of its own."""
    mask = _masks.randbytes(4)
    key = int.from_bytes((mask * (len(text) // 4 + 1))[: len(text)], "big")
    masked = (int.from_bytes(text, "big") ^ key).to_bytes(len(text), "big")
    return bytes([first]) + _length(len(text), 0x80) + mask + masked


def ping(text: bytes) -> bytes:
    """Return a client's PING."""
    return fromClient(text, _PING)


def pong(text: bytes) -> bytes:
    """Return the server's answer to it."""
    return fromServer(text, _PONG)


def texts(said: bytes) -> list[bytes]:
    """Return the texts of a server's whole frames.

    :raises ValueError: if the last one is incomplete.
    """
    found = []
    while said:
        if len(said) < 2:
            raise ValueError("half a frame")
        size, start = said[1], 2
        if size == 126:
            size, start = int.from_bytes(said[2:4], "big"), 4
        if len(said) < start + size:
            raise ValueError("half a frame")
        found.append(said[start : start + size])
        said = said[start + size :]
    return found


def _length(size: int, masked: int) -> bytes:
    if size < 126:
        return bytes([size | masked])
    if size < 1 << 16:
        return struct.pack(">BH", 126 | masked, size)
    return struct.pack(">BQ", 127 | masked, size)
