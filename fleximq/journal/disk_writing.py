"""Writes the commits of an opened journal to the files of its folder, on a thread, and reopens them after a fault."""

import secrets
import time
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import partial
from typing import Any

from zope.interface import implementer

from fleximq.config.journal_options import Fsync
from fleximq.errors import JournalError
from fleximq.journal.files.folder_files import Lock
from fleximq.journal.files.journal_context import JournalContext
from fleximq.journal.opened_journal import IWriting, OpenedJournal
from fleximq.journal.recovery.recovery import offsetAfterGap, verifyTail
from fleximq.journal.writing.commit import SegmentOpening
from fleximq.journal.writing.writer_thread import CommitWriter, IWorker, reasonOf
from fleximq.values.records import Run
from fleximq.values.transitions import Transitions

#: Maximum seconds that a stop waits for the disk.
STOP_TIMEOUT = 30.0


class State(Enum):
    """The writer's thread runs in RUNNING and REOPENING. In REOPENING it checks the disk after a fault."""

    NEW = auto()
    RUNNING = auto()
    REOPENING = auto()
    CLOSED = auto()


class Event(Enum):
    """BEGIN, REOPEN and CLOSE are calls of the journal; CHECKED is the end of the disk's check after REOPEN."""

    BEGIN = auto()
    REOPEN = auto()
    CHECKED = auto()
    CLOSE = auto()


TRANSITIONS: Transitions[State, Event] = Transitions(
    {
        (State.NEW, Event.BEGIN): State.RUNNING,
        (State.RUNNING, Event.REOPEN): State.REOPENING,
        (State.REOPENING, Event.CHECKED): State.RUNNING,
        (State.CLOSED, Event.CHECKED): State.CLOSED,
    }
    | {(state, Event.CLOSE): State.CLOSED for state in State}
)

#: Makes the worker that writes; called with the log to write to, ``callFromThread``, and a function that is called with
#: the reason of a failed sync.
MakeWorker = Callable[[CommitWriter, Callable[..., Any], Callable[[str], None]], IWorker]


