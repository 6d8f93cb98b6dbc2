"""Yields the checked frames of a segment in order, with a :class:`DamagedRange` for each range without valid frames.

Nothing is changed. After damage, the scan finds the next valid frame. A payload may contain bytes that look like a
frame, even a complete frame of this journal. So a frame is valid only if it carries its segment's id and its own
position and its check sum is right; no publisher knows the first or chooses the second. If the damaged frame's own
length leads to a frame that is chained to it, that frame is next, and the bytes between are not searched.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fleximq.journal.files.file_system import Files, readUpTo
from fleximq.journal.format.control_frames import decodeRemoved
from fleximq.journal.format.frame import HEADER_BYTES, MAGIC, FrameError, FrameHeader, FrameKind, checkFrame, readHeader

#: Bytes of one read for sequential scans.
LARGE = 4 << 20
#: Bytes of one read for single frames.
SMALL = 128 << 10


class Window:
    """One open file, up to ``end``; ``base`` is the position of its first byte, ``size`` the minimum number of bytes of
    one read. Reading raises OSError if the file cannot be read; so do all functions here.
    """

    __slots__ = ("_descriptor", "_files", "_from", "_held", "_size", "base", "end")

    def __init__(self, files: Files, descriptor: int, base: int, end: int, size: int = LARGE) -> None:
        self._files = files
        self._descriptor = descriptor
        self._size = size
        self._from = base
        self._held = b""
        self.base = base
        self.end = end

    def at(self, position: int, length: int) -> memoryview:
        """Return bytes from a position, fewer at the end of the file or the window; they stay valid."""
        length = min(length, self.end - position)
        if length <= 0:
            return memoryview(b"")
        start = position - self._from
        if start < 0 or start + length > len(self._held):
            selected = min(max(length, self._size), self.end - position)
            self._held = readUpTo(self._files, self._descriptor, selected, position - self.base)
            self._from = position
            start = 0
        return memoryview(self._held)[start : start + length]

    def find(self, wanted: bytes, start: int) -> int | None:
        """Return the first position of these bytes from ``start`` on, None if they do not occur."""
        while start < self.end:
            self.at(start, min(len(wanted), self.end - start))
            found = self._held.find(wanted, start - self._from)
            if found >= 0:
                return self._from + found if self._from + found + len(wanted) <= self.end else None
            behind = self._from + len(self._held) - len(wanted) + 1
            if behind <= start:
                return None
            start = behind
        return None


def frameAt(window: Window, position: int, segment: int | None) -> tuple[FrameHeader, memoryview]:
    """Return the checked frame at this position: its header, and all its bytes; ``segment`` None: of any segment.
    Raises FrameError if there is no valid frame; the text gives the reason.
    """
    header = readHeader(window.at(position, HEADER_BYTES))
    if header.position != position:
        raise FrameError(f"it says that it stands at {header.position}")
    if segment is not None and header.segment != segment:
        raise FrameError(f"it says that it is of segment {header.segment:016x}, not {segment:016x}")
    if header.length > window.end - position:
        raise FrameError(f"it ends {header.length - (window.end - position)} bytes behind the end of its segment")
    frame = window.at(position, header.length)
    checkFrame(header, frame)
    return header, frame


def nextFrame(window: Window, position: int, segment: int | None) -> int | None:
    """Return the position of the first valid frame after damage at ``position``, None if there is none."""
    chained = _chained(window, position, segment)
    if chained is not None:
        return chained
    start = position + 8
    while True:
        found = window.find(MAGIC, start)
        if found is None:
            return None
        if found % 8 == 0:
            try:
                frameAt(window, found, segment)
            except FrameError:
                pass
            else:
                return found
        start = found + 1


def _chained(window: Window, position: int, segment: int | None) -> int | None:
    """Return the end of the damaged frame, if its header is readable and a frame chained to it follows. If the header
    names another position, its length may be wrong as well.
    """
    try:
        damaged = readHeader(window.at(position, HEADER_BYTES))
        if damaged.position != position:
            return None
        header, _ = frameAt(window, position + damaged.length, segment)
    except FrameError:
        return None
    return header.position if header.previous == damaged.crc else None


class CompleteFrame(NamedTuple):
    """A valid frame; ``frame`` has all its bytes."""

    header: FrameHeader
    frame: memoryview


class DamagedRange(NamedTuple):
    """Bytes without valid frames, from ``position`` to ``until`` (exclusive); ``reason`` is a clause."""

    position: int
    until: int
    reason: str


def framesOf(
    window: Window, segment: int | None, start: int, atHead: bool = False
) -> Iterator[CompleteFrame | DamagedRange]:
    """Yield frames and damaged ranges from ``start``, the position of a frame, to the end of the window. Each frame
    must be chained to a valid frame directly before it; with ``atHead``, the first one to none. ``segment``: the id of
    the segment; None: the id in the first valid frame.
    """
    position = start
    previous: int | None = 0 if atHead else None
    while position < window.end:
        try:
            header, frame = frameAt(window, position, segment)
            if previous is not None and header.previous != previous:
                raise FrameError("it is not chained to the frame before it")
            until = _end(header, frame, window.end)
        except FrameError as error:
            behind = nextFrame(window, position, segment)
            until = window.end if behind is None else behind
            yield DamagedRange(position, until, str(error))
            previous = None
        else:
            segment = header.segment
            yield CompleteFrame(header, frame)
            previous = header.crc
        position = until


def _end(header: FrameHeader, frame: memoryview, end: int) -> int:
    """Return the position after this frame, or after the range that a REMOVED frame replaces, in this window."""
    if header.kind != FrameKind.REMOVED:
        return header.position + header.length
    until = decodeRemoved(header, frame)
    if until % 8 or until < header.position + header.length:
        raise FrameError(f"it says that what was taken out ends at {until}")
    return min(until, end)
