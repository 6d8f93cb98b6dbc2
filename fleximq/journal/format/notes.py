"""NOTES frames: what happened to queues and clients, there and back. Pure.

The body is an array of notes, each an array of its kind and its values; docs/journal-format.rst has all of them.
"""

import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleximq.journal.format.body import frameOf, isNumber, readBody
from fleximq.journal.format.frame import Frame, FrameError, FrameHeader, Kind
from fleximq.values.records import Acknowledged, ClientIds, Closed, Forgotten, HandedOut, Note, Opened, Reached

_BIG_ENDIAN = sys.byteorder == "big"


def encodeNotes(notes: Sequence[Note], offset: int, time: int) -> Frame:
    """Return a NOTES frame with at least one note."""
    body = [[_CODES[type(note)], *(_packed(value) for value in note)] for note in notes]
    return frameOf(Kind.NOTES, body, offset, time, len(notes))


def decodeNotes(header: FrameHeader, frame: Any) -> list[Note]:
    """Return the notes of a NOTES frame."""
    notes = readBody(header, frame, Kind.NOTES)
    if not isinstance(notes, list) or len(notes) != header.count:
        raise FrameError(f"there must be {header.count} notes")
    return [_note(fields) for fields in notes]


def _note(fields: Any) -> Note:
    if not isinstance(fields, list) or not fields or not isNumber(fields[0], len(NOTES) - 1):
        raise FrameError("a note must be an array that begins with its kind")
    make, checks = NOTES[fields[0]]
    values = fields[1:]
    if len(values) != len(checks):
        raise FrameError(f"a note {make.__name__} has {len(checks)} values, not {len(values)}")
    for name, value, check in zip(make._fields, values, checks, strict=True):
        if not check(value):
            raise FrameError(f"{name!r} of a note {make.__name__} is wrong")
    note: Note = make(*(_offsets(value) if isinstance(value, bytes) else value for value in values))
    return note


def _packed(value: Any) -> Any:
    """Return a value as MessagePack has it: offsets are bytes, eight for each."""
    if isinstance(value, (str, int)) or value is None:
        return value
    offsets = array("Q", value)
    if _BIG_ENDIAN:
        offsets.byteswap()
    return offsets.tobytes()


def _offsets(packed: bytes) -> "array[int]":
    offsets = array("Q", packed)
    if _BIG_ENDIAN:
        offsets.byteswap()
    return offsets


def _isText(value: Any) -> bool:
    return isinstance(value, str)


def _isOwner(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _isQos(value: Any) -> bool:
    return isNumber(value, 1)


def _areOffsets(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) % 8 == 0


#: By their codes, the notes and how their values are checked.
NOTES: tuple[tuple[Any, tuple[Callable[[Any], bool], ...]], ...] = (
    (Opened, (_isText, _isText, _isQos, isNumber, _isOwner, isNumber)),
    (Closed, (_isText,)),
    (HandedOut, (_isText, isNumber, _areOffsets, isNumber)),
    (Acknowledged, (_isText, _areOffsets)),
    (ClientIds, (isNumber,)),
    (Reached, (_isText, isNumber, isNumber, isNumber)),
    (Forgotten, (_isText,)),
)
_CODES: Mapping[type, int] = {kind: code for code, (kind, _) in enumerate(NOTES)}
