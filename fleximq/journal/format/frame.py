"""The frames of the journal: a checked header and a body. Pure; docs/reference/journal-format.rst defines every byte.

First the body is encoded; :func:`seal` adds position and check sum when the frame is written.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from struct import Struct, error
from typing import Any, NamedTuple

from fleximq.values.records import TopicBounds

try:
    from zlib_ng.zlib_ng import crc32  # the same sums, ten times as fast
except ImportError:
    from zlib import crc32

MAGIC = b"FXJ1"
VERSION = 1
HEADER_BYTES = 64
#: Maximum size of a frame, except a frame with one larger record.
FULL_FRAME_BYTES = 1 << 20
#: Maximum length in a header; a larger one is taken for damage.
MAX_FRAME_BYTES = 0x7FFFFFF8

#: Flag: all bytes before this frame were on disk when it was written.
SYNCED = 1

_header = Struct("<4sHBBIIIIQQQqq")
_beforeCrc = Struct("<4sHBBI")
_afterCrc = Struct("<IIQQQqq")
_crc = Struct("<I")
_AFTER_CRC = 16


class FrameError(ValueError):
    """These bytes are not a frame of the journal, or not of the expected kind; the text gives the reason."""


class FrameKind(IntEnum):
    """The content of a frame."""

    SEGMENT = 0
    RECORDS = 1
    SPARSE_RECORDS = 2
    STAGED = 3
    TRANSACTION = 4
    NOTES = 5
    GAP = 6
    CHECKPOINT = 7
    REMOVED = 8
    LOST = 9


class FrameHeader(NamedTuple):
    """The first 64 bytes of a frame. ``flags`` are 0 or :data:`SYNCED`. ``length`` is in bytes, with the header;
    ``crc`` covers all but itself; ``previous`` is the crc of the frame before it in its segment, 0 in the first.
    ``count`` and ``baseOffset`` give the offsets of its records; a frame without records has the offset of the next
    one. Times are microseconds since 1970.
    """

    version: int
    kind: int
    flags: int
    length: int
    crc: int
    previous: int
    count: int  # type: ignore[assignment]  # nobody counts the values of a header
    segment: int
    position: int
    baseOffset: int
    firstTime: int
    lastTime: int


class Frame:
    """A frame before its position is known. ``pieces`` are the buffers of its body, ``length - 64`` bytes, a multiple
    of 8. ``topicCounts`` are those of its records, with offsets relative to ``baseOffset``.
    """

    __slots__ = ("baseOffset", "count", "firstTime", "kind", "lastTime", "length", "pieces", "topicCounts")

    def __init__(
        self,
        kind: FrameKind,
        pieces: Sequence[bytes | memoryview],
        *,
        count: int = 0,
        baseOffset: int = 0,
        firstTime: int = 0,
        lastTime: int = 0,
        topicCounts: Mapping[str, TopicBounds] | None = None,
    ) -> None:
        self.kind = kind
        self.pieces = pieces
        self.length = HEADER_BYTES + sum(map(len, pieces))
        self.count = count
        self.baseOffset = baseOffset
        self.firstTime = firstTime
        self.lastTime = lastTime
        self.topicCounts = topicCounts if topicCounts is not None else {}


def seal(
    frame: Frame, segment: int, position: int, previous: int, synced: bool = False
) -> tuple[list[bytes | memoryview], int]:
    """Return the buffers of a frame to be written, those of the body not copied, and its crc, which the next frame
    needs.

    :param segment: the random id of the segment.
    :param position: the position of the frame's first byte, counted over all segments.
    :param previous: the crc of the frame before it in the segment, 0 for the first.
    :param synced: all earlier bytes are on disk before this frame is written.
    """
    before = _beforeCrc.pack(MAGIC, VERSION, frame.kind, SYNCED * synced, frame.length)
    after = _afterCrc.pack(previous, frame.count, segment, position, frame.baseOffset, frame.firstTime, frame.lastTime)
    crc = crc32(after, crc32(before))
    for piece in frame.pieces:
        crc = crc32(piece, crc)
    return [before + _crc.pack(crc) + after, *frame.pieces], crc


def reseal(frame: bytes, previous: int) -> tuple[bytes, int]:
    """Return a complete frame with another ``previous``, and its new crc."""
    tail = _crc.pack(previous) + frame[_AFTER_CRC + 4 :]
    crc = crc32(tail, crc32(frame[:12]))
    return frame[:12] + _crc.pack(crc) + tail, crc


def readHeader(buffer: Any, at: int = 0) -> FrameHeader:
    """Return the header at index ``at`` of a buffer; only :func:`checkFrame` verifies the frame. Raises FrameError if
    there are fewer than 64 bytes; magic, version, flags or length are impossible.
    """
    try:
        magic, *fields = _header.unpack_from(buffer, at)
    except error:
        raise FrameError(f"{max(0, len(buffer) - at)} bytes are no frame header, it has {HEADER_BYTES}") from None
    if magic != MAGIC:
        raise FrameError(f"a frame begins with {MAGIC!r}, not with {bytes(magic)!r}")
    header = FrameHeader(*fields)
    if header.version != VERSION:
        raise FrameError(f"version {header.version} of the format is not known, only {VERSION}")
    if header.flags & ~SYNCED:
        raise FrameError(f"the flags {header.flags} are not known, only {SYNCED}")
    if header.length % 8 or not HEADER_BYTES < header.length <= MAX_FRAME_BYTES:
        raise FrameError(f"a frame cannot have {header.length} bytes")
    return header


def checkFrame(header: FrameHeader, frame: Any) -> None:
    """Check the bytes of a complete frame, header included, against its check sum. Raises FrameError."""
    view = memoryview(frame)
    if len(view) != header.length:
        raise FrameError(f"the frame has {len(view)} bytes instead of {header.length}")
    if crc32(view[_AFTER_CRC:], crc32(view[:12])) != header.crc:
        raise FrameError("the check sum is wrong")


def completeFrame(buffer: Any, at: int = 0) -> tuple[FrameHeader, memoryview]:
    """Return the checked frame at index ``at`` of a buffer: its header, and a view of its bytes. Raises FrameError."""
    header = readHeader(buffer, at)
    frame = memoryview(buffer)[at : at + header.length]
    checkFrame(header, frame)
    return header, frame


def padding(length: int) -> bytes:
    """Return the zero bytes that extend a length to the next multiple of 8."""
    return bytes(-length % 8)
