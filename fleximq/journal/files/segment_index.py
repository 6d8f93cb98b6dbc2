"""The index file of a sealed segment, DIR/<base>.idx, read or rebuilt (docs/reference/journal-format.rst).

It saves a scan of the segment when the journal is opened, and has only data of the segment: a missing or damaged index
is rebuilt, so it is written without waiting for the disk. The scan also distinguishes an unfinished end from damage.
"""

from collections.abc import Mapping
from struct import Struct, error
from typing import Any, NamedTuple
from zlib import crc32

import msgpack

from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.journal.files.frame_scan import CompleteFrame, DamagedRange, Window, framesOf
from fleximq.journal.files.segment_summary import Segment, StagedBlock, addFrame
from fleximq.journal.files.topic_counts import shifted, topicCountsOf, topicCountsOfFrame
from fleximq.journal.format.body import unpackFirst
from fleximq.journal.format.column_builder import fromLittleEndian, littleEndian
from fleximq.journal.format.control_frames import (
    LostRange,
    SegmentStart,
    Transaction,
    decodeCheckpoint,
    decodeRemoved,
    decodeSegment,
)
from fleximq.journal.format.frame import SYNCED, FrameError, FrameKind
from fleximq.journal.format.record_columns import decodeRecords, decodeStaged
from fleximq.values.records import TopicBounds


class SegmentScan(NamedTuple):
    """The content of a segment's file. ``segment`` does not count the records that its transactions publish.
    ``damaged`` are the damaged ranges, each up to the next valid frame. ``unfinished`` is the first damage after which
    no frame confirms a sync, or None. ``start`` is the content of its first frame, None if that is damaged. ``clean``:
    its last frame is a clean end.
    """

    segment: Segment
    damaged: list[DamagedRange]
    unfinished: int | None
    start: SegmentStart | None
    clean: bool


def scanSegment(window: Window, segmentId: int | None = None) -> SegmentScan:
    """Scan a segment, with this id if known, from its first byte to the window's end. Raises OSError."""
    segment = Segment(window.base, segmentId or 0)
    damaged: list[DamagedRange] = []
    unfinished: int | None = None
    start: SegmentStart | None = None
    damage: DamagedRange | None = None
    expected = 0
    clean = False
    for each in framesOf(window, segmentId, window.base, atHead=True):
        clean = False
        if damage is None:
            expected = segment.next
        if isinstance(each, DamagedRange):
            damage = each
            damaged.append(damage)
            unfinished = damage.position if unfinished is None else unfinished
            continue
        header, frame = each
        try:
            addWholeFrame(segment, each, window.end)
            if header.kind == FrameKind.SEGMENT:
                start = decodeSegment(header, frame)
            elif header.kind == FrameKind.CHECKPOINT:
                clean = decodeCheckpoint(header, frame).clean
        except FrameError as error:
            damage = DamagedRange(header.position, header.position + header.length, str(error))
            damaged.append(damage)
            continue
        segment.id = header.segment
        if header.flags & SYNCED:
            unfinished = None
        if damage is not None:
            segment.lost.append(_lost(damage, expected, header.baseOffset))
            damage = None
    if damage is not None:
        segment.lost.append(_lost(damage, expected, segment.next))
    segment.end = window.end
    return SegmentScan(segment, damaged, unfinished, start, clean)


def _lost(damage: DamagedRange, expected: int, nextOffset: int) -> LostRange:
    """Return the lost offsets of a damaged range: from the expected offset to that of the next frame, if known."""
    return LostRange(
        damage.position, damage.until - damage.position, min(expected or nextOffset, nextOffset), nextOffset
    )


