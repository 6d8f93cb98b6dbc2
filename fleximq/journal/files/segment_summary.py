"""One segment in memory: position, sparse index and topic counts, updated per frame by commits and scans.

It takes some hundred bytes for each 64 KiB of the file. One thread adds to it while others search without a lock: the
searched data only grows.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from struct import Struct
from typing import Any, NamedTuple

from fleximq.journal.files.topic_counts import Count
from fleximq.journal.format.body import unpackFirst
from fleximq.journal.format.control_frames import (
    LostRange,
    Transaction,
    decodeGap,
    decodeStateRecords,
    decodeTransaction,
)
from fleximq.journal.format.frame import HEADER_BYTES, Frame, FrameError, FrameHeader, FrameKind
from fleximq.values.records import TopicBounds
from fleximq.values.state_records import ClientIdsReserved

#: The approximate distance in bytes between two entries of the index.
INDEX_INTERVAL = 64 << 10
#: Earlier than every time.
NEVER = -(1 << 63)


class StagedBlock(NamedTuple):
    """A STAGED frame: position, query and batch, time, number of records; offsets in ``topicCounts`` are indexes."""

    position: int
    query: str
    batch: int
    time: int
    count: int  # type: ignore[assignment]  # nobody counts the values of this tuple
    topicCounts: Mapping[str, TopicBounds]


@dataclass(slots=True, eq=False)
class Segment:
    """One segment: the file ``<base>.fxj``. ``base`` and ``end`` are the positions of its first frame and after its
    last one; ``first`` and ``next`` the offsets of its first possible record, and after its last one. ``highest`` is
    the latest time of its records. ``offsets``, ``times`` and ``positions`` are the index: from this position there are
    records from this offset, and no earlier record has a later time. ``checkpoints`` are positions; ``clientIds`` is
    the largest number of reserved client ids; ``removed`` counts removed bytes.
    """

    base: int
    id: int
    end: int = field(init=False)
    first: int = 0
    next: int = 0
    highest: int = NEVER
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    times: "array[int]" = field(default_factory=lambda: array("q"))
    positions: "array[int]" = field(default_factory=lambda: array("Q"))
    counts: dict[str, Count] = field(default_factory=dict)
    lost: list[LostRange] = field(default_factory=list)
    staged: list[StagedBlock] = field(default_factory=list)
    transactions: list[tuple[Transaction, int, int]] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    clientIds: int = 0
    removed: int = 0

    def __post_init__(self) -> None:
        self.end = self.base

    @property
    def bytes(self) -> int:
        """The bytes of its file on disk."""
        return self.end - self.base - self.removed

    @property
    def records(self) -> int:
        """The number of records in it."""
        return sum(count[4] for count in self.counts.values())

    def entry(self, position: int, offset: int) -> None:
        """Add an entry to the index, if the previous one is far enough away."""
        if self.positions:
            if position - self.positions[-1] < INDEX_INTERVAL:
                return
        else:
            self.first = offset
        # Concurrent searches begin with times or offsets, so these are added last.
        self.positions.append(position)
        self.times.append(self.highest)
        self.offsets.append(offset)

    def before(self, offset: int) -> int:
        """Return the position of a frame at or before the frame with this offset."""
        index = bisect_right(self.offsets, offset) - 1
        return self.positions[index] if index >= 0 else self.base

    def beforeTime(self, time: int) -> int:
        """Return the position of a frame at or before the first one with a record of this time or later."""
        index = bisect_left(self.times, time, hi=len(self.offsets)) - 1
        return self.positions[index] if index >= 0 else self.base

    def beforePosition(self, position: int) -> int:
        """Return the position of a frame at or before this position."""
        index = bisect_right(self.positions, position) - 1
        return self.positions[index] if index >= 0 else self.base

    def offsetAt(self, position: int) -> int:
        """Return the offset of a record at or before this position."""
        index = bisect_right(self.positions, position) - 1
        return self.offsets[index] if index >= 0 else self.first

    def behind(self, position: int) -> int:
        """Return the position of the first index entry after this position, or the end of the segment."""
        index = bisect_right(self.positions, position)
        return self.positions[index] if index < len(self.positions) else self.end


#: Part of every NOTES frame with reserved client ids: an array of two values that begins with its code.
_CLIENT_IDS = b"\x92\x04"
_metaLength = Struct("<I4x")
#: Returns a frame for decoding: its header and all its bytes.
_Whole = Callable[[], tuple[FrameHeader, Any]]


def addFrame(
    segment: Segment, position: int, frame: Frame | FrameHeader, topicCounts: Mapping[str, TopicBounds], whole: _Whole
) -> None:
    """Add a frame at the end of a segment; :func:`countTransaction` counts the records that a TRANSACTION publishes.

    :param topicCounts: its topic counts, with offsets relative to the frame's base offset.
    :param whole: returns the frame for decoding; called only for kinds whose bodies are needed here.
    """
    kind, base = frame.kind, frame.baseOffset
    segment.entry(position, base)
    segment.end = position + frame.length
    nextOffset = base
    if kind in (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS):
        nextOffset = addCounts(segment.counts, topicCounts, base)
        segment.highest = max(segment.highest, frame.firstTime, frame.lastTime)
    elif kind == FrameKind.NOTES:
        _noteClientIds(segment, whole)
    elif kind == FrameKind.STAGED:
        query, batch = _forWhom(whole()[1])
        segment.staged.append(StagedBlock(position, query, batch, frame.firstTime, frame.count, topicCounts))
    elif kind == FrameKind.TRANSACTION:
        nextOffset = base + frame.count
        segment.transactions.append((decodeTransaction(*whole()), base, frame.count))
        segment.highest = max(segment.highest, frame.firstTime, frame.lastTime)
    elif kind == FrameKind.GAP:
        nextOffset = decodeGap(*whole()).next
    elif kind == FrameKind.CHECKPOINT:
        segment.checkpoints.append(position)
    segment.next = max(segment.next, nextOffset)


def addCounts(counts: dict[str, Count], topicCounts: Mapping[str, TopicBounds], by: int = 0) -> int:
    """Add topic counts, with offsets increased by ``by``; return the offset after the last, ``by`` without topics. A
    transaction may be counted after the frames that follow it.
    """
    nextOffset = by
    for topic, (first, last, firstTime, lastTime, count, size) in topicCounts.items():
        nextOffset = max(nextOffset, last + by + 1)
        known = counts.get(topic)
        if known is None:
            counts[topic] = [first + by, last + by, firstTime, lastTime, count, size]
        else:
            known[0] = min(known[0], first + by)
            known[1] = max(known[1], last + by)
            known[2] = min(known[2], firstTime)
            known[3] = max(known[3], lastTime)
            known[4] += count
            known[5] += size
    return nextOffset


def countTransaction(
    segment: Segment, transaction: Transaction, base: int, staged: Mapping[int, StagedBlock], count: int | None = None
) -> tuple[int, int] | None:
    """Count the records of a transaction; return the offsets, from one to another (exclusive), with unknown staged
    blocks. ``count``: the number of records; None: the number in the known blocks.
    """
    if transaction.aborted:
        return None
    frames = [staged.get(position) for position in transaction.staged]
    counts = [None if frame is None else frame.count for frame in frames]
    offsets, gap = assignOffsets(counts, base, sum(filter(None, counts)) if count is None else count)
    for frame, offset in zip(frames, offsets, strict=True):
        if frame is not None and offset is not None:
            addCounts(segment.counts, frame.topicCounts, offset)
    return gap


def assignOffsets(
    counts: Sequence[int | None], base: int, count: int
) -> tuple[list[int | None], tuple[int, int] | None]:
    """Return the first offset of each part of a transaction, and the offsets that cannot be assigned.

    :param counts: the number of records of each part; None: unknown. Parts before the first and after the last unknown
        one can be assigned.
    :param base: the first of ``count`` offsets.
    """
    unknown = [index for index, number in enumerate(counts) if number is None]
    low, high = (unknown[0], unknown[-1] + 1) if unknown else (len(counts), len(counts))
    numbers = [number or 0 for number in counts]
    before = list(accumulate(numbers[:low], initial=base))
    after = list(accumulate(numbers[high:], initial=base + count - sum(numbers[high:])))
    first, last = before[-1], after[0]
    if first > last or (not unknown and first < last):
        return [None] * len(counts), (base, base + count)
    return [*before[:-1], *[None] * (high - low), *after[:-1]], (first, last) if unknown else None


def _forWhom(frame: Any) -> tuple[str, int]:
    start = HEADER_BYTES + _metaLength.size
    (length,) = _metaLength.unpack_from(frame, HEADER_BYTES)
    meta, _ = unpackFirst(frame[start : start + length])
    try:
        query, batch = meta["query"], meta["batch"]
    except (KeyError, TypeError):
        raise FrameError("what is staged has no query and batch") from None
    if not isinstance(query, str) or not isinstance(batch, int):
        raise FrameError("the query and batch of what is staged are wrong")
    return query, batch


def _noteClientIds(segment: Segment, whole: _Whole) -> None:
    header, frame = whole()
    if _CLIENT_IDS in bytes(frame[HEADER_BYTES:]):
        for each in decodeStateRecords(header, frame):
            if isinstance(each, ClientIdsReserved):
                segment.clientIds = max(segment.clientIds, each.until)
