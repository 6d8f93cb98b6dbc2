"""Splits the bytes of a connection into the heads and bodies of HTTP/1.1 requests. Hot.

A request that arrived whole costs one search and two slices. A head is bounded by its bytes, a body by the limit that
its request has, before more is buffered. Framing is strict, since a proxy that reads it otherwise would take a part of
one request for another one (request smuggling): lines end with CR LF, a chunk's size has hexadecimal digits only.
"""

import re

from fleximq.dialects.http.format.request_head import HEAD_BYTES, HttpError

_END = b"\r\n\r\n"
#: The size of a chunk, perhaps with an extension, which is ignored.
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[\t -~]*)?")
#: Maximum size of that line.
_LINE_BYTES = 256
#: In place of a length: the body has chunks.
CHUNKED = -1


class RequestScanner:
    """One connection's input. Call :meth:`head` until it returns one, :meth:`expect`, then :meth:`body` likewise."""

    __slots__ = ("_data", "_isChunked", "_left", "_limit", "_parts", "_place", "_searched")

    def __init__(self) -> None:
        self._data = b""
        self._place = self._searched = 0  # in the data
        self._left: int | None = 0  # bytes of the body or chunk; None: the line with a chunk's size is next
        self._limit = 0
        self._isChunked = False
        self._parts = bytearray()

    @property
    def buffered(self) -> int:
        """The number of buffered bytes."""
        return len(self._data) - self._place + len(self._parts)

    def feed(self, data: bytes) -> None:
        """Add a read."""
        if self._place == len(self._data):
            self._data, self._searched = data, 0
        else:
            self._data = self._data[self._place :] + data
            self._searched = max(0, self._searched - self._place)
        self._place = 0

    def rest(self) -> bytes:
        """Remove and return the input after the last request."""
        rest, self._data, self._place, self._searched = self._data[self._place :], b"", 0, 0
        return rest

    def head(self) -> bytes | None:
        """Return the next head without its empty line, None if it is incomplete; raises HttpError 431."""
        data, place = self._data, self._place
        if place == len(data):
            return None
        end = data.find(_END, max(place, self._searched), place + HEAD_BYTES)
        if end < 0:
            if len(data) - place >= HEAD_BYTES:
                raise HttpError(431, f"the head of a request may have {HEAD_BYTES} bytes")
            self._searched = max(place, len(data) - len(_END) + 1)
            return None
        self._place = self._searched = end + len(_END)
        return data[place:end]

    def unread(self, head: bytes) -> None:
        """Put the head that was just returned back."""
        self._place -= len(head) + len(_END)
        self._searched = self._place

    def expect(self, length: int, limit: int) -> None:
        """Read a body of this length next, or :data:`CHUNKED` with at most ``limit`` bytes."""
        self._isChunked = length == CHUNKED
        self._left, self._limit = None if self._isChunked else length, limit

    def body(self) -> bytes | None:
        """Return the complete body, None while it is incomplete; raises HttpError 400 or 413 for bad chunks."""
        if self._isChunked:
            return self._chunks()
        data, place, left = self._data, self._place, self._left or 0
        end = place + left
        if end <= len(data) and not self._parts:
            self._place = self._searched = end
            return data[place:end]
        return self._taken() if self._take(left) else None

    def _take(self, left: int) -> bool:
        """Move so many bytes to the parts; return whether they have arrived."""
        data, place = self._data, self._place
        end = min(place + left, len(data))
        self._parts += data[place:end] if place or end < len(data) else data
        self._place = self._searched = end
        self._left = left - (end - place)
        return not self._left

    def _taken(self) -> bytes:
        body, self._parts = bytes(self._parts), bytearray()
        return body

    def _chunks(self) -> bytes | None:
        while True:
            if self._left is None:
                size = self._size()
                if size is None:
                    return None
                if not size:
                    self._left, self._isChunked = 0, False
                    return self._taken()
                if len(self._parts) + size > self._limit:
                    raise HttpError(413, f"a body of at most {self._limit} bytes is taken here")
                self._left = size
            if self._left and not self._take(self._left):
                return None
            if not self._skip(b"\r\n"):
                return None
            self._left = None

    def _size(self) -> int | None:
        """Return the size of the next chunk, with the empty line after the last one; None if it is incomplete."""
        data, place = self._data, self._place
        end = data.find(b"\r\n", place, place + _LINE_BYTES)
        if end < 0:
            if len(data) - place >= _LINE_BYTES:
                raise HttpError(400, "the size of a chunk is malformed")
            return None
        found = _CHUNK.fullmatch(data, place, end)
        if found is None:
            raise HttpError(400, "the size of a chunk is malformed")
        size = int(found[1], 16)
        if not size and not self._skip(data[place:end] + _END, "trailers are not taken"):
            return None
        if size:
            self._place = self._searched = end + 2
        return size

    def _skip(self, wanted: bytes, words: str = "a chunk is longer than its size") -> bool:
        """Skip these bytes, return whether they have arrived; raises HttpError if others stand there."""
        found = self._data[self._place : self._place + len(wanted)]
        if not wanted.startswith(found):
            raise HttpError(400, words)
        if len(found) < len(wanted):
            return False
        self._place = self._searched = self._place + len(wanted)
        return True
