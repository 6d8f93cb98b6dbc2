"""Frames of every kind for tests of the journal, and how they are read."""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fleximq.journal.format.body import frameOf
from fleximq.journal.format.column_builder import AppendedRun
from fleximq.journal.format.control_frames import (
    Checkpoint,
    CommittedBatch,
    LostRange,
    OffsetGap,
    SegmentStart,
    Transaction,
    decodeCheckpoint,
    decodeGap,
    decodeLost,
    decodeRemoved,
    decodeSegment,
    decodeStateRecords,
    decodeTransaction,
    encodeCheckpoint,
    encodeGap,
    encodeRemoved,
    encodeSegment,
    encodeStateRecords,
    encodeTransaction,
)
from fleximq.journal.format.frame import Frame, FrameHeader, FrameKind, completeFrame, seal
from fleximq.journal.format.record_columns import (
    decodeRecords,
    decodeStaged,
    encodeRecords,
    encodeSparse,
    encodeStaged,
)
from fleximq.values.records import Run
from fleximq.values.state_records import (
    ClientIdsReserved,
    GroupForgotten,
    GroupProgress,
    QueueAcknowledged,
    QueueClosed,
    QueueDelivered,
    QueueOpened,
)

#: A time in microseconds since 1970.
TIME = 1_790_000_000_000_000
SEGMENT = 0x0123456789ABCDEF
JOURNAL = "00112233445566778899aabbccddeeff"

#: How the body of each kind is read.
DECODERS: dict[FrameKind, Callable[[FrameHeader, Any], Any]] = {
    FrameKind.SEGMENT: decodeSegment,
    FrameKind.RECORDS: decodeRecords,
    FrameKind.SPARSE_RECORDS: decodeRecords,
    FrameKind.STAGED: decodeStaged,
    FrameKind.TRANSACTION: decodeTransaction,
    FrameKind.NOTES: decodeStateRecords,
    FrameKind.GAP: decodeGap,
    FrameKind.CHECKPOINT: decodeCheckpoint,
    FrameKind.REMOVED: decodeRemoved,
    FrameKind.LOST: decodeLost,
}


def appended(
    *payloads: bytes,
    topic: str = "news",
    publisher: int = 1000,
    name: str = "fleximq-1000",
    dialect: int = 1,
    time: int = TIME,
    headers: bytes | Sequence[bytes] = b"",
    contents: int | Sequence[int] = 0x100,
) -> AppendedRun:
    """Return a run to be kept."""
    return AppendedRun(topic, publisher, name, dialect, time, Run(headers, payloads, contents))


def written(frame: Frame, position: int = 0, previous: int = 0, synced: bool = False) -> bytes:
    """Return the bytes of a frame."""
    return b"".join(seal(frame, SEGMENT, position, previous, synced)[0])


def read(frame: bytes) -> tuple[FrameHeader, bytes]:
    """Return a frame's header, when it was checked, and its bytes."""
    header, view = completeFrame(frame)
    return header, bytes(view)


def mixed() -> list[AppendedRun]:
    """Return runs of several topics, publishers, dialects, headers and contents."""
    return [
        appended(b"\x01", b"\xa2hi", b""),
        appended(b"bytes", topic="sport", publisher=1001, name="blipmq-1001", dialect=2, time=TIME + 1, contents=1),
        appended(
            "tëxt".encode(),
            b"line",
            topic="weather/é",
            publisher=1002,
            name="minimq-1002",
            dialect=3,
            time=TIME + 2,
            headers=[b"\x81\xaamessage_id\xa1m", b""],
            contents=[0x502, 0x702],
        ),
        appended(
            b"plug", publisher=1003, name="lines-1003", dialect=0xFFFF, time=TIME + 3, headers=b"\x81\xa3key\xc4\x01k"
        ),
    ]


def everyKind(position: int = 0) -> list[Frame]:
    """Return a frame of each kind, as a segment that begins at a position could have them one behind the other.

    What a REMOVED frame stands for would be the rest of a segment of 64 KiB.
    """
    start = encodeSegment(SegmentStart(JOURNAL, TIME), 1)
    checkpoint = encodeCheckpoint(
        Checkpoint(position, False, {"queues": [1, None]}, (CommittedBatch("q", 6, 1, 2),)), 1, TIME
    )
    [records] = encodeRecords(mixed(), 1)
    meta = {"query": "q", "batch": 7, "part": "0"}
    [staged] = encodeStaged(meta, [appended(b"later"), appended(b"too", topic="sport")])
    staged.baseOffset = 8
    stagedAt = position + start.length + checkpoint.length + records.length
    [later] = encodeRecords(mixed(), 1_000_000_000)
    return [
        start,
        checkpoint,
        records,
        staged,
        encodeTransaction(Transaction("q", 7, (stagedAt,)), 8, 2, TIME + 4),
        encodeTransaction(Transaction("q", 8, (), True), 10, 0, TIME + 5),
        encodeStateRecords(
            [
                QueueOpened("s:1", "sport", 1, 1, None, 4),
                QueueOpened("q:weather/é", "weather/é", 1, 0, "owner", 5),
                QueueDelivered("s:1", 1, array("Q", [4]), TIME),
                QueueAcknowledged("s:1", array("Q", [4, 2**64 - 1])),
                QueueClosed("s:1"),
                ClientIdsReserved(2000),
                GroupProgress("billing", 43, TIME, 2),
                GroupForgotten("gone"),
            ],
            10,
            TIME + 6,
        ),
        encodeGap(OffsetGap(10, 1_000_000_000), TIME + 7),
        encodeSparse(decodeRecords(*read(written(later))).pick([0, 3, 6])),
        frameOf(FrameKind.LOST, LostRange(0, 64, 0, 1)._asdict(), 1_000_000_007, TIME + 8),
        encodeRemoved(position + 65536, 1_000_000_007, 5, TIME + 8, TIME + 9),
    ]


def chained(frames: Iterable[Frame], position: int = 0) -> list[bytes]:
    """Return frames as they stand one behind the other in a segment."""
    found: list[bytes] = []
    previous = 0
    for frame in frames:
        buffers, previous = seal(frame, SEGMENT, position, previous, not found)
        found.append(b"".join(buffers))
        position += frame.length
    return found
