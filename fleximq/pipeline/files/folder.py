"""Read access to a journal's folder while its broker may be writing: locks and changes no file. Files may grow, be
replaced by shorter ones, or be removed at any moment.
"""

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from fleximq.errors import JournalError, systemReason
from fleximq.journal.files.file_system import Files, readFile
from fleximq.journal.files.folder_files import END, IDENTITY, readEnd, readIdentity
from fleximq.journal.files.frame_scan import LARGE, SMALL, CompleteFrame, Window, framesOf
from fleximq.journal.files.segment_table import segmentBases, segmentName
from fleximq.journal.format.control_frames import decodeGap
from fleximq.journal.format.frame import HEADER_BYTES, SYNCED, FrameError, FrameHeader, FrameKind, readHeader

#: How often the end file is read while it is being written, and the seconds in between.
_LOOKS, _BETWEEN = 100, 0.001


class End(NamedTuple):
    """The end of all committed frames: a position, and the offset of the next record."""

    position: int
    offset: int


class Folder:
    """The folder of the journal ``id``; for one thread. Raises JournalError if it is none or unreadable."""

    def __init__(self, path: str, files: Files | None = None, sleep: Callable[[float], None] = time.sleep) -> None:
        self.path = path
        self.files = files or Files()
        self._sleep = sleep
        self._open: dict[int, tuple[int, int]] = {}
        try:
            self.id = readIdentity(self.files, path)
        except FileNotFoundError:
            raise JournalError(f"{path} is no journal: it has no file {IDENTITY}") from None
        except OSError as error:
            raise JournalError(f"the journal in {path} cannot be read: {systemReason(error)}") from error

    def bases(self) -> list[int]:
        """Return the first positions of all existing segments, in order."""
        return segmentBases(self.files.names(self.path))

    def extents(self, end: int) -> list[tuple[int, int]]:
        """Return where the segments before a position begin, and where the next one does, or else the position."""
        bases = [base for base in self.bases() if base < end]
        return list(zip(bases, [*bases[1:], end], strict=False))

    def end(self) -> End:
        """Return the durable end of the journal, from the file that a broker writes. If it is missing or incomplete,
        the end follows the last complete frame, without an unfinished batch that a crash has left, as in a recovery by
        the broker.
        """
        for _ in range(_LOOKS):
            try:
                content = readFile(self.files, f"{self.path}/{END}")
            except FileNotFoundError:
                break
            found = readEnd(content)
            if found is not None:
                return End(*found[:2])
            self._sleep(_BETWEEN)
        with self:
            return self._lastComplete()

    def _lastComplete(self) -> End:
        for base in reversed(self.bases()):
            window = self.window(base, 1 << 63, LARGE)
            last: End | None = None
            unfinished: End | None = None
            for found in framesOf(window, None, base, atHead=True) if window is not None else ():
                if not isinstance(found, CompleteFrame):
                    unfinished = unfinished or last
                    continue
                header, frame = found
                if header.flags & SYNCED:
                    unfinished = None
                offset = header.baseOffset
                if header.kind in (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS, FrameKind.TRANSACTION):
                    offset += header.count
                elif header.kind == FrameKind.GAP:
                    offset = decodeGap(header, frame).next
                last = End(header.position + header.length, offset)
            if last is not None:
                return unfinished or last
        return End(0, 1)

    def window(self, base: int, end: int, size: int) -> Window | None:
        """Return a view of a segment's file up to a position; None if the file is gone."""
        known = self._open.get(base)
        if known is None:
            try:
                descriptor = self.files.open(f"{self.path}/{segmentName(base)}")
            except FileNotFoundError:
                return None
            known = self._open[base] = descriptor, self.files.size(descriptor)
        descriptor, length = known
        if base + length < end:
            length = self.files.size(descriptor)
            self._open[base] = descriptor, length
        return Window(self.files, descriptor, base, min(base + length, end), size)

    def windowAt(self, position: int, end: int, size: int) -> Window | None:
        """Return a view of the segment that contains a position, None without one."""
        bases = self.bases()
        place = bisect_right(bases, position) - 1
        window = self.window(bases[place], end, size) if place >= 0 else None
        return window if window is not None and position < window.end else None

    def header(self, position: int, end: int) -> FrameHeader | None:
        """Return the header of the frame at a position, None without one; its body is not checked."""
        window = self.windowAt(position, end, SMALL)
        try:
            header = readHeader(window.at(position, HEADER_BYTES)) if window is not None else None
        except FrameError:
            return None
        return header if header is not None and header.position == position else None

    def __enter__(self) -> None:
        """Begin some reads; their end closes all files."""

    def __exit__(self, *raised: object) -> None:
        """Close all files; later reads open them again."""
        while self._open:
            _, (descriptor, _) = self._open.popitem()
            self.files.close(descriptor)