@implementer(IWriting)
class DiskWriting:
    """Writes the journal of a single broker.

    :param fsync: when commits are synced to the disk.
    :param lock: the lock of the folder, held until :meth:`release`.
    """

    isBounded = False

    def __init__(
        self, context: JournalContext, fsync: Fsync, makeWorker: MakeWorker, lock: Lock, journal: OpenedJournal
    ) -> None:
        self._context = context
        self._journal = journal
        self._group = journal.group
        self._lock = lock
        end = journal.recovered.end
        self._log = CommitWriter(context.files, context.folder, fsync, end, partial(secrets.randbits, 64))
        self._worker = makeWorker(self._log, context.callFromThread, journal.group.refuse)
        self._state = State.NEW
        #: Whether the writer's thread has ended or never ran. Otherwise it may still write: the folder stays locked.
        self._isDone = True

    @property
    def isRetried(self) -> bool:
        """See :class:`fleximq.journal.opened_journal.IWriting`; the same holds for all methods below."""
        return self._group.readOnly is not None and self._log.mayRecover

    def begin(self) -> None:
        """Write the beginning of a segment in the calling thread; blocks until it is on disk."""
        commit = self._journal.firstCommit()
        self._log.carryOut(commit)
        if commit.reason is not None:
            self._log.close()
            words = f"the journal in {self._context.folder} cannot be written: {commit.reason}"
            raise JournalError(words) from commit.error
        self._journal.accept(commit, self._log, self._worker)
        self._state = TRANSITIONS[self._state, Event.BEGIN]

    def admit(self, runs: Iterable[Run], count: int) -> None:
        """Accept all runs: whether the disk has space shows only when a write fails."""

    def look(self) -> None:
        """Check the file on the writer's thread, unless the journal is read-only or not running."""
        if self._journal.isRunning and self._group.readOnly is None:
            reasons: list[str | None] = []
            self._worker.hand(lambda: reasons.append(self._log.checkFile()), lambda: self._looked(reasons[0]))

    def _looked(self, reason: str | None) -> None:
        if reason is not None:
            self._group.refuse(reason)

    def beat(self, answered: Callable[[], None]) -> None:
        """Hand an empty piece of work to the writer's thread, and call ``answered`` when it is done."""
        if self._journal.isRunning:
            self._worker.hand(lambda: None, answered)

    # -- faults ------------------------------------------------------------------------------------

    def reopen(self, found: Callable[[str | None], None]) -> None:
        """Check the disk on the writer's thread, and begin a segment."""
        if self._state is not State.RUNNING or self._group.reopening:
            found("the broker stops" if self._state is State.CLOSED else "the journal is just being opened")
            return
        if self._group.readOnly is None:
            found(None)
            return
        self._state = TRANSITIONS[self._state, Event.REOPEN]
        outcome: list[str | None] = []
        self._worker.hand(
            lambda: outcome.append(self._log.reopen(self._verify)), lambda: self._verified(outcome[0], found)
        )

    def _verify(self, end: int) -> int:
        return verifyTail(self._context.files, self._context.folder, self._journal.segments, end)

    def _verified(self, reason: str | None, found: Callable[[str | None], None]) -> None:
        self._state = TRANSITIONS[self._state, Event.CHECKED]
        if reason is None and self._state is State.CLOSED:
            reason = "the broker stops"
        if reason is not None:
            found(reason)
            return
        self._openSegment(found)

    def _openSegment(self, found: Callable[[str | None], None]) -> None:
        """Begin a segment after a fault; ``found`` is called with None when it is on disk, or with a reason."""

        def opened(reason: str | None) -> None:
            if reason is None:
                self._context.count("reopened")
            found(reason)

        journal = self._journal
        if journal.lags:
            found("records from before the fault are still being delivered to queues")
            return
        skipped = journal.segments.nextOffset
        self._group.next = offsetAfterGap(max(self._group.next, skipped))
        try:
            opening = SegmentOpening(journal.id, journal.snapshot(), skipped)
        except Exception as error:
            self._context.onError(error)
            found(reasonOf(error))
            return
        self._group.openSegment(opening, opened)

    # -- the end -----------------------------------------------------------------------------------

    def end(self) -> str | None:
        """Write pending runs and a last checkpoint, unless the queues lag, and stop the thread; blocks for
        :data:`STOP_TIMEOUT` at most.
        """
        before, self._state = self._state, TRANSITIONS[self._state, Event.CLOSE]
        if before is State.NEW:
            return None
        until = time.monotonic() + STOP_TIMEOUT
        group = self._group
        whole = self._flush(until)
        if whole and self.isRetried:
            whole = self._reopenNow(until)
        reason = group.readOnly
        if whole and reason is None and not self._journal.lags:
            failures: list[str | None] = []
            try:
                group.closeWith(self._journal.snapshot(), failures.append)
            except Exception as error:
                self._context.onError(error)
                failures.append(reasonOf(error))
            whole = self._flush(until)
            reason = failures[0] if failures else None
        group.stop()
        self._isDone = self._worker.stop(max(0.0, until - time.monotonic()))
        if self._isDone:
            self._log.close()
        return reason if self._isDone and whole else "the disk was too slow"

    def _reopenNow(self, until: float) -> bool:
        """Try once to reopen the journal after a fault, to write the last checkpoint; False after a timeout."""
        verified: list[str | None] = []
        self._worker.hand(lambda: verified.append(self._log.reopen(self._verify)), lambda: None)
        while not verified:
            left = until - time.monotonic()
            if left <= 0 or not self._worker.drain(left):
                return False
        if verified[0] is None:
            self._openSegment(lambda reason: None)
        return self._flush(until)

    def _flush(self, until: float) -> bool:
        """Wait until no commit is pending; False after a timeout."""
        while True:
            self._group.handOver(stateRecords=True)
            if self._group.idle:
                return True
            left = until - time.monotonic()
            if left <= 0 or not self._worker.drain(left):
                return False

    def release(self) -> None:
        """Unlock the folder, unless a write may still be in progress, and close the reserved file descriptors."""
        if self._isDone:
            self._lock.release()
        self._context.files.reserve(0)
