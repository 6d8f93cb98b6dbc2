"""Goes through the frames of a stretch of a segment in large portions; each frame is checked before it is given."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fleximq.journal.files.damage import frameAt, nextFrame
from fleximq.journal.files.frame_scan import Whole, framesOf
from fleximq.journal.files.window import Window
from fleximq.journal.format.control_frames import decodeRemoved
from fleximq.journal.format.frame import HEADER_BYTES, FrameError, FrameHeader, Kind, checkFrame, readHeader

#: How much is read at once, which is what a batch has: more leaves the processor's cache before it is looked at.
PORTION = 4 << 20


class Portion(NamedTuple):
    """Bytes of a segment, and the whole frames in them: where in the bytes each begins, and its header."""

    buffer: memoryview
    frames: list[tuple[int, FrameHeader]]


def portionsOf(
    window: Window, start: int, until: int, damaged: Callable[[str], None], size: int = PORTION
) -> Iterator[Portion]:
    """Yield what stands from one position on, where a frame begins, up to another.

    :param damaged: told why something that stands behind the frames given so far is no frame.
    :raises OSError: the file cannot be read.
    """
    position, until = start, min(until, window.end)
    segment: int | None = None
    while position < until:
        buffer = window.at(position, min(size, window.end - position))
        begin, frames = position, []
        reason = ""
        while position < until:
            try:
                header = _headerAt(buffer, position - begin, position, segment)
                if header.length > len(buffer) - (position - begin):
                    break
                frame = buffer[position - begin : position - begin + header.length]
                checkFrame(header, frame)
                behind = _behind(header, frame)
            except FrameError as error:
                reason = str(error)
                break
            segment = header.segment
            frames.append((position - begin, header))
            position = behind
            if position - begin > len(buffer) - HEADER_BYTES:
                break
        if frames:
            yield Portion(buffer, frames)
        elif position < until:
            # The frame is larger than a portion, or damaged.
            try:
                header, frame = frameAt(window, position, segment)
                yield Portion(frame, [(0, header)])
                position = _behind(header, frame)
            except FrameError as error:
                found = nextFrame(window, position, segment)
                damaged(reason or str(error))
                position = until if found is None else found


def _headerAt(buffer: memoryview, at: int, position: int, segment: int | None) -> FrameHeader:
    header = readHeader(buffer, at)
    if header.position != position or (segment is not None and header.segment != segment):
        raise FrameError(f"it says that it stands at {header.position} of segment {header.segment:016x}")
    return header


def _behind(header: FrameHeader, frame: memoryview) -> int:
    """Return where the next frame begins."""
    if header.kind != Kind.REMOVED:
        return header.position + header.length
    return decodeRemoved(header, frame)


def frameFrom(window: Window, position: int, until: int) -> int:
    """Return the position of the first frame at or behind a position at which one was; ``until`` if there is none.

    Where the segment was written anew since, the frame may have been taken out.
    """
    try:
        _headerAt(window.at(position, HEADER_BYTES), 0, position, None)
        return position
    except FrameError:
        for found in framesOf(window, None, window.base, atHead=True):
            if isinstance(found, Whole):
                behind = _behind(*found)
                if found.header.position >= position:
                    return found.header.position
                if behind >= position:
                    return behind
            elif found.position <= position < found.until:
                # It is damaged where it is.
                return position
        return until
