"""What a frame adds to what is known of its segment, whether it was just written or found by a scan."""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any

from fleximq.journal.files.segment_summary import Segment, Staged
from fleximq.journal.files.topic_counts import addTo
from fleximq.journal.format.body import unpackFirst
from fleximq.journal.format.control_frames import Transaction, decodeGap, decodeTransaction
from fleximq.journal.format.frame import HEADER_BYTES, Frame, FrameError, FrameHeader, Kind
from fleximq.journal.format.notes import decodeNotes
from fleximq.values.records import Bounds, ClientIds

#: Stands in the body of every NOTES frame that has a note of client ids: an array of two that begins with its code.
_CLIENT_IDS = b"\x92\x04"
_metaLength = Struct("<I4x")
#: Gives a frame as it can be decoded: its header and all its bytes.
_Whole = Callable[[], tuple[FrameHeader, Any]]


def note(
    segment: Segment,
    position: int,
    frame: Frame | FrameHeader,
    tally: Mapping[str, Bounds],
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
    if kind in (Kind.RECORDS, Kind.SPARSE_RECORDS):
        addTo(segment.counts, tally, base)
        next = base + max(bounds.last for bounds in tally.values()) + 1 if tally else base
        segment.highest = max(segment.highest, frame.firstTime, frame.lastTime)
    elif kind == Kind.NOTES:
        _noteClientIds(segment, whole)
    elif kind == Kind.STAGED:
        query, batch = _forWhom(whole()[1])
        segment.staged.append(Staged(position, query, batch, frame.firstTime, frame.count, tally))
    elif kind == Kind.TRANSACTION:
        next = base + frame.count
        segment.transactions.append((decodeTransaction(*whole()), base, frame.count))
        segment.highest = max(segment.highest, frame.firstTime, frame.lastTime)
    elif kind == Kind.GAP:
        next = decodeGap(*whole()).next
    elif kind == Kind.CHECKPOINT:
        segment.checkpoints.append(position)
    segment.next = max(segment.next, next)


def countTransaction(
    segment: Segment,
    transaction: Transaction,
    base: int,
    staged: Mapping[int, Staged],
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
    offsets, gap = placed(counts, base, sum(filter(None, counts)) if count is None else count)
    for frame, offset in zip(frames, offsets, strict=True):
        if frame is not None and offset is not None:
            addTo(segment.counts, frame.tally, offset)
    return gap


def placed(counts: Sequence[int | None], base: int, count: int) -> tuple[list[int | None], tuple[int, int] | None]:
    """Return the offsets with which parts of a transaction begin, and the offsets of which it is not known where.

    :param counts: how many records each part has; None: nobody knows. What stands before the first and behind the last
        of these can be placed.
    :param base: the first offset of ``count`` in all.
    """
    offsets: list[int | None] = [None] * len(counts)
    first, last = base, base + count
    place = 0
    for place, number in enumerate(counts):
        if number is None or first + number > last:
            break
        offsets[place] = first
        first += number
    else:
        return (offsets, None) if first == last else ([None] * len(counts), (base, last))
    for behind in range(len(counts) - 1, place, -1):
        number = counts[behind]
        if number is None or last - number < first:
            break
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
            if isinstance(each, ClientIds):
                segment.clientIds = max(segment.clientIds, each.until)
