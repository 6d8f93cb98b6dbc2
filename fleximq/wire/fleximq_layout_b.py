"""Detects and converts the second layout of FlexiMQ frames.

*Layout A* is the document's (section 2.1): fixed bytes, header, payload length, payload. In *layout B* the payload
length precedes the header. The broker uses only A inside; B is converted on input and output. Byte 26 of the first
frame with a header decides: 0x00, the first byte of a payload length, in B; the marker of a MessagePack map or array in
A. Frames without a header are identical in both.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from struct import Struct
from typing import ClassVar

from fleximq.errors import BadFraming
from fleximq.limits import BASE_BYTES, HEADER_BYTES
from fleximq.wire.fleximq_scanner import FIXED_BYTES, VERSION, FlexiRun, FlexiScanner, FrameTooLarge, Span
from fleximq.wire.receive_buffer import ReceiveBuffer

_headerLength = Struct(">22xI").unpack_from
_lengths = Struct(">22xIQ").unpack_from
_payloadLength = Struct(">Q").unpack_from


class Layout(Enum):
    """The position of the payload length."""

    A = "behind the header"
    B = "before the header"


class LayoutDetector:
    """Scans a stream of unknown layout, and continues in the layout it detects.

    ``layout`` is None until a frame with a header has begun. Frames are yielded in layout A.

    :param limit: the maximum size of a message in bytes.
    """

    __slots__ = ("_buffer", "_limit", "_maxHeader", "layout", "settled")
    #: The scanner of each layout.
    scanners: ClassVar[dict[Layout, Callable[[int], "FlexiScanner | LayoutBScanner"]]]

    def __init__(self, limit: int) -> None:
        self.layout: Layout | None = None
        self._limit = limit
        self._maxHeader = min(HEADER_BYTES, limit - BASE_BYTES)
        self._buffer = ReceiveBuffer()
        #: The scanner to feed from now on, once the layout is known.
        self.settled: FlexiScanner | LayoutBScanner | None = None

    @property
    def buffered(self) -> int:
        """The number of buffered bytes of an unfinished frame."""
        return self._buffer.buffered if self.settled is None else self.settled.buffered

    def feed(self, data: bytes) -> Iterator[FlexiRun]:
        """Yield runs as :meth:`FlexiScanner.feed` does, with the same errors."""
        for envelope, source, start, end, count in self.spans(data):
            yield envelope, source[start:end], count

    def spans(self, data: bytes) -> Iterator[Span]:
        """Yield spans as :meth:`FlexiScanner.spans` does, with the same errors."""
        if self.settled is not None:
            yield from self.settled.spans(data)
            return
        buffer = self._buffer.take(data)
        if buffer is None:
            return
        start = 0
        while len(buffer) - start >= FIXED_BYTES:
            if header := _headerLength(buffer, start)[0]:
                isSound = buffer[start] == VERSION and header <= self._maxHeader
                if isSound and len(buffer) - start > FIXED_BYTES:
                    self.layout = Layout.A if buffer[start + FIXED_BYTES] else Layout.B
                    self.settled = self.scanners[self.layout](self._limit)
                    yield from self.settled.spans(buffer[start:])
                else:
                    # An error in the fixed bytes is raised before the layout is known, so it is answered in layout A.
                    list(FlexiScanner(self._limit).feed(buffer[start : start + FIXED_BYTES]))
                    self._buffer.keep(buffer[start:], FIXED_BYTES + 1)
                return
            end = start + BASE_BYTES
            if len(buffer) >= end:
                end += _payloadLength(buffer, start + FIXED_BYTES)[0]
            if buffer[start] != VERSION or end - start > self._limit:
                list(FlexiScanner(self._limit).feed(buffer[start:end]))  # raises the error
            if len(buffer) < end:
                self._buffer.keep(buffer[start:], end - start)
                return
            yield buffer[start : start + FIXED_BYTES], buffer, start, end, 1
            start = end
        if start < len(buffer):
            self._buffer.keep(buffer[start:], FIXED_BYTES)


class LayoutBScanner:
    """Scans frames of layout B and yields them, one by one, in layout A.

    :param limit: the maximum size of a message in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = ReceiveBuffer()

    @property
    def buffered(self) -> int:
        """The number of buffered bytes of an unfinished frame."""
        return self._buffer.buffered

    def feed(self, data: bytes) -> Iterator[FlexiRun]:
        """Yield runs as :meth:`FlexiScanner.feed` does, with the same errors."""
        buffer = self._buffer.take(data)
        if buffer is None:
            return
        start = 0
        while len(buffer) - start >= BASE_BYTES:
            header, payload = self._checked(buffer, start)
            middle = start + BASE_BYTES + header
            end = middle + payload
            if end > len(buffer):
                self._buffer.keep(buffer[start:], end - start)
                return
            fixed = start + FIXED_BYTES
            envelope = buffer[start:fixed] + buffer[fixed + 8 : middle]
            yield envelope, b"".join((envelope, buffer[fixed : fixed + 8], buffer[middle:end])), 1
            start = end
        self._buffer.keep(buffer[start:], BASE_BYTES)

    def spans(self, data: bytes) -> Iterator[Span]:
        """Yield spans as :meth:`FlexiScanner.spans` does, each run a source of its own."""
        return asSpans(self.feed(data))

    def _checked(self, buffer: bytes, start: int) -> tuple[int, int]:
        """Return the lengths of header and payload."""
        header, payload = _lengths(buffer, start)
        if header > HEADER_BYTES:
            raise FrameTooLarge(f"the header has {header} bytes, but at most {HEADER_BYTES} are allowed")
        if buffer[start] != VERSION:
            raise BadFraming(f"version {buffer[start]} is not known, only {VERSION}")
        if BASE_BYTES + header + payload > self._limit:
            raise FrameTooLarge(
                f"the message has {BASE_BYTES + header + payload} bytes, but at most {self._limit} are allowed"
            )
        return header, payload


LayoutDetector.scanners = {Layout.A: FlexiScanner, Layout.B: LayoutBScanner}


def asSpans(runs: Iterator[FlexiRun]) -> Iterator[Span]:
    """Yield each run as a span of itself."""
    for envelope, frames, count in runs:
        yield envelope, frames, 0, len(frames), count


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
        next = end + BASE_BYTES + sum(_lengths(frames, end))
        if next > room:
            break
        end = next
        count += 1
    return end, count
