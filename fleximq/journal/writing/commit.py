"""One commit: what came together while the one before it was written, and what became of it.

The reactor's thread fills it, then the writer's has it to itself, then it comes back with its last fields filled in.

Notes that wait for the next commit, put together so that a thousand acknowledgements are one.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleximq.journal.format import control_frames
from fleximq.journal.format.column_builder import AppendedRun
from fleximq.journal.format.control_frames import encodeNotes
from fleximq.journal.format.frame import Frame
from fleximq.journal.format.record_columns import encodeRecords, encodeStaged
from fleximq.values.state_records import (
    ClientIdsReserved,
    GroupForgotten,
    GroupProgress,
    QueueAcknowledged,
    QueueClosed,
    QueueDelivered,
    QueueOpened,
    StateRecord,
)


class MergedStateRecords:
    """The notes of one commit, in order, but of each queue all that was handed out is one, as is all acknowledged.

    Only notes that open or close a queue stand between what came before and what came after them. Of a consumer group
    the last word counts.
    """

    __slots__ = ("_acknowledged", "_handedOut", "_notes", "_words")

    def __init__(self) -> None:
        self._notes: list[StateRecord | None] = []
        self._handedOut: dict[str, tuple[int, QueueDelivered]] = {}
        self._acknowledged: dict[str, tuple[int, array[int]]] = {}
        self._words: dict[str, int] = {}

    def add(self, note: StateRecord) -> None:
        """Take one more; an array that is in it may be changed by its owner afterwards."""
        if type(note) is QueueAcknowledged:
            gathered = self._acknowledged.get(note.key)
            if gathered is None:
                gathered = self._acknowledged[note.key] = len(self._notes), array("Q")
                self._notes.append(None)
            gathered[1].extend(note.offsets)
        elif type(note) is QueueDelivered:
            known = self._handedOut.get(note.key)
            if known is None:
                self._handedOut[note.key] = len(self._notes), note._replace(again=array("Q", note.again))
                self._notes.append(None)
            else:
                self._handedOut[note.key] = known[0], _together(known[1], note)
        elif isinstance(note, GroupProgress | GroupForgotten):
            before = self._words.pop(note.group, None)
            if before is not None:
                self._notes[before] = None
            self._words[note.group] = len(self._notes)
            self._notes.append(note)
        else:
            if isinstance(note, QueueOpened | QueueClosed):
                self._settle(note.key)
            self._notes.append(note)

    def _settle(self, key: str) -> None:
        """Put what was gathered of a queue in its place; what comes of it now comes later."""
        handedOut = self._handedOut.pop(key, None)
        if handedOut is not None:
            self._notes[handedOut[0]] = handedOut[1]
        acknowledged = self._acknowledged.pop(key, None)
        if acknowledged is not None:
            self._notes[acknowledged[0]] = QueueAcknowledged(key, acknowledged[1])

    def take(self) -> list[StateRecord]:
        """Return all of them, once."""
        for key in {*self._handedOut, *self._acknowledged}:
            self._settle(key)
        return [note for note in self._notes if note is not None]


def _together(first: QueueDelivered, then: QueueDelivered) -> QueueDelivered:
    again = array("Q", first.again)
    again.extend(then.again)
    return then._replace(count=max(first.count, then.count), again=again, time=max(first.time, then.time))


class CommitPart(Protocol):
    """Something that becomes frames of its own."""

    def frames(self) -> Sequence[Frame]:
        """Return them, in order; called once, on the writer's thread."""


@dataclass(slots=True)
class RecordsPart:
    """Neighbouring runs, the first message of which has this offset."""

    offset: int
    appended: list[AppendedRun] = field(default_factory=list)

    def frames(self) -> Sequence[Frame]:
        """Encode them; hot, see :mod:`fleximq.journal.format.record_columns`."""
        return encodeRecords(self.appended, self.offset)


