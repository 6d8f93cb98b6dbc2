"""Goes through the frames of a segment in order: each is checked before it is given, and where one is damaged, a
hole is given in its place. Nothing is changed here.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fleximq.journal.files.damage import frameAt, nextFrame
from fleximq.journal.files.window import Window
from fleximq.journal.format.control_frames import decodeRemoved
from fleximq.journal.format.frame import FrameError, FrameHeader, Kind


class Whole(NamedTuple):
    """A frame that is as it was written; ``frame`` has all its bytes."""

    header: FrameHeader
    frame: memoryview


class Hole(NamedTuple):
    """Bytes that should be frames and are none, from ``position`` up to ``until``; ``reason`` is a clause."""

    position: int
    until: int
    reason: str


def framesOf(window: Window, segment: int | None, start: int, atHead: bool = False) -> Iterator[Whole | Hole]:
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
            yield Hole(position, until, str(error))
            previous = None
        else:
            segment = header.segment
            yield Whole(header, frame)
            previous = header.crc
        position = until


def _end(header: FrameHeader, frame: memoryview, end: int) -> int:
    """Return where the next frame begins: behind this one, or behind what it says was taken out.

    The window may end before that: the next file begins there.
    """
    if header.kind != Kind.REMOVED:
        return header.position + header.length
    until = decodeRemoved(header, frame)
    if until % 8 or until < header.position + header.length:
        raise FrameError(f"it says that what was taken out ends at {until}")
    return min(until, end)
