"""The content of a recovered journal with its replay."""

from array import array
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any

from zope.interface import implementer

from fleximq.errors import JournalError, systemReason
from fleximq.interfaces import IQueueState, IRecoveredState
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.frame_scan import LARGE, DamagedRange, frameAt, framesOf
from fleximq.journal.files.journal_context import JournalContext
from fleximq.journal.files.open_segments import OpenSegments
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import Checkpoint, LostRange, decodeCheckpoint, decodeStateRecords
from fleximq.journal.format.frame import FrameError, FrameKind
from fleximq.values.records import StoredBatch
from fleximq.values.state_records import StateRecord


@implementer(IQueueState)
class NoQueueState:
    """The state of a broker without queues."""

    def snapshot(self) -> Any:
        """See :class:`fleximq.interfaces.IQueueState`; so with all below."""
        return None

    def lags(self) -> bool:
        return False

    def needed(self) -> "Mapping[str, int | array[int]]":
        return {}

    def reading(self) -> Mapping[str, int]:
        return {}

    def begun(self) -> None:
        pass


@implementer(IRecoveredState)
class RecoveredJournal:
    """The content of a journal. ``segments`` are all segments; the last one is not extended any more. ``end`` is the
    position of the next segment, ``nextOffset`` its first offset; ``lastOffset`` is the next offset before a possible
    gap, smaller after a stop that was not ``clean``. ``snapshot`` is the broker's state, or None; ``nextClientId`` the
    first client id that was never assigned, 0 if none was. ``transactions`` are the last batch of each query, with base
    offset and count; ``stagedOpen`` the records neither committed nor aborted: position, time and count, by query and
    batch. ``torn`` and ``lost`` are sentences.
    """

    def __init__(self, files: Files, folder: str, segments: SegmentTable | None = None) -> None:
        self._files = files
        self._folder = folder
        self.segments = SegmentTable() if segments is None else segments
        self.end = self.segments.end
        self.nextOffset = self.lastOffset = 1
        self.clean = True
        self.snapshot: dict[str, Any] | None = None
        self.nextClientId = 0
        self.transactions: dict[str, tuple[int, int, int]] = {}
        self.stagedOpen: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self.torn: list[str] = []
        self.lost: list[str] = []
        self.replayFrom = 0

    @property
    def records(self) -> int:
        """The number of records."""
        return self.segments.records

    def readCheckpoint(self) -> None:
        """Fill in what the last valid checkpoint and the frames after it say, as after a clean stop. Raises OSError."""
        index, checkpoint = self._checkpoint()
        for number, segment in enumerate(self.segments.all):
            if number == index and checkpoint is not None:
                for query, batch, base, count in checkpoint.committed:
                    self.transactions[query] = batch, base, count
            for transaction, base, count in segment.transactions:
                if not transaction.aborted:
                    self.transactions[transaction.query] = transaction.batch, base, count
            self.nextClientId = max(self.nextClientId, segment.clientIds)
        for staged in self.segments.staged():
            key = staged.query, staged.batch
            self.stagedOpen.setdefault(key, []).append((staged.position, staged.time, staged.count))
        if checkpoint is not None:
            self.replayFrom, self.snapshot = checkpoint.replay, checkpoint.snapshot
        self.lastOffset = self.nextOffset = self.segments.nextOffset

    def reportLost(self, context: JournalContext, lost: LostRange, why: str) -> None:
        """Add damage that was found after the opening to ``lost``, count it, and log it."""
        sentence = sentenceOf(lost, f"damaged ({why})")
        self.lost.append(sentence)
        context.count("lost range")
        context.log(sentence)

    def _checkpoint(self) -> tuple[int, Checkpoint | None]:
        """Return the last valid checkpoint, and the index of its segment."""
        with self._opened() as opened:
            for index in range(len(self.segments) - 1, -1, -1):
                segment = self.segments.all[index]
                for position in reversed(segment.checkpoints):
                    with suppress(FrameError):
                        return index, decodeCheckpoint(*frameAt(opened.window(segment), position, segment.id))
        return 0, None

    def _opened(self) -> "closing[OpenSegments]":
        return closing(OpenSegments(self._files, self._folder, self.segments, self.end))

    def replay(self, batches: Callable[[StoredBatch], None], notes: Callable[[StateRecord], None]) -> None:
        """Call back with all valid records and state records since the checkpoint, in order. Raises JournalError."""
        try:
            with self._opened() as opened:
                for segment in self.segments.all:
                    if segment.end > self.replayFrom:
                        self._replay(opened, segment, batches, notes)
        except OSError as error:
            raise unreadable(self._folder, error) from error

    def _replay(
        self,
        opened: OpenSegments,
        segment: Segment,
        batches: Callable[[StoredBatch], None],
        notes: Callable[[StateRecord], None],
    ) -> None:
        start = segment.beforePosition(max(self.replayFrom, segment.base))
        for each in framesOf(opened.window(segment, LARGE), segment.id, start):
            if isinstance(each, DamagedRange) or each.header.position < self.replayFrom:
                continue
            # A valid frame with an unreadable body costs only its own content.
            with suppress(FrameError):
                for batch in opened.records(*each, lambda first, nextOffset, why: None):
                    batches(batch)
                if each.header.kind == FrameKind.NOTES:
                    for note in decodeStateRecords(*each):
                        notes(note)


def sentenceOf(lost: LostRange, what: str = "damaged or missing") -> str:
    """Describe lost bytes and offsets to the operator."""
    if not lost.length:
        offsets = f"the offsets {lost.first} to {lost.next - 1}"
        return f"what was staged at position {lost.position} is gone, and with it {offsets}"
    where = f"{lost.length} bytes at position {lost.position} are {what}"
    if lost.first == lost.next:
        return f"{where}; no offsets are lost with them"
    return f"{where}, and with them the offsets {lost.first} to {lost.next - 1}"


def unreadable(folder: str, error: OSError) -> JournalError:
    """Return the error for a journal folder that cannot be read."""
    where = f" ({error.filename})" if error.filename else ""
    return JournalError(f"the journal in {folder} cannot be read: {systemReason(error)}{where}")