@dataclass(slots=True)
class StagedRecords:
    """Messages that nobody sees yet; ``offset`` is the one that the next message will get.

    ``made`` are their frames once there are any, ``positions`` where these stand once they are safe.
    """

    query: str
    batch: int
    part: str
    appended: list[AppendedRun]
    offset: int
    made: Sequence[Frame] = ()
    positions: Sequence[int] = ()

    def frames(self) -> Sequence[Frame]:
        """Encode them."""
        self.made = encodeStaged({"query": self.query, "batch": self.batch, "part": self.part}, self.appended)
        for frame in self.made:
            frame.baseOffset = self.offset
        return self.made


@dataclass(slots=True)
class TransactionPart:
    """A transaction, which makes what is staged visible from this offset on, or never."""

    transaction: control_frames.Transaction
    offset: int
    count: int
    time: int

    def frames(self) -> Sequence[Frame]:
        """Encode it."""
        return [control_frames.encodeTransaction(self.transaction, self.offset, self.count, self.time)]


@dataclass(slots=True)
class Snapshot:
    """What a restart begins with; nothing of ``snapshot`` changes any more.

    ``committed`` has the last batch of each query, ``clientIds`` is the first client id that was never given out (0:
    none was), ``offset`` the one that the next message will get.
    """

    snapshot: Any
    committed: tuple[control_frames.CommittedBatch, ...]
    clientIds: int
    offset: int
    time: int

    def frames(self, replay: int, clean: bool) -> Iterator[Frame]:
        """Encode the checkpoint, and what has to be said again behind the place where replay begins.

        :param replay: the position of the first frame of which the snapshot knows nothing.
        """
        if self.clientIds:
            yield encodeNotes([ClientIdsReserved(self.clientIds)], self.offset, self.time)
        yield control_frames.encodeCheckpoint(
            control_frames.Checkpoint(replay, clean, self.snapshot, self.committed), self.offset, self.time
        )


@dataclass(slots=True)
class SegmentOpening:
    """The beginning of a new segment; ``first`` is where numbering stood, which may go on further up."""

    journal: str
    snapshot: Snapshot
    first: int

    def frames(self, position: int) -> Iterator[Frame]:
        """Encode what stands at the beginning of the segment with this position."""
        offset, time = self.snapshot.offset, self.snapshot.time
        yield control_frames.encodeSegment(control_frames.SegmentStart(self.journal, time), self.first)
        if self.first != offset:
            yield control_frames.encodeGap(control_frames.OffsetGap(self.first, offset), time)
        yield from self.snapshot.frames(position, clean=False)


#: What to call, with which offset, and how many messages are out then; an offset of -1: call without arguments.
Call = tuple[Callable[..., None], int, int]


@dataclass(slots=True, eq=False)
class Commit:
    """``last`` is the number of the last run in it, ``next`` the offset behind its last message, ``size`` its bytes.

    ``calls`` are empty if there are only state records, for which nobody waits. ``opening``: it goes into a new
    segment. ``closing``: behind it the journal is closed. After it was carried out ``written`` has every frame with its
    position, ``end`` is the position behind them, ``length`` that of the segment, ``seconds`` how long it took, and
    ``begun`` its position and id where it is new; or ``reason`` says why nothing of this may be believed.
    """

    last: int
    next: int
    time: int = 0
    size: int = 0
    parts: list[CommitPart] = field(default_factory=list)
    noted: MergedStateRecords | None = None
    calls: list[Call] = field(default_factory=list)
    opening: SegmentOpening | None = None
    closing: Snapshot | None = None

    written: list[tuple[int, Frame]] = field(default_factory=list)
    begun: tuple[int, int] | None = None
    end: int = 0
    length: int = 0
    seconds: float = 0.0
    reason: str | None = None
    error: Exception | None = None

    def frames(self, position: int) -> list[Frame]:
        """Encode all that is in it, to be written from this position on."""
        frames: list[Frame] = []
        if self.opening is not None:
            frames += self.opening.frames(position)
        for part in self.parts:
            frames += part.frames()
        if self.noted is not None:
            frames.append(encodeNotes(self.noted.take(), self.next, self.time))
        if self.closing is not None:
            frames += self.closing.frames(position + sum(frame.length for frame in frames), clean=True)
        return frames
