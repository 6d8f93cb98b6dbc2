"""Goes through the frames of a segment in order: each is checked before it is given, and where one is damaged, a
hole is given in its place. Nothing is changed here.

Finds the way back to whole frames behind bytes that are none.

A payload may hold bytes that look like a frame, even a whole frame of this journal. What makes a frame is that its
segment's id and its own position stand in it and its check sum is right; nobody who publishes knows the one, or
chooses the other. And where the damaged frame's own length still leads to a frame that is chained to it, that one is
taken, before anything inside is looked at.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fleximq.journal.files.window import Window
from fleximq.journal.format.control_frames import decodeRemoved
from fleximq.journal.format.frame import HEADER_BYTES, MAGIC, FrameError, FrameHeader, FrameKind, checkFrame, readHeader


def frameAt(window: Window, position: int, segment: int | None) -> tuple[FrameHeader, memoryview]:
    """Return the whole frame that begins at this position, checked: its header, and all its bytes.

    :param segment: the id it has to carry; None: any.
    :raises FrameError: there is none; the text says why.
    :raises OSError: the file cannot be read.
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
    """Return where the first whole frame behind the bytes at this position begins; None if there is none.

    :param position: where a frame should be and is not.
    :raises OSError: the file cannot be read.
    """
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
    """Return the end of the damaged frame, if its header still says it and a frame that is chained to it stands there.

    Not if the header names another position: then the length in it may be anything.
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
    """A frame that is as it was written; ``frame`` has all its bytes."""

    header: FrameHeader
    frame: memoryview


class DamagedRange(NamedTuple):
    """Bytes that should be frames and are none, from ``position`` up to ``until``; ``reason`` is a clause."""

    position: int
    until: int
    reason: str


def framesOf(
    window: Window, segment: int | None, start: int, atHead: bool = False
) -> Iterator[CompleteFrame | DamagedRange]:
    """Yield frames and holes from ``start``, where a frame has to begin, up to the end of the window.

    Each frame has to be chained to the one before it, if that was whole.

    :param segment: the id of the segment; None: the one that the first whole frame carries.
    :param atHead: ``start`` is the segment's first frame, which is chained to none.
    :raises OSError: the file cannot be read.
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
    """Return where the next frame begins: behind this one, or behind what it says was taken out.

    The window may end before that: the next file begins there.
    """
    if header.kind != FrameKind.REMOVED:
        return header.position + header.length
    until = decodeRemoved(header, frame)
    if until % 8 or until < header.position + header.length:
        raise FrameError(f"it says that what was taken out ends at {until}")
    return min(until, end)
