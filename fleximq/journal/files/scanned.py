"""Makes the index of a segment from its frames, and tells an unfinished end from damage."""

from typing import NamedTuple

from fleximq.journal.files.counting import note
from fleximq.journal.files.frame_scan import Hole, Whole, framesOf
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.files.topic_counts import moved, tallyOf, tallyOfFrame
from fleximq.journal.files.window import Window
from fleximq.journal.format.control_frames import Lost, SegmentStart, decodeCheckpoint, decodeRemoved, decodeSegment
from fleximq.journal.format.frame import SYNCED, FrameError, FrameHeader, Kind
from fleximq.journal.format.record_columns import decodeRecords, decodeStaged
from fleximq.values.records import Bounds


class Scanned(NamedTuple):
    """What a segment's file holds.

    ``segment`` does not count yet what transactions in it make visible. ``holes`` are what is damaged, each with the
    bytes up to the next whole frame. ``unfinished`` is the position from which on nothing was ever synced: that of
    the last hole behind which no frame says so, None if there is no such hole. ``start`` is what its first frame says,
    None if that is damaged. ``clean``: its last frame says that nothing follows.
    """

    segment: Segment
    holes: list[Hole]
    unfinished: int | None
    start: SegmentStart | None
    clean: bool


def scanSegment(window: Window, id: int | None = None) -> Scanned:
    """Read a segment from its first byte to where the window ends.

    :param id: of the segment, if it is known.
    :raises OSError: it cannot be read.
    """
    segment = Segment(window.base, id or 0)
    holes: list[Hole] = []
    unfinished: int | None = None
    start: SegmentStart | None = None
    hole: Hole | None = None
    expected = 0
    clean = False
    for each in framesOf(window, id, window.base, atHead=True):
        clean = False
        if hole is None:
            expected = segment.next
        if isinstance(each, Hole):
            hole = each
            holes.append(hole)
            unfinished = hole.position if unfinished is None else unfinished
            continue
        header, frame = each
        try:
            _note(segment, header, frame, window.end)
            if header.kind == Kind.SEGMENT:
                start = decodeSegment(header, frame)
            elif header.kind == Kind.CHECKPOINT:
                clean = decodeCheckpoint(header, frame).clean
        except FrameError as error:
            hole = Hole(header.position, header.position + header.length, str(error))
            holes.append(hole)
            continue
        segment.id = header.segment
        if header.flags & SYNCED:
            unfinished = None
        if hole is not None:
            segment.lost.append(_lost(hole, expected, header.baseOffset))
            hole = None
    if hole is not None:
        segment.lost.append(_lost(hole, expected, segment.next))
    segment.end = window.end
    return Scanned(segment, holes, unfinished, start, clean)


def _lost(hole: Hole, expected: int, next: int) -> Lost:
    """Return what a hole took: the offsets from the expected one up to that of the frame behind it, if it is known."""
    return Lost(hole.position, hole.until - hole.position, min(expected or next, next), next)


def _note(segment: Segment, header: FrameHeader, frame: memoryview, end: int) -> None:
    tally: dict[str, Bounds] = {}
    if header.kind == Kind.RECORDS:
        tally = tallyOfFrame(header, frame)
    elif header.kind == Kind.SPARSE_RECORDS:
        tally = moved(tallyOf(decodeRecords(header, frame)), -header.baseOffset)
    elif header.kind == Kind.STAGED:
        tally = tallyOf(decodeStaged(header, frame)[1])
    note(segment, header.position, header, tally, lambda: Whole(header, frame))
    if header.kind == Kind.REMOVED:
        segment.removed += min(decodeRemoved(header, frame), end) - header.position - header.length
