"""Reads one slice of a journal within a task: in large blocks, and each frame is checked before it is decoded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from fleximq.journal.files.frame_scan import SMALL, CompleteFrame, Window, frameAt, framesOf, nextFrame
from fleximq.journal.files.segment_summary import assignOffsets
from fleximq.journal.format.control_frames import decodeGap, decodeRemoved, decodeTransaction
from fleximq.journal.format.frame import HEADER_BYTES, FrameError, FrameHeader, FrameKind, checkFrame, readHeader
from fleximq.pipeline.files.folder import Folder
from fleximq.pipeline.files.frame_columns import RECORDS, Numbers, PlacedFrame, decodeFrames, offsetsAndTimes
from fleximq.pipeline.files.selection import SegmentRange, Selection, Slice

#: Bytes of one read, and of a batch: larger blocks leave the processor's cache before they are decoded.
BLOCK_BYTES = 4 << 20


#: Bytes of a segment, with the start and the header of each complete frame in them.
_Block = tuple[memoryview, list[tuple[int, FrameHeader]]]
#: Frames with records, and the buffer that contains them.
Placed = tuple[memoryview, list[PlacedFrame]]


def _blocks(window: Window, start: int, until: int, damaged: Callable[[str], None]) -> Iterator[_Block]:
    """Yield the frames from one frame's position up to another; calls ``damaged`` with the reason for other bytes."""
    position, until = start, min(until, window.end)
    segment: int | None = None
    while position < until:
        buffer = window.at(position, min(BLOCK_BYTES, window.end - position))
        begin, frames = position, []
        reason = ""
        while position < until and position - begin <= len(buffer) - HEADER_BYTES:
            try:
                header = _headerAt(buffer, position - begin, position, segment)
                if header.length > len(buffer) - (position - begin):
                    break
                frame = buffer[position - begin : position - begin + header.length]
                checkFrame(header, frame)
                behind = _nextPosition(header, frame)
            except FrameError as error:
                reason = str(error)
                break
            segment = header.segment
            frames.append((position - begin, header))
            position = behind
        if frames:
            yield buffer, frames
        elif position < until:
            # The frame is larger than a block, or damaged.
            try:
                header, frame = frameAt(window, position, segment)
                yield frame, [(0, header)]
                position = _nextPosition(header, frame)
            except FrameError as error:
                found = nextFrame(window, position, segment)
                damaged(reason or str(error))
                position = until if found is None else found


def _headerAt(buffer: memoryview, at: int, position: int, segment: int | None) -> FrameHeader:
    header = readHeader(buffer, at)
    if header.position != position or (segment is not None and header.segment != segment):
        raise FrameError(f"it says that it stands at {header.position} of segment {header.segment:016x}")
    return header


def _nextPosition(header: FrameHeader, frame: memoryview) -> int:
    if header.kind != FrameKind.REMOVED:
        return header.position + header.length
    return decodeRemoved(header, frame)


def _frameFrom(window: Window, position: int, until: int) -> int:
    """Return the position of the first frame from a former frame's position on, ``until`` without one."""
    try:
        _headerAt(window.at(position, HEADER_BYTES), 0, position, None)
        return position
    except FrameError:
        for found in framesOf(window, None, window.base, atHead=True):
            if isinstance(found, CompleteFrame):
                behind = _nextPosition(*found)
                if found.header.position >= position:
                    return found.header.position
                if behind >= position:
                    return behind
            elif found.position <= position < found.until:
                # The frame at this position is damaged.
                return position
        return until


class Missing(NamedTuple):
    """Offsets from ``first`` up to before ``next`` with possibly missing records; ``why`` is a clause. ``lost`` is True
    for damage, False for removal by retention.
    """

    first: int
    next: int
    why: str
    lost: bool = True

    def __str__(self) -> str:
        return f"offsets {self.first} to {self.next - 1}: {self.why}"


def placedFrames(
    buffer: memoryview,
    frames: Iterable[tuple[int, FrameHeader]],
    part: Slice,
    published: Callable[[FrameHeader, memoryview], Iterator[Placed]],
) -> Iterator[Placed]:
    """Yield the frames in a buffer that have records of a slice, and those that its transactions have published."""
    start, end = part.start, part.end
    places: list[PlacedFrame] = []
    for at, header in frames:
        kind, base = header.kind, header.baseOffset
        if base >= end or (base + header.count <= start and kind != FrameKind.SPARSE_RECORDS):
            continue
        if kind in RECORDS:
            places.append(PlacedFrame(at))
        elif kind == FrameKind.TRANSACTION:
            if places:
                yield buffer, places
                places = []
            yield from published(header, buffer[at : at + header.length])
    if places:
        yield buffer, places


