"""Finds the way back to whole frames behind bytes that are none.

A payload may hold bytes that look like a frame, even a whole frame of this journal. What makes a frame is that its
segment's id and its own position stand in it and its check sum is right; nobody who publishes knows the one, or
chooses the other. And where the damaged frame's own length still leads to a frame that is chained to it, that one is
taken, before anything inside is looked at.
"""

from fleximq.journal.files.window import Window
from fleximq.journal.format.frame import HEADER_BYTES, MAGIC, FrameError, FrameHeader, checkFrame, readHeader


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
