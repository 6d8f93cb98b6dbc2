"""A WebSocket client of one page, on a blocking socket, for tests that play a browser against a running broker.

It masks what it sends with zeros, which RFC 6455 allows, takes unfragmented frames, and does not negotiate extensions.
"""

import base64
import os
import socket
import struct
from types import TracebackType

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class Refused(Exception):
    """The server did not upgrade the connection; the text is its status line."""


class WebSocketClient:
    """Connects to ``address``, asks for ``path`` and upgrades; a context manager that closes the socket.

    A socket that is connected already may take the place of the address.

    :raises Refused: if the answer is anything but 101.
    """

    def __init__(
        self,
        address: tuple[str, int] | socket.socket,
        path: str = "/",
        seconds: float = 10.0,
        headers: tuple[str, ...] = (),
    ) -> None:
        if isinstance(address, socket.socket):
            self._socket = address
            host = "localhost"
        else:
            self._socket = socket.create_connection(address, timeout=seconds)
            host = f"{address[0]}:{address[1]}"
        self._stream = self._socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            *headers,
        ]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        status = self._stream.readline().decode("latin-1").strip()
        while self._stream.readline() not in (b"\r\n", b""):
            pass
        if " 101 " not in f"{status} ":
            self.close()
            raise Refused(status)

    def sendText(self, text: str) -> None:
        """Send one text frame."""
        self.sendFrame(TEXT, text.encode())

    def sendFrame(self, kind: int, payload: bytes) -> None:
        """Send one whole frame of any kind."""
        size = len(payload)
        if size < 126:
            length = bytes([0x80 | size])
        elif size < 1 << 16:
            length = struct.pack(">BH", 0x80 | 126, size)
        else:
            length = struct.pack(">BQ", 0x80 | 127, size)
        self._socket.sendall(bytes([0x80 | kind]) + length + bytes(4) + payload)

    def receiveText(self) -> str:
        """Return the next text message; PINGs on the way are answered.

        :raises ConnectionError: if the server closes instead.
        :raises TimeoutError: if nothing comes in time.
        """
        while True:
            kind, payload = self.receiveFrame()
            if kind == TEXT:
                return payload.decode()
            if kind == PING:
                self.sendFrame(PONG, payload)
            if kind == CLOSE:
                raise ConnectionError(f"closed by the server: {payload!r}")

    def receiveFrame(self) -> tuple[int, bytes]:
        """Return the kind and the payload of the next frame.

        :raises ConnectionError: at the end of the stream.
        """
        first, size = self._read(2)
        if size == 126:
            (size,) = struct.unpack(">H", self._read(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._read(8))
        return first & 0x0F, self._read(size)

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionError("the stream ended")
        return data

    def close(self) -> None:
        """Close the socket, without the closing handshake."""
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> "WebSocketClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
