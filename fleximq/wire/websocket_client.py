"""The client side of a WebSocket that carries a stream of bytes, without any I/O (RFC 6455).

Output is sent in masked binary frames; the payloads of incoming binary frames form one stream. Text frames are refused.
No extensions are offered.
"""

import base64
import hashlib
import os
from collections.abc import Callable

from fleximq.errors import BadFraming
from fleximq.wire.receive_buffer import ReceiveBuffer
from fleximq.wire.websocket_frame import CLOSE, HEAD_BYTES, PONG, endOfFrame, frameHead, hasHead, headBytes

#: RFC 6455, section 1.3: a server appends this to the key before it hashes.
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#: Maximum size of the answer to the handshake.
_ANSWER_BYTES = 16_384
_END = b"\r\n\r\n"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_FINAL, _RESERVED, _KIND, _MASKED = 0x80, 0x70, 0x0F, 0x80
_CONTROL_BYTES = 125


class WebSocketClientStream:
    """One connection.

    ``due`` holds bytes to send unchanged: the handshake, and answers to PING and CLOSE. ``isOpen``: the server has
    accepted the WebSocket. ``isClosed``: the server has closed it.

    :param host: the host and port, as in the URL.
    :param path: the path with its query; "" is "/".
    :param protocol: the subprotocol to request.
    :param limit: the maximum size of a frame in bytes.
    :param random: returns this number of random bytes.
    :param isText: use text frames instead of binary ones; :meth:`pieces` returns each.
    """

    def __init__(
        self,
        host: str,
        path: str,
        protocol: str,
        limit: int,
        random: Callable[[int], bytes] = os.urandom,
        isText: bool = False,
    ) -> None:
        self._limit = limit
        self._random = random
        self._buffer = ReceiveBuffer()
        key = base64.b64encode(random(16))
        self._accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
        self._protocol = protocol
        self._inFragments = False
        self._pong = b""
        self._data = _TEXT if isText else _BINARY
        self.isOpen = self.isClosed = False
        lines = (
            f"GET {path or '/'} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key.decode()}",
            f"Sec-WebSocket-Protocol: {protocol}",
        )
        self.due: list[bytes] = [("\r\n".join(lines)).encode() + _END]

    def framed(self, data: bytes) -> bytes:
        """Return bytes of the stream as a frame to send."""
        return self._masked(_FINAL | self._data, data)

    def _masked(self, first: int, payload: bytes) -> bytes:
        head = frameHead(first, len(payload))
        mask = self._random(4)
        return b"".join((head[:1], bytes([head[1] | _MASKED]), head[2:], mask, _xor(payload, mask)))

    def received(self, data: bytes) -> bytes:
        """Parse bytes that were read, and return their part of the stream.

        :raises BadFraming: it is no WebSocket, or was not agreed to; the connection is unusable after that.
        """
        pieces = self.pieces(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pieces(self, data: bytes) -> list[bytes]:
        """Parse bytes that were read, and return the payload of each data frame; errors as :meth:`received`."""
        buffer = self._buffer.take(data)
        if buffer is None:
            return []
        start = 0
        if not self.isOpen:
            end = buffer.find(_END)
            if end < 0:
                if len(buffer) > _ANSWER_BYTES:
                    raise BadFraming("the answer to the WebSocket handshake has no end")
                self._buffer.keep(buffer, len(buffer) + 1)
                return []
            self._agree(buffer[:end])
            start = end + len(_END)
        pieces: list[bytes] = []
        size = len(buffer)
        while start < size and not self.isClosed:
            end = endOfFrame(buffer, start)
            if end - start > self._limit + HEAD_BYTES:
                raise BadFraming(f"a WebSocket frame has more than {self._limit} bytes")
            if end > size or not hasHead(buffer, start):
                self._buffer.keep(buffer[start:], max(end - start, size - start + 1))
                break
            self._frame(buffer, start, end, pieces)
            start = end
        return pieces

    def _agree(self, answer: bytes) -> None:
        status, *lines = answer.decode("latin-1").split("\r\n")
        if status.split(" ")[1:2] != ["101"]:
            raise BadFraming(f"the server does not speak WebSocket there: {status[:100]}")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if fields.get("sec-websocket-accept") != self._accept:
            raise BadFraming("the server has not understood the WebSocket handshake")
        if fields.get("sec-websocket-protocol", self._protocol) != self._protocol:
            raise BadFraming(f"the server does not speak {self._protocol} in its WebSockets")
        self.isOpen = True

    def _frame(self, buffer: bytes, start: int, end: int, pieces: list[bytes]) -> None:
        kind = buffer[start] & _KIND
        if buffer[start] & _RESERVED or buffer[start + 1] & _MASKED:
            raise BadFraming("a WebSocket frame is masked or has an extension, and a server's must not")
        payload = buffer[start + headBytes(buffer[start + 1]) : end]
        if kind in (_CONTINUATION, self._data):
            if (kind == _CONTINUATION) != self._inFragments:
                raise BadFraming("a WebSocket message begins inside another one, or goes on without a beginning")
            self._inFragments = not buffer[start] & _FINAL
            pieces.append(payload)
            return
        if len(payload) > _CONTROL_BYTES or not buffer[start] & _FINAL or kind not in (_CLOSE, _PING, _PONG):
            raise BadFraming(f"a WebSocket frame of kind {kind} breaks the rules")
        if kind == _PING:
            # RFC 6455, section 5.5.3: the last PING suffices, so a server that reads nothing cannot fill ``due``.
            if self.due and self.due[-1] is self._pong:
                self.due.pop()
            self._pong = self._masked(PONG, payload)
            self.due.append(self._pong)
        elif kind == _CLOSE:
            self.isClosed = True
            self.due.append(self.closing())

    def closing(self) -> bytes:
        """Return the CLOSE frame."""
        return self._masked(CLOSE, b"\x03\xe8")


def _xor(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    full = (mask * ((size >> 2) + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(full, "little")).to_bytes(size, "little")