class SliceReader:
    """Reads a slice, once; calls ``missing`` with missing records."""

    def __init__(self, folder: Folder, part: Slice, missing: Callable[[Missing], None]) -> None:
        self._folder = folder
        self._slice = part
        self._missing = missing
        self._next = max([part.start, *(piece.first for piece in part.pieces[:1])])
        self._why = ""

    def batches(self, columns: Sequence[str], selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the selected records as batches of columns, ordered by offset; raises OSError and as ``missing``."""
        selection = selection.within(self._slice.start, self._slice.end)
        for buffer, places in self._frames():
            yield from decodeFrames(buffer, places, columns, self._slice.journal, selection)

    def offsetsAndTimes(self) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield offsets and times of all records of the slice's frames, a block at a time."""
        for buffer, places in self._frames():
            yield from offsetsAndTimes(buffer, places)

    def _frames(self) -> Iterator[Placed]:
        with self._folder:
            for piece in self._slice.pieces:
                window = self._folder.window(piece.base, self._slice.limit, SMALL)
                if window is None:
                    self._gone(piece)
                    continue
                start = _frameFrom(window, piece.position, piece.until)
                if start > piece.position:
                    self._thinned(piece.first, piece.next)
                for buffer, frames in _blocks(window, start, piece.until, self._noteDamage):
                    yield from placedFrames(buffer, self._passed(buffer, frames), self._slice, self._published)
                if window.end < piece.until:
                    self._noteDamage("the file ends too early")
                if self._why:
                    self._continueAt(piece.next)

    def _passed(self, buffer: memoryview, frames: list[tuple[int, FrameHeader]]) -> Iterator[tuple[int, FrameHeader]]:
        """Yield the frames, and note which offsets they have."""
        for at, header in frames:
            if self._why:
                self._continueAt(header.baseOffset)
            nextOffset = header.baseOffset
            if header.kind in RECORDS or header.kind == FrameKind.TRANSACTION:
                # A sparse frame reaches at least this far; records after that are not known to be missing.
                nextOffset += header.count
            elif header.kind == FrameKind.GAP:
                nextOffset = decodeGap(header, buffer[at : at + header.length]).next
            elif header.kind == FrameKind.REMOVED and header.count:
                self._thinned(nextOffset, nextOffset + header.count)
            self._next = max(self._next, nextOffset)
            yield at, header

    def _published(self, header: FrameHeader, frame: memoryview) -> Iterator[Placed]:
        """Yield the staged frames that a transaction published, a block at a time."""
        transaction = decodeTransaction(header, frame)
        if transaction.aborted:
            return
        counts = [self._staged(position) for position in transaction.staged]
        if None in counts or sum(filter(None, counts)) != header.count:
            counts = [self._stagedAndWhole(position) for position in transaction.staged]
        offsets, gap = assignOffsets(counts, header.baseOffset, header.count)
        if gap is not None:
            self._lost(*gap, "the records staged there are damaged or gone")
        buffered: list[memoryview] = []
        places: list[PlacedFrame] = []
        size = 0
        for position, count, first in zip(transaction.staged, counts, offsets, strict=True):
            if count is None or first is None or first >= self._slice.end or first + count <= self._slice.start:
                continue
            try:
                staged = self._frameAt(position)[1]
            except FrameError as error:
                self._lost(first, first + count, str(error))
                continue
            buffered.append(staged)
            places.append(PlacedFrame(size, first))
            size += len(staged)
            if size >= BLOCK_BYTES:
                yield memoryview(b"".join(buffered)), places
                buffered, places, size = [], [], 0
        if places:
            yield memoryview(b"".join(buffered)), places

    def _staged(self, position: int) -> int | None:
        """Return the number of records staged at a position, None if unknown."""
        header = self._folder.header(position, self._slice.limit)
        return header.count if header is not None and header.kind == FrameKind.STAGED else None

    def _stagedAndWhole(self, position: int) -> int | None:
        """Return the same, and None if the frame's checksum is wrong."""
        try:
            header = self._frameAt(position)[0]
        except FrameError:
            return None
        return header.count if header.kind == FrameKind.STAGED else None

    def _frameAt(self, position: int) -> tuple[FrameHeader, memoryview]:
        window = self._folder.windowAt(position, self._slice.limit, SMALL)
        if window is None:
            raise FrameError("its segment is gone")
        return frameAt(window, position, None)

    def _noteDamage(self, why: str) -> None:
        """Remember why no frame follows the last complete one; the next frame delimits the missing records."""
        self._why = self._why or why

    def _continueAt(self, offset: int) -> None:
        """Continue with a frame of this offset, and report the missing records before it."""
        if self._why:
            self._lost(self._next, offset, f"bytes are damaged: {self._why}")
            self._why = ""
        self._next = max(self._next, offset)

    def _gone(self, piece: SegmentRange) -> None:
        """Report the records of a segment that does not exist any more."""
        self._why = ""
        if self._folder.windowAt(piece.position, self._slice.limit, SMALL) is not None:
            # The segment was rewritten and its frames were removed bit by bit, so its records are not lost.
            self._thinned(piece.first, piece.next)
        else:
            self._lost(self._next, piece.next, "retention has removed them while they were being read")
        self._next = max(self._next, piece.next)

    def _thinned(self, first: int, nextOffset: int) -> None:
        self._lost(first, nextOffset, "retention has taken some of them out", lost=False)

    def _lost(self, first: int, nextOffset: int, why: str, lost: bool = True) -> None:
        first, nextOffset = max(first, self._slice.start), min(nextOffset, self._slice.end)
        if first < nextOffset:
            self._missing(Missing(first, nextOffset, why, lost))
