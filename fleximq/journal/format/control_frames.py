"""Encodes and decodes the frames about the journal itself and about its queues (docs/reference/journal-format.rst).
Pure.

A NOTES frame holds state records of queues and clients: an array of arrays, each with its code and its values.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

from fleximq.journal.format.body import FrameFields, frameOf, isInteger, isNumber, readBody
from fleximq.journal.format.column_builder import fromLittleEndian, littleEndian
from fleximq.journal.format.frame import HEADER_BYTES, Frame, FrameError, FrameHeader, FrameKind
from fleximq.values.state_records import (
    ClientIdsReserved,
    GroupForgotten,
    GroupProgress,
    QueueAcknowledged,
    QueueClosed,
    QueueDefined,
    QueueDelivered,
    QueueMoved,
    QueueOpened,
    RepeatDefined,
    SchedulesEnded,
    StateRecord,
    ValuesRemoved,
)


def encodeStateRecords(notes: Sequence[StateRecord], offset: int, time: int) -> Frame:
    """Return a NOTES frame with at least one state record."""
    body = [[_CODES[type(note)], *(_packed(value) for value in note)] for note in notes]
    return frameOf(FrameKind.NOTES, body, offset, time, len(notes))


def decodeStateRecords(header: FrameHeader, frame: Any) -> list[StateRecord]:
    """Return the state records of a NOTES frame."""
    notes = readBody(header, frame, FrameKind.NOTES)
    if not isinstance(notes, list) or len(notes) != header.count:
        raise FrameError(f"there must be {header.count} notes")
    return [_note(fields) for fields in notes]


def _note(fields: Any) -> StateRecord:
    if not isinstance(fields, list) or not fields or not isNumber(fields[0], len(NOTES) - 1):
        raise FrameError("a note must be an array that begins with its kind")
    make, checks = NOTES[fields[0]]
    kind = NOTE_NAMES[fields[0]]
    values = fields[1:]
    if len(values) != len(checks):
        raise FrameError(f"a note {kind} has {len(checks)} values, not {len(values)}")
    for name, value, check in zip(make._fields, values, checks, strict=True):
        if not check(value):
            raise FrameError(f"{name!r} of a note {kind} is wrong")
    note: StateRecord = make(*(fromLittleEndian("Q", value) if isinstance(value, bytes) else value for value in values))
    return note


def _packed(value: Any) -> Any:
    """Return a value for MessagePack: offsets as bytes, eight for each."""
    isPlain = isinstance(value, (str, int, dict)) or value is None
    return value if isPlain else littleEndian(array("Q", value))


def _isText(value: Any) -> bool:
    return isinstance(value, str)


def _isOwner(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _isDefinition(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _isQos(value: Any) -> bool:
    return isNumber(value, 1)


def _areOffsets(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) % 8 == 0


#: By their codes, the notes and how their values are checked.
NOTES: tuple[tuple[Any, tuple[Callable[[Any], bool], ...]], ...] = (
    (QueueOpened, (_isText, _isText, _isQos, isNumber, _isOwner, isNumber)),
    (QueueClosed, (_isText,)),
    (QueueDelivered, (_isText, isNumber, _areOffsets, isNumber)),
    (QueueAcknowledged, (_isText, _areOffsets)),
    (ClientIdsReserved, (isNumber,)),
    (GroupProgress, (_isText, isNumber, isNumber, isNumber)),
    (GroupForgotten, (_isText,)),
    (SchedulesEnded, (_areOffsets, _areOffsets)),
    (RepeatDefined, (_isText, _isDefinition)),
    (QueueDefined, (_isText, _isDefinition, isNumber)),
    (QueueMoved, (_isText, _areOffsets, isNumber, isNumber)),
    (ValuesRemoved, (_areOffsets,)),
)
#: Their names in docs/reference/journal-format.rst, for error sentences.
NOTE_NAMES = (
    "Opened", "Closed", "HandedOut", "Acknowledged", "ClientIds", "Reached", "Forgotten", "Cancelled", "Repeated",
    "Defined",
    "Moved", "Removed",
)  # fmt: skip
_CODES: Mapping[type, int] = {kind: code for code, (kind, _) in enumerate(NOTES)}


_until = Struct("<Q")
#: The size of a REMOVED frame: no frame is smaller.
REMOVED_BYTES = HEADER_BYTES + _until.size


class SegmentStart(NamedTuple):
    """The first frame of a segment: the journal's id (32 hexadecimal digits) and creation time (microseconds)."""

    journal: str
    created: int


class Transaction(NamedTuple):
    """Publishes the staged records at these positions in this order, or discards them if ``aborted``."""

    query: str
    batch: int
    staged: tuple[int, ...]
    aborted: bool = False


class OffsetGap(NamedTuple):
    """Offsets from ``first`` to ``next`` (exclusive) that have no record."""

    first: int
    next: int


class CommittedBatch(NamedTuple):
    """The last batch that a query committed, and the offsets of its records."""

    query: str
    batch: int
    base: int
    count: int  # type: ignore[assignment]  # nobody counts the values of this tuple


