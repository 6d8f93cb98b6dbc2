"""One commit: the runs and state records that arrived during the previous commit, and its result.

The reactor's thread fills it, the writer's thread carries it out and fills in the result, and the reactor's thread
reads that. State records are merged, so that a thousand acknowledgements become one.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from zope.interface import Attribute, Interface

from fleximq.journal.format import control_frames
from fleximq.journal.format.column_builder import AppendedRun
from fleximq.journal.format.control_frames import encodeStateRecords
from fleximq.journal.format.frame import Frame
from fleximq.journal.format.record_columns import encodeStaged, recordFrames
from fleximq.values.histogram import BYTES, MESSAGES, SECONDS, Histogram
from fleximq.values.state_records import (
    ClientIdsReserved,
    GroupForgotten,
    GroupProgress,
    QueueAcknowledged,
    QueueClosed,
    QueueDelivered,
    QueueMoved,
    QueueOpened,
    StateRecord,
)

#: Deliveries that are hidden until about the same time, in microseconds, are merged.
_ALIKE = 1_000_000


class MergedStateRecords:
    """The state records of one commit, in order; acknowledgements of a queue are merged, and its deliveries unless some
    were delayed or parked between them. Only the opening and closing of a queue separate its earlier from later
    acknowledgements. Of a consumer group only the last record counts.
    """

    __slots__ = ("_acknowledged", "_groups", "_latest", "_records")

    def __init__(self) -> None:
        self._records: list[StateRecord | None] = []
        self._acknowledged: dict[str, array[int]] = {}
        #: The index of the last record of each queue except its acknowledgements, and of each consumer group.
        self._latest: dict[str, int] = {}
        self._groups: dict[str, int] = {}

    def add(self, note: StateRecord) -> None:
        """Add a state record; its array may be changed by the caller afterwards."""
        if type(note) is QueueAcknowledged:
            collected = self._acknowledged.get(note.key)
            if collected is None:
                collected = self._acknowledged[note.key] = array("Q")
                self._records.append(QueueAcknowledged(note.key, collected))
            collected.extend(note.offsets)
        elif type(note) is QueueDelivered:
            last = self._latestOf(note.key)
            if type(last) is QueueDelivered and _areHiddenAlike(last, note):
                self._records[self._latest[note.key]] = _together(last, note)
            else:
                self._addLatest(note.key, note._replace(again=array("Q", note.again)))
        elif type(note) is QueueMoved:
            last = self._latestOf(note.key)
            if type(last) is QueueMoved and (last.attempts, last.time) == (note.attempts, note.time):
                cast("array[int]", last.offsets).extend(note.offsets)
            else:
                self._addLatest(note.key, note._replace(offsets=array("Q", note.offsets)))
        else:
            if isinstance(note, QueueOpened | QueueClosed):
                self._latest.pop(note.key, None)
                self._acknowledged.pop(note.key, None)
            elif isinstance(note, GroupProgress | GroupForgotten):
                before = self._groups.get(note.group)
                if before is not None:
                    self._records[before] = None
                self._groups[note.group] = len(self._records)
            self._records.append(note)

    def _latestOf(self, key: str) -> StateRecord | None:
        index = self._latest.get(key)
        return None if index is None else self._records[index]

    def _addLatest(self, key: str, note: StateRecord) -> None:
        self._latest[key] = len(self._records)
        self._records.append(note)

    def take(self) -> list[StateRecord]:
        """Return all state records; called once."""
        return [note for note in self._records if note is not None]


def _areHiddenAlike(first: QueueDelivered, then: QueueDelivered) -> bool:
    """Tell whether deliveries of two records are hidden for about the same time, or those of one were dropped."""
    return not first.time or not then.time or abs(then.time - first.time) <= _ALIKE


def _together(first: QueueDelivered, then: QueueDelivered) -> QueueDelivered:
    again = array("Q", first.again)
    again.extend(then.again)
    return then._replace(count=max(first.count, then.count), again=again, time=max(first.time, then.time))


@dataclass(slots=True)
class RecordsPart:
    """Neighbouring runs; ``offset`` is that of their first message."""

    offset: int
    appended: list[AppendedRun] = field(default_factory=list)

    def frames(self) -> Iterable[Frame]:
        """Encode the runs; hot, see :mod:`fleximq.journal.format.record_columns`."""
        return recordFrames(self.appended, self.offset)


@dataclass(slots=True)
class StagedPart:
    """Staged messages; ``offset`` is that of the next message. ``made`` are their frames after encoding, ``positions``
    those of the committed frames.
    """

    query: str
    batch: int
    part: str
    appended: list[AppendedRun]
    offset: int
    made: Sequence[Frame] = ()
    positions: Sequence[int] = ()

    def frames(self) -> Sequence[Frame]:
        """Encode the messages."""
        self.made = encodeStaged({"query": self.query, "batch": self.batch, "part": self.part}, self.appended)
        for frame in self.made:
            frame.baseOffset = self.offset
        return self.made


@dataclass(slots=True)
class TransactionPart:
    """A transaction that publishes staged records from this offset, or discards them."""

    transaction: control_frames.Transaction
    offset: int
    count: int
    time: int

    def frames(self) -> Sequence[Frame]:
        """Encode the transaction."""
        return [control_frames.encodeTransaction(self.transaction, self.offset, self.count, self.time)]


#: A part of a commit with its own frames: these are encoded in order, once, on the writer's thread.
CommitPart = RecordsPart | StagedPart | TransactionPart


@dataclass(slots=True)
class Snapshot:
    """The state for a restart; ``snapshot`` does not change any more. ``committed`` has the last batch of each query,
    ``clientIds`` is the first client id that was never assigned (0: none was), ``offset`` that of the next message.
    """

    snapshot: Any
    committed: tuple[control_frames.CommittedBatch, ...]
    clientIds: int
    offset: int
    time: int

    def frames(self, replay: int, clean: bool) -> Iterator[Frame]:
        """Encode the reserved client ids and the checkpoint, which covers the frames before ``replay``."""
        if self.clientIds:
            yield encodeStateRecords([ClientIdsReserved(self.clientIds)], self.offset, self.time)
        yield control_frames.encodeCheckpoint(
            control_frames.Checkpoint(replay, clean, self.snapshot, self.committed), self.offset, self.time
        )


@dataclass(slots=True)
class SegmentOpening:
    """The beginning of a new segment: the next offset before a possible gap, and keys for its SEGMENT frame."""

    journal: str
    snapshot: Snapshot
    first: int
    owner: Mapping[str, Any] | None = None

    def frames(self, position: int) -> Iterator[Frame]:
        """Encode the first frames of the segment at this position."""
        offset, time = self.snapshot.offset, self.snapshot.time
        yield control_frames.encodeSegment(control_frames.SegmentStart(self.journal, time), self.first, self.owner)
        if self.first != offset:
            yield control_frames.encodeGap(control_frames.OffsetGap(self.first, offset), time)
        yield from self.snapshot.frames(position, clean=False)


class ICommitLog(Interface):
    """The end of the journal that commits extend: a file, or the stream of a cluster."""

    most = Attribute("""How many commits may be handed over before the first of them is carried out, at present.""")

    def carryOut(commit: "Commit") -> object:
        """Write a commit and fill in its result; called by a worker, which waits for an awaitable result. If one fails,
        so do all that were handed over after it and before its result.
        """


class OpenSegment(Protocol):
    """The segment that a commit extends; ``end`` is the position after its last frame."""

    end: int


#: A callback, its offset, and the number of its messages; an offset of -1: call it without arguments.
Call = tuple[Callable[..., None], int, int]


@dataclass(slots=True, eq=False)
class Commit:
    """Runs and state records that are written and synced together, and the result of that. ``last`` is the number of
    its last run, ``next`` the offset after its last message, ``size`` its bytes. ``calls`` is empty if it contains only
    state records, which nothing waits for. ``isStaged``: it has parts other than runs. ``opening``: it begins a new
    segment. ``closing``: it is the last of the journal. The writer fills in ``written``, every frame with its position;
    ``end``, the position after them; ``length`` of the segment; ``seconds`` of duration; and ``begun``, position and id
    of a new segment. Or ``reason``: the commit failed, and none of it is valid.
    """

    last: int
    next: int
    time: int = 0
    size: int = 0
    parts: list[CommitPart] = field(default_factory=list)
    stateRecords: MergedStateRecords | None = None
    calls: list[Call] = field(default_factory=list)
    isStaged: bool = False
    opening: SegmentOpening | None = None
    closing: Snapshot | None = None

    written: list[tuple[int, Frame]] = field(default_factory=list)
    begun: tuple[int, int] | None = None
    end: int = 0
    length: int = 0
    seconds: float = 0.0
    reason: str | None = None
    error: Exception | None = None

    def frames(self, segment: OpenSegment) -> Iterator[Frame]:
        """Encode the content of the commit; each frame must be added to the segment before the next is asked for."""
        if self.opening is not None:
            yield from self.opening.frames(segment.end)
        for part in self.parts:
            yield from part.frames()
        if self.stateRecords is not None:
            yield encodeStateRecords(self.stateRecords.take(), self.next, self.time)
        if self.closing is not None:
            yield from self.closing.frames(segment.end, clean=True)


@dataclass(slots=True, eq=False, repr=False)
class Commits:
    """The commits of a journal: ``seconds`` of encoding, writing and syncing, ``messages`` and ``bytes`` in each."""

    seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    messages: Histogram = field(default_factory=lambda: Histogram(MESSAGES))
    bytes: Histogram = field(default_factory=lambda: Histogram(BYTES))

    def add(self, seconds: float, messages: int, size: int) -> None:
        """Count a completed commit, without three calls of :meth:`Histogram.add`."""
        for histogram, value in (self.seconds, seconds), (self.messages, messages), (self.bytes, size):
            histogram.counts[bisect_left(histogram.bounds, value)] += 1
            histogram.sum += value
