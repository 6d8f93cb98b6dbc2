"""Converts frames between the two layouts of FlexiMQ.

*Layout A* is the document's (section 2.1): fixed bytes, header, payload length, payload. In *layout B* the payload
length precedes the header. A frame has the same size in both. Only :class:`LayoutTranscoder`, before the scanner, and
the writers of clients with layout B know B; everything in between is in layout A.

Byte 26 of the first frame with a header shows the layout: 0x00, the first byte of a payload length, in B; the marker of
a MessagePack map or array in A. Frames without a header are identical in both.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from struct import Struct

from fleximq.errors import BadFraming
from fleximq.limits import BASE_BYTES, HEADER_BYTES
from fleximq.wire.fleximq_scanner import FIXED_BYTES, VERSION, FrameTooLarge
from fleximq.wire.receive_buffer import ReceiveBuffer

_headerLength = Struct(">22xI").unpack_from
_payloadLength = Struct(">Q").unpack_from
_lengths = Struct(">22xIQ").unpack_from


class Layout(Enum):
    """The position of the payload length."""

    A = "behind the header"
    B = "before the header"


def fromLayoutB(data: bytes, limit: int) -> bytes:
    """Return the complete and allowed frames at the beginning of ``data`` in layout A; they are as long there.

    :param limit: the maximum size of a message in bytes.
    """
    pieces: list[bytes] = []
    start, size = 0, len(data)
    while size - start >= BASE_BYTES and data[start] == VERSION:
        header, payload = _lengths(data, start)
        middle = start + BASE_BYTES + header
        end = middle + payload
        if header > HEADER_BYTES or end > size or end - start > limit:
            break
        fixed = start + FIXED_BYTES
        pieces += (data[start:fixed], data[fixed + 8 : middle], data[fixed : fixed + 8], data[middle:end])
        start = end
    return b"".join(pieces)


def toLayoutB(frames: bytes) -> bytes:
    """Return complete, adjacent frames of layout A in layout B."""
    pieces: list[bytes] = []
    start = 0
    while start < len(frames):
        fixed = start + FIXED_BYTES
        middle = fixed + _headerLength(frames, start)[0]
        end = middle + 8 + _payloadLength(frames, middle)[0]
        pieces += (frames[start:fixed], frames[middle : middle + 8], frames[fixed:middle], frames[middle + 8 : end])
        start = end
    return b"".join(pieces)


def framesWithinLayoutB(frames: bytes | memoryview, room: int) -> tuple[int, int]:
    """Return how many bytes, and how many frames, end within ``room`` bytes."""
    end = count = 0
    while end < len(frames):
        following = end + BASE_BYTES + sum(_lengths(frames, end))
        if following > room:
            break
        end = following
        count += 1
    return end, count


class LayoutTranscoder:
    """Turns a stream of unknown layout into layout A.

    ``layout`` is None until a frame with a header has begun. Once it is A, the stream is the same without the
    transcoder, which buffers no bytes of it then.

    :param limit: the maximum size of a message in bytes.
    :param turn: :func:`fromLayoutB`, or its compiled twin.
    """

    __slots__ = ("_buffer", "_headerMost", "_limit", "_turn", "layout")

    def __init__(self, limit: int, turn: Callable[[bytes, int], bytes] = fromLayoutB) -> None:
        self.layout: Layout | None = None
        self._limit = limit
        self._headerMost = min(HEADER_BYTES, limit - BASE_BYTES)
        self._turn = turn
        self._buffer = ReceiveBuffer()

    @property
    def buffered(self) -> int:
        """The number of buffered bytes of an unfinished frame."""
        return self._buffer.buffered

    def wholeRead(self, data: bytes) -> bytes | None:
        """Return a read in layout A if it consists of complete and allowed frames in layout B, as most do, else None.

        Saves :meth:`feed`, which costs a read 1 us more.
        """
        if self.layout is not Layout.B or self._buffer.buffered:
            return None
        frames = self._turn(data, self._limit)
        return frames if len(frames) == len(data) else None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield bytes for a scanner of layout A, which refuses the frames that are not allowed.

        A frame that a scanner of layout A could not refuse is refused here, after all earlier frames were yielded.

        :raises FrameTooLarge: the header or the message is over its limit (413).
        :raises BadFraming: the version is not 1, so the framing is unknown (400).
        """
        if self.layout is Layout.A:
            yield data
            return
        buffer = self._buffer.take(data)
        if buffer is None:
            return
        if self.layout is None:
            end = self._endOfBareFrames(buffer)
            if end:
                yield buffer[:end]
                buffer = buffer[end:]
            if not self._decides(buffer):
                return
        if self.layout is not Layout.B:
            yield buffer
            return
        frames = self._turn(buffer, self._limit)
        if frames:
            yield frames
        self._keep(buffer[len(frames) :])

    def _endOfBareFrames(self, buffer: bytes) -> int:
        """Return the end of the complete and allowed frames without a header."""
        start = 0
        while len(buffer) - start >= BASE_BYTES and buffer[start] == VERSION and not _headerLength(buffer, start)[0]:
            end = start + BASE_BYTES + _payloadLength(buffer, start + FIXED_BYTES)[0]
            if end > len(buffer) or end - start > self._limit:
                break
            start = end
        return start

    def _decides(self, rest: bytes) -> bool:
        """Tell whether to go on with these bytes: their layout is known now, or a scanner of layout A refuses them.
        Otherwise they are buffered.
        """
        needed = FIXED_BYTES
        if len(rest) >= FIXED_BYTES:
            header = _headerLength(rest)[0]
            if rest[0] != VERSION or header > self._headerMost:
                return True
            if header and len(rest) > FIXED_BYTES:
                self.layout = Layout.A if rest[FIXED_BYTES] else Layout.B
                return True
            if header:
                needed = FIXED_BYTES + 1
            elif len(rest) < BASE_BYTES:
                needed = BASE_BYTES
            else:
                needed = BASE_BYTES + _payloadLength(rest, FIXED_BYTES)[0]
                if needed > self._limit:
                    return True
        self._buffer.keep(rest, needed)
        return False

    def _keep(self, rest: bytes) -> None:
        """Buffer a cut frame of layout B; raise the error of one that is not allowed."""
        needed = BASE_BYTES
        if len(rest) >= BASE_BYTES:
            header, payload = _lengths(rest)
            if header > HEADER_BYTES:
                raise FrameTooLarge(f"the header has {header} bytes, but at most {HEADER_BYTES} are allowed")
            if rest[0] != VERSION:
                raise BadFraming(f"version {rest[0]} is not known, only {VERSION}")
            needed += header + payload
            if needed > self._limit:
                raise FrameTooLarge(f"the message has {needed} bytes, but at most {self._limit} are allowed")
        self._buffer.keep(rest, needed)
