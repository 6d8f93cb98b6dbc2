"""What was in a journal when it was opened, and how to go through it: what recovery hands to the broker.

What the journal asks of whoever knows the queues.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files, errorText
from fleximq.journal.files.frame_scan import DamagedRange, framesOf
from fleximq.journal.files.open_segments import OpenSegments
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.files.window import LARGE
from fleximq.journal.format.control_frames import LostRange, decodeNotes
from fleximq.journal.format.frame import FrameError, FrameKind
from fleximq.values.records import StoredBatch
from fleximq.values.state_records import StateRecord


class IQueueStateOwner(Protocol):
    """The broker's side of checkpoints and retention."""

    def snapshot(self) -> Any:
        """Return all that has to outlive a restart, as MessagePack can hold it; nothing in it changes later.

        It knows of all that the journal told somebody of so far.
        """

    def needed(self) -> Mapping[str, int]:
        """Return, by topic, the lowest offset that a queue still needs."""

    def reading(self) -> Mapping[str, int]:
        """Return the offset that each consumer group reads next; nothing is kept for them."""


class NoQueueState:
    """The keeper of a journal without queues."""

    def snapshot(self) -> Any:
        """Return None."""
        return None

    def needed(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    def reading(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}


class RecoveredJournal:
    """What a journal holds.

    ``segments`` are all of them, the last one included: it is not written to any more. ``end`` is the position where
    a new one begins, ``nextOffset`` the offset of its first record; ``lastOffset`` is where numbering stood: smaller
    if the last stop was not ``clean``. ``snapshot`` is the broker's, None if there is none, and ``nextClientId`` the
    first that was never given out, 0 if none was. ``transactions`` are the last batch of each query, with base offset
    and count; ``stagedOpen`` what was staged and neither committed nor aborted: position, time and count, by query and
    batch. ``torn`` and ``lost`` are sentences.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self.segments = SegmentTable()
        self.end = 0
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
        """How many records are kept."""
        return self.segments.records

    def replay(self, batches: Callable[[StoredBatch], None], notes: Callable[[StateRecord], None]) -> None:
        """Give all records and notes from the checkpoint on, in order; what is damaged is passed over.

        :raises JournalError: a file cannot be read.
        """
        opened = OpenSegments(self._files, self._folder, self.segments)
        opened.end = self.end
        try:
            for segment in self.segments.all:
                if segment.end > self.replayFrom:
                    self._replay(opened, segment, batches, notes)
        except OSError as error:
            raise unreadable(self._folder, error) from error
        finally:
            opened.close()

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
            # A frame whose check sum is right and whose body is not ours to read costs its content, no more.
            with suppress(FrameError):
                for batch in opened.records(*each, lambda first, next, why: None):
                    batches(batch)
                if each.header.kind == FrameKind.NOTES:
                    for note in decodeNotes(*each):
                        notes(note)


def sentenceOf(lost: LostRange, what: str = "damaged or missing") -> str:
    """Say what is lost to whoever runs the broker."""
    if not lost.length:
        offsets = f"the offsets {lost.first} to {lost.next - 1}"
        return f"what was staged at position {lost.position} is gone, and with it {offsets}"
    where = f"{lost.length} bytes at position {lost.position} are {what}"
    if lost.first == lost.next:
        return f"{where}; no offsets are lost with them"
    return f"{where}, and with them the offsets {lost.first} to {lost.next - 1}"


def unreadable(folder: str, error: OSError) -> JournalError:
    """Return the error that says that a journal's folder cannot be read, and why."""
    where = f" ({error.filename})" if error.filename else ""
    return JournalError(f"the journal in {folder} cannot be read: {errorText(error)}{where}")