def addWholeFrame(segment: Segment, whole: CompleteFrame, end: int) -> Mapping[str, TopicBounds]:
    """Add a frame that was read at the end of a segment known up to ``end``; return its topic counts, see
    :func:`addFrame`. Raises FrameError if its body is damaged.
    """
    header, frame = whole
    topicCounts: Mapping[str, TopicBounds] = {}
    if header.kind == FrameKind.RECORDS:
        topicCounts = topicCountsOfFrame(header, frame)
    elif header.kind == FrameKind.SPARSE_RECORDS:
        topicCounts = shifted(topicCountsOf(decodeRecords(header, frame)), -header.baseOffset)
    elif header.kind == FrameKind.STAGED:
        topicCounts = topicCountsOf(decodeStaged(header, frame)[1])
    addFrame(segment, header.position, header, topicCounts, lambda: whole)
    if header.kind == FrameKind.REMOVED:
        segment.removed += min(decodeRemoved(header, frame), end) - header.position - header.length
    return topicCounts


_MAGIC = b"FXI1"
#: magic, length of the MessagePack map after these 16 bytes, CRC-32 of the map, zero.
_head = Struct("<4sIII")
_NUMBERS = ("base", "end", "id", "first", "next", "highest", "clientIds", "removed")
_COLUMNS = ("offsets", "times", "positions")


def indexName(base: int) -> str:
    """Return the name of the index file of the segment at this position."""
    return f"{base:020d}.idx"


def encodeIndex(segment: Segment) -> bytes:
    """Return the bytes of an index."""
    fields: dict[str, Any] = {name: getattr(segment, name) for name in _NUMBERS}
    fields |= {name: littleEndian(getattr(segment, name)) for name in _COLUMNS}
    fields |= {
        "topics": segment.counts,
        "lost": [list(lost) for lost in segment.lost],
        "staged": [list(staged) for staged in segment.staged],
        "transactions": segment.transactions,
        "checkpoints": segment.checkpoints,
    }
    packed: bytes = msgpack.packb(fields)
    return _head.pack(_MAGIC, len(packed), crc32(packed), 0) + packed


def decodeIndex(content: bytes) -> Segment:
    """Return the segment of an index. Raises FrameError if the bytes are damaged, or not an index."""
    try:
        magic, length, crc, zero = _head.unpack_from(content)
    except error:
        raise FrameError("the index is too short") from None
    packed = content[_head.size :]
    if magic != _MAGIC or zero or length != len(packed) or crc != crc32(packed):
        raise FrameError("the index is damaged")
    fields, _ = unpackFirst(packed)
    try:
        return _segment(fields)
    except (KeyError, AttributeError, TypeError, ValueError, OverflowError) as wrong:
        raise FrameError(f"the index is of another version: {wrong!r}") from None


def _segment(fields: dict[str, Any]) -> Segment:
    segment = Segment(fields["base"], fields["id"])
    for name in _NUMBERS:
        setattr(segment, name, fields[name])
    for name in _COLUMNS:
        setattr(segment, name, fromLittleEndian(getattr(segment, name).typecode, fields[name]))
    segment.counts = fields["topics"]
    segment.lost = [LostRange(*lost) for lost in fields["lost"]]
    segment.staged = [
        StagedBlock(
            position, query, batch, time, count, {topic: TopicBounds(*bounds) for topic, bounds in topicCounts.items()}
        )
        for position, query, batch, time, count, topicCounts in fields["staged"]
    ]
    segment.transactions = [
        (Transaction(query, batch, tuple(staged), aborted), base, count)
        for (query, batch, staged, aborted), base, count in fields["transactions"]
    ]
    segment.checkpoints = fields["checkpoints"]
    return segment


def writeIndex(files: Files, folder: str, segment: Segment) -> None:
    """Write the index of a sealed segment; an older one is replaced. Raises OSError if it cannot be written."""
    replaceFile(files, folder, indexName(segment.base), encodeIndex(segment), lasting=False)


def readIndex(files: Files, folder: str, base: int) -> Segment | None:
    """Return the indexed segment at this position; None without a valid index. Raises OSError if it cannot be read."""
    path = f"{folder}/{indexName(base)}"
    if not files.exists(path):
        return None
    try:
        segment = decodeIndex(readFile(files, path))
    except FrameError:
        return None
    return segment if segment.base == base else None
