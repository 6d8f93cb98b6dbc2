"""One segment as it is known in memory: where it stands, a sparse index of it, and what it has of every topic.

It is some hundred bytes for each 64 KiB of the file. One thread adds to it while others look things up without a lock:
what is looked up only grows.

What a frame adds to what is known of its segment, whether it was just written or found by a scan.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

from fleximq.journal.files.topic_counts import Count, addCounts
from fleximq.journal.format.body import unpackFirst
from fleximq.journal.format.control_frames import LostRange, Transaction, decodeGap, decodeNotes, decodeTransaction
from fleximq.journal.format.frame import HEADER_BYTES, Frame, FrameError, FrameHeader, FrameKind
from fleximq.values.records import TopicBounds
from fleximq.values.state_records import ClientIdsReserved

#: About how many bytes lie between two entries of the index.
INDEX_INTERVAL = 64 << 10
#: Earlier than every time.
NEVER = -(1 << 63)


class StagedBlock(NamedTuple):
    """A STAGED frame: its position, for whom it is, when it came, and what it has; offsets in ``tally`` are places."""

    position: int
    query: str
    batch: int
    time: int
    count: int  # type: ignore[assignment]  # nobody counts the values of this tuple
    tally: Mapping[str, TopicBounds]


class Segment:
    """One segment: the file ``<base>.fxj``.

    ``base`` and ``end`` are the positions of its first frame and behind its last one; ``first`` and ``next`` the
    offsets of the first record that is or could have been in it, and of the first behind it. ``highest`` is the
    latest time of its records. ``offsets``, ``times`` and ``positions`` are the index: from this position on, there are
    records from this offset on, and all before it in the segment are of this time or earlier. ``counts`` says what it
    has of each topic, ``lost`` what of it is damaged. ``checkpoints`` are positions; ``clientIds`` is the largest
    number of a note of client ids; ``removed`` counts bytes that were taken out.
    """

    __slots__ = (
        "base",
        "checkpoints",
        "clientIds",
        "counts",
        "end",
        "first",
        "highest",
        "id",
        "lost",
        "next",
        "offsets",
        "positions",
        "removed",
        "staged",
        "times",
        "transactions",
    )

    def __init__(self, base: int, id: int) -> None:
        self.base = self.end = base
        self.id = id
        self.first = self.next = 0
        self.highest = NEVER
        self.offsets = array("Q")
        self.times = array("q")
        self.positions = array("Q")
        self.counts: dict[str, Count] = {}
        self.lost: list[LostRange] = []
        self.staged: list[StagedBlock] = []
        self.transactions: list[tuple[Transaction, int, int]] = []
        self.checkpoints: list[int] = []
        self.clientIds = 0
        self.removed = 0

    @property
    def bytes(self) -> int:
        """How many bytes its file takes."""
        return self.end - self.base - self.removed

    @property
    def records(self) -> int:
        """How many records are in it."""
        return sum(count[4] for count in self.counts.values())

    def entry(self, position: int, offset: int) -> None:
        """Let the index lead to this position, if the last entry is far enough before it."""
        if self.positions:
            if position - self.positions[-1] < INDEX_INTERVAL:
                return
        else:
            self.first = offset
        # Whoever looks up meanwhile begins with times or offsets, and finds the rest there.
        self.positions.append(position)
        self.times.append(self.highest)
        self.offsets.append(offset)

    def before(self, offset: int) -> int:
        """Return the position of a frame at or before the one that has this offset."""
        place = bisect_right(self.offsets, offset) - 1
        return self.positions[place] if place >= 0 else self.base

    def beforeTime(self, time: int) -> int:
        """Return the position of a frame at or before the first one that has a record of this time or later."""
        place = bisect_left(self.times, time, hi=len(self.offsets)) - 1
        return self.positions[place] if place >= 0 else self.base

    def beforePosition(self, position: int) -> int:
        """Return the position of a frame at or before this position."""
        place = bisect_right(self.positions, position) - 1
        return self.positions[place] if place >= 0 else self.base

    def offsetAt(self, position: int) -> int:
        """Return the offset of a record at or before this position."""
        place = bisect_right(self.positions, position) - 1
        return self.offsets[place] if place >= 0 else self.first

    def behind(self, position: int) -> int:
        """Return the position of the first entry of the index behind this position, or where the segment ends."""
        place = bisect_right(self.positions, position)
        return self.positions[place] if place < len(self.positions) else self.end


#: Stands in the body of every NOTES frame that has a note of client ids: an array of two that begins with its code.
_CLIENT_IDS = b"\x92\x04"
_metaLength = Struct("<I4x")
#: Gives a frame as it can be decoded: its header and all its bytes.
_Whole = Callable[[], tuple[FrameHeader, Any]]


def addFrame(
    segment: Segment,
    position: int,
    frame: Frame | FrameHeader,
    tally: Mapping[str, TopicBounds],
    whole: _Whole,
) -> None:
    """Add a frame to a segment, behind all it has.

    What a TRANSACTION makes visible is not counted, see :func:`countTransaction`.

    :param tally: what it has of each topic, with offsets that count from the frame's base offset.
    :param whole: gives the frame as it can be decoded; called for those kinds whose bodies matter here.
    """
    kind, base = frame.kind, frame.baseOffset
    segment.entry(position, base)
    segment.end = position + frame.length
    next = base
    if kind in (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS):
        next = addCounts(segment.counts, tally, base)
        segment.highest = max(segment.highest, frame.firstTime, frame.lastTime)
    elif kind == FrameKind.NOTES:
        _noteClientIds(segment, whole)
    elif kind == FrameKind.STAGED:
        query, batch = _forWhom(whole()[1])
        segment.staged.append(StagedBlock(position, query, batch, frame.firstTime, frame.count, tally))
    elif kind == FrameKind.TRANSACTION:
        next = base + frame.count
        segment.transactions.append((decodeTransaction(*whole()), base, frame.count))
        segment.highest = max(segment.highest, frame.firstTime, frame.lastTime)
    elif kind == FrameKind.GAP:
        next = decodeGap(*whole()).next
    elif kind == FrameKind.CHECKPOINT:
        segment.checkpoints.append(position)
    segment.next = max(segment.next, next)


def countTransaction(
    segment: Segment,
    transaction: Transaction,
    base: int,
    staged: Mapping[int, StagedBlock],
    count: int | None = None,
) -> tuple[int, int] | None:
    """Count the records that a transaction makes visible; return the offsets, from one up to before another, whose
    staged frames are not known, None if all are.

    :param count: how many there should be; None: as many as are known.
    """
    if transaction.aborted:
        return None
    frames = [staged.get(position) for position in transaction.staged]
    counts = [None if frame is None else frame.count for frame in frames]
    offsets, gap = assignOffsets(counts, base, sum(filter(None, counts)) if count is None else count)
    for frame, offset in zip(frames, offsets, strict=True):
        if frame is not None and offset is not None:
            addCounts(segment.counts, frame.tally, offset)
    return gap


def assignOffsets(
    counts: Sequence[int | None], base: int, count: int
) -> tuple[list[int | None], tuple[int, int] | None]:
    """Return the offsets with which parts of a transaction begin, and the offsets of which it is not known where.

    :param counts: how many records each part has; None: nobody knows. What stands before the first and behind the last
        of these can be placed.
    :param base: the first offset of ``count`` in all.
    """
    offsets: list[int | None] = [None] * len(counts)
    first, last = base, base + count
    place = 0
    for place, number in enumerate(counts):
        if number is None:
            break
        if first + number > last:
            return [None] * len(counts), (base, base + count)
        offsets[place] = first
        first += number
    else:
        return (offsets, None) if first == last else ([None] * len(counts), (base, last))
    for behind in range(len(counts) - 1, place, -1):
        number = counts[behind]
        if number is None:
            break
        if last - number < first:
            return [None] * len(counts), (base, base + count)
        last -= number
        offsets[behind] = last
    return offsets, (first, last)


def _forWhom(frame: Any) -> tuple[str, int]:
    """Return query and batch of a STAGED frame."""
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
        for each in decodeNotes(header, frame):
            if isinstance(each, ClientIdsReserved):
                segment.clientIds = max(segment.clientIds, each.until)