class Checkpoint(NamedTuple):
    """The state of the broker: a start reads only the frames from position ``replay``. ``snapshot`` is any MessagePack
    value of the broker. ``clean``: the broker ended in order, and this is the last frame.
    """

    replay: int
    clean: bool
    snapshot: Any
    committed: tuple[CommittedBatch, ...] = ()


class LostRange(NamedTuple):
    """``length`` damaged bytes at ``position``, with the offsets from ``first`` to ``next`` (exclusive)."""

    position: int
    length: int
    first: int
    next: int


def encodeSegment(start: SegmentStart, offset: int, owner: Mapping[str, Any] | None = None) -> Frame:
    """Return a SEGMENT frame; ``owner`` has further keys, which name the owner in a cluster. Here and below, ``offset``
    is the offset of the next record.
    """
    return frameOf(FrameKind.SEGMENT, start._asdict() | dict(owner or {}), offset, start.created)


def isJournalId(value: object) -> bool:
    """Return whether a value can be the id of a journal: 32 hexadecimal digits."""
    return isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef")


def decodeSegment(header: FrameHeader, frame: Any) -> SegmentStart:
    """Return the content of a SEGMENT frame. As below, raises FrameError for another kind or a wrong body."""
    fields = FrameFields(header, frame, FrameKind.SEGMENT)
    journal = fields.text("journal")
    if not isJournalId(journal):
        raise FrameError("the id of a journal has 32 hexadecimal digits")
    return SegmentStart(journal, fields.number("created"))


def encodeTransaction(transaction: Transaction, offset: int, count: int, time: int) -> Frame:
    """Return a TRANSACTION frame; ``offset`` is the offset of its first record, ``count`` the number of its records."""
    return frameOf(FrameKind.TRANSACTION, transaction._asdict(), offset, time, count)


def decodeTransaction(header: FrameHeader, frame: Any) -> Transaction:
    """Return the content of a TRANSACTION frame; its header holds offset and count of the records."""
    fields = FrameFields(header, frame, FrameKind.TRANSACTION)
    staged = fields.get("staged", list)
    if not all(isNumber(position) for position in staged):
        raise FrameError("'staged' must be positions")
    return Transaction(fields.text("query"), fields.integer("batch"), tuple(staged), fields.get("aborted", bool))


def encodeGap(gap: OffsetGap, time: int) -> Frame:
    """Return a GAP frame."""
    return frameOf(FrameKind.GAP, gap._asdict(), gap.first, time)


def decodeGap(header: FrameHeader, frame: Any) -> OffsetGap:
    """Return the content of a GAP frame."""
    fields = FrameFields(header, frame, FrameKind.GAP)
    gap = OffsetGap(fields.number("first"), fields.number("next"))
    if gap.first != header.baseOffset or gap.next < gap.first:
        raise FrameError("a gap must begin at its frame's base offset and end behind it")
    return gap


def encodeCheckpoint(checkpoint: Checkpoint, offset: int, time: int) -> Frame:
    """Return a CHECKPOINT frame."""
    return frameOf(FrameKind.CHECKPOINT, checkpoint._asdict(), offset, time)


def decodeCheckpoint(header: FrameHeader, frame: Any) -> Checkpoint:
    """Return the content of a CHECKPOINT frame."""
    fields = FrameFields(header, frame, FrameKind.CHECKPOINT)
    committed = fields.get("committed", list)
    for each in committed:
        isBatch = isinstance(each, list) and len(each) == 4 and isinstance(each[0], str) and isInteger(each[1])
        if not isBatch or not isNumber(each[2]) or not isNumber(each[3]):
            raise FrameError("'committed' must be of queries, each with batch, base and count")
    return Checkpoint(
        fields.number("replay"),
        fields.get("clean", bool),
        fields.get("snapshot", object),
        tuple(CommittedBatch(*each) for each in committed),
    )


def decodeLost(header: FrameHeader, frame: Any) -> LostRange:
    """Return the content of a LOST frame."""
    fields = FrameFields(header, frame, FrameKind.LOST)
    lost = LostRange(*(fields.number(name) for name in LostRange._fields))
    if lost.next < lost.first:
        raise FrameError("what is lost must end behind its beginning")
    return lost


def encodeRemoved(until: int, offset: int, count: int, firstTime: int, lastTime: int) -> Frame:
    """Return a REMOVED frame; ``until`` is the position of the next frame, or of the end of the segment. ``offset``:
    that of the first of ``count`` removed records; the times are those of the first and the last one.
    """
    body = _until.pack(until)
    return Frame(FrameKind.REMOVED, [body], count=count, baseOffset=offset, firstTime=firstTime, lastTime=lastTime)


def decodeRemoved(header: FrameHeader, frame: Any) -> int:
    """Return the position of the next frame, or of the end of the segment."""
    if header.kind != FrameKind.REMOVED or header.length != REMOVED_BYTES:
        raise FrameError(f"a frame of kind {header.kind} with {header.length} bytes stands for nothing removed")
    until: int = _until.unpack_from(frame, HEADER_BYTES)[0]
    if until < header.position + header.length:
        raise FrameError("what was removed must end behind its frame")
    return until
