"""The journal on disk, on the reactor's thread: the facade of this package.

:mod:`fleximq.journal.writing.group_commit` collects runs, :mod:`fleximq.journal.writing.writer_thread` writes them,
:mod:`fleximq.journal.files.segment_table` locates them, and :mod:`fleximq.journal.reading.reader_thread` reads them.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any

from zope.interface import implementer

from fleximq.config.journal_options import Fsync
from fleximq.errors import JournalError, NotKept
from fleximq.interfaces import IJournal
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import DurableEnd, Lock, checkFolder, identify
from fleximq.journal.files.segment_table import BacklogTotals, SegmentTable
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.journal.recovery.recovered_state import IQueueStateOwner, NoQueueState, RecoveredJournal, sentenceOf
from fleximq.journal.recovery.recovery import offsetAfterGap, recover, verifyTail
from fleximq.journal.retention.cleaner_thread import CleanerThread
from fleximq.journal.retention.former_patterns import withFormer
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.journal.retention.topic_limit import TopicLimit
from fleximq.journal.writing.commit import Commit, CommitLog, SegmentOpening, Snapshot
from fleximq.journal.writing.group_commit import GroupCommit
from fleximq.journal.writing.staging_area import StagingArea
from fleximq.journal.writing.writer_thread import CommitWriter, Worker, WriterThread, reasonOf
from fleximq.limits import MEBIBYTE
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.histogram import Commits
from fleximq.values.records import OnCommitted, OnStaged, PublishedRun, Run, TopicBounds
from fleximq.values.state_records import ClientIdsReserved, StateRecord
from fleximq.values.transitions import Transitions

#: Maximum seconds that a stop waits for the disk.
STOP_TIMEOUT = 30.0
#: A segment ends after this number of frames even if it is small: a start reads each frame after the last checkpoint,
#: 25 us each, and single messages make many frames.
SEGMENT_FRAMES = 40_000

_ALWAYS = Fsync("always")


class State(Enum):
    """RUNNING and REOPENING: the writer's thread runs. While REOPENING it checks the disk after a fault."""

    NEW = auto()
    RUNNING = auto()
    REOPENING = auto()
    CLOSED = auto()


class Event(Enum):
    """The calls of a journal's owner, and the end of the check of a reopening."""

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


@implementer(IJournal)
class DiskJournal:
    """Stores durable publications in the files of one folder.

    Order of use: construct it, :meth:`open` it, restore the broker and set ``keeper`` to it, then :meth:`begin`.

    :param callFromThread: runs a function on the reactor's thread; safe to call from any.
    :param now: microseconds since 1970.
    :param maxBytes: the approximate maximum size of the segments; 0: the capacity of the disk.
    :param maxTopics: the maximum number of topics with records, except those of dead letters; 0: unlimited.
    :param rules: which records may be removed; None: none.
    :param makeWorker: makes the worker that writes, by default a thread.
    :param onEvent: called with countable events and their number.
    :param log: called with sentences for the operator.
    :param onError: called with exceptions of commit callbacks.
    """

    onDisk = True

    def __init__(
        self,
        directory: str,
        *,
        callFromThread: Callable[..., Any],
        now: Callable[[], int],
        fsync: Fsync = _ALWAYS,
        files: Files | None = None,
        segmentBytes: int = 64 * MEBIBYTE,
        maxBytes: int = 0,
        maxTopics: int = 0,
        overloadedAt: int = 32 * MEBIBYTE,
        rules: RetentionPolicy | None = None,
        makeWorker: Callable[[CommitWriter, Callable[..., Any], Callable[[str], None]], Worker] = WriterThread,
        onEvent: Callable[[str, int], None] = lambda event, number: None,
        log: Callable[[str], None] = lambda sentence: None,
        onError: Callable[[Exception], None] | None = None,
    ) -> None:
        self.id = ""
        self.keeper: IQueueStateOwner = NoQueueState()
        #: Called when the journal becomes read-only.
        self.onFault: Callable[[], None] = lambda: None
        self.commits = Commits()
        #: Replaced when the journal is opened: metrics may ask before.
        self.bounds: Callable[[], Mapping[str, TopicBounds]] = dict
        self.time = 0
        self._folder = directory
        self._files = files or Files()
        self._fsync = fsync
        self._segmentBytes = self._rollAt = segmentBytes
        self._maxBytes = maxBytes
        self._maxTopics = maxTopics
        self._callFromThread = callFromThread
        self._now = now
        self._overloadedAt = overloadedAt
        self._rules = rules
        self._makeWorker = makeWorker
        self._onEvent = onEvent
        self._say = log
        self._onError = onError or (lambda error: log(f"what was told of a commit failed: {error!r}"))
        self._collectFrom(1)
        self._clientIds = 0
        # Of the writer that begin() makes; an owner of a shard, which writes to its stream, has none.
        self._mayRecover: Callable[[], bool] = lambda: False
        self._length = self._frames = 0
        self._unsaid: list[str] = []
        self._state = State.NEW

    def _collectFrom(self, next: int) -> None:
        """Give the next run this offset, once the writing begins."""
        self._group = GroupCommit(
            now=self._now,
            next=next,
            overloadedAt=self._overloadedAt,
            settled=self._settled,
            failed=self._failed,
            rollDue=lambda: self._length >= self._rollAt or self._frames >= SEGMENT_FRAMES,
            open=self._openingHere,
            onError=self._onError,
        )
        self.whenCommitted, self.whenRelieved = self._group.whenCommitted, self._group.whenRelieved

    # -- opening and closing -----------------------------------------------------------------------

    def open(self) -> RecoveredJournal:
        """Lock and check the folder, cut off a torn tail, and return the content; blocks. Raises JournalError."""
        checkFolder(self._files, self._folder)
        self._files.reserve()
        self._lock = Lock(self._files, self._folder)
        try:
            self.id = identify(self._files, self._folder, lambda: secrets.token_hex(16))
            return self._recover()
        except OSError as error:
            self._lock.release()
            raise JournalError(f"the journal in {self._folder} cannot be opened: {reasonOf(error)}") from error
        except BaseException:
            self._lock.release()
            raise

    def _recover(self) -> RecoveredJournal:
        """Return the content of the folder, to which this process has the lock."""
        found = self._content()
        self._durableEnd = DurableEnd(self._files, self._folder)
        self._rememberPatterns(found)
        self._found = found
        self._readFrom(found.segments)
        self._topicLimit = TopicLimit(
            self._maxTopics,
            self._segments.bounds(),
            self._rules,
            lambda: self.keeper.needed(),
            self._now,
            lambda: self._cleaner.makeRoom(),
        )
        self._clientIds = found.nextClientId
        self._collectFrom(found.nextOffset)
        self._staging = StagingArea(self._group, self._segments, found.transactions, self._now)
        self.abortStaged, self.stagedTopics = self._staging.abort, self._staging.topics
        self._cleaner = CleanerThread(
            self._files,
            self._folder,
            self._segments,
            self._rules,
            self._reader,
            lambda: self.keeper.needed(),
            self._now,
            self._callFromThread,
            self._say,
            lambda: self.keeper.reading(),
            self._goesUnread,
            self._maxBytes,
            self._rollNow,
            self._freed,
        )
        self._count("torn tail", len(found.torn))
        self._count("lost range", len(found.lost))
        return found

    def _readFrom(self, segments: SegmentTable) -> None:
        """Let :meth:`read` and the like find the records of these segments, once the reader begins."""
        self._segments = segments
        self.bounds, self.topics, self.removedSince = segments.bounds, segments.topics, segments.removedSince
        self.backlogFrom = BacklogTotals(segments).backlogFrom
        self._readBy(
            ReaderThread(self._files, self._folder, segments, self._callFromThread, self._foundLost, self._say)
        )

    def _readBy(self, reader: ReaderThread) -> None:
        self._reader = reader
        self.fetch, self.read, self.readBytes = reader.fetch, reader.read, reader.readBytes
        self.offsetAt, self.advance = reader.offsetAt, reader.advance

    def _freed(self, number: int) -> None:
        self._count("bytes freed", number)

    def _content(self) -> RecoveredJournal:
        return recover(self._files, self._folder, self.id, self._unsaid.append)

    def _rememberPatterns(self, found: RecoveredJournal) -> None:
        if self._rules is not None:
            self._rules, topics = withFormer(self._rules, self._files, self._folder, found.segments)
            if topics:
                self._unsaid.append(
                    f"topics with stored messages that are not durable any more: {topics}; their messages so far are "
                    "not deleted, but expire as --retention says"
                )

    def _count(self, name: str, number: int = 1) -> None:
        if number:
            self._onEvent(CountedEvent(EventFamily.JOURNAL, name), number)

    def _goesUnread(self, sentence: str, records: int) -> None:
        self._count("expired unread", records)
        self._say(sentence)

    def _foundLost(self, lost: LostRange, why: str) -> None:
        sentence = sentenceOf(lost, f"damaged ({why})")
        self._found.lost.append(sentence)
        self._count("lost range")
        self._say(sentence)

    def begin(self) -> None:
        """Begin a segment and accept runs, after ``keeper`` was set and restored; blocks. Raises JournalError."""
        log = CommitWriter(self._files, self._folder, self._fsync, self._found.end, partial(secrets.randbits, 64))
        commit = self._firstCommit()
        log.carryOut(commit)
        if commit.reason is not None:
            log.close()
            raise JournalError(f"the journal in {self._folder} cannot be written: {commit.reason}") from commit.error
        self._log, self._mayRecover = log, lambda: log.mayRecover
        self._begin(log, self._makeWorker(log, self._callFromThread, self._group.refuse), commit)

    def _firstCommit(self) -> Commit:
        opening = SegmentOpening(self.id, self._snapshot(), self._found.lastOffset)
        return Commit(last=0, next=self._group.next, time=self._now(), opening=opening)

    def _begin(self, log: CommitLog, worker: Worker, commit: Commit) -> None:
        self._settled(commit)
        self._worker = worker
        worker.start()
        self._reader.begin()
        self._group.begin(log, worker)
        self._state = TRANSITIONS[self._state, Event.BEGIN]
        # Later than the check above: if the journal cannot be written, only that is reported.
        while self._unsaid:
            self._say(self._unsaid.pop(0))

    def close(self) -> str | None:
        """Write all pending runs and a last checkpoint, and release the lock; return why these could not be written.
        Blocks, for 30 seconds at most.
        """
        before, self._state = self._state, TRANSITIONS[self._state, Event.CLOSE]
        if before is State.CLOSED:
            return None
        ended, reason = (True, None) if before is State.NEW else self._finish(time.monotonic() + STOP_TIMEOUT)
        if before is not State.NEW:
            self._cleaner.stop()
            self._reader.stop()
        if hasattr(self, "_durableEnd"):
            self._durableEnd.close()
            if ended:
                self._lock.release()
        self._files.reserve(0)
        return reason

    def _finish(self, until: float) -> tuple[bool, str | None]:
        """End the writing. Return whether it has ended (otherwise the folder stays locked, since a write may still be
        running), and the reason if the last checkpoint is not on disk.
        """
        group = self._group
        whole = self._flush(until)
        if whole and self.isRetried:
            whole = self._reopenNow(until)
        reason = group.readOnly
        if whole and reason is None:
            failures: list[str | None] = []
            try:
                group.closeWith(self._snapshot(), failures.append)
            except Exception as error:
                self._onError(error)
                failures.append(reasonOf(error))
            whole = self._flush(until)
            reason = failures[0] if failures else None
        group.stop()
        ended = self._worker.stop(max(0.0, until - time.monotonic()))
        if ended:
            self._log.close()
        return ended, reason if ended and whole else "the disk was too slow"

    def _reopenNow(self, until: float) -> bool:
        """Reopen the journal after a fault that may have passed, for the last checkpoint; False after a timeout."""
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

    # -- segments ----------------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        return Snapshot(self.keeper.snapshot(), self._staging.committed, self._clientIds, self._group.next, self._now())

    def _openingHere(self) -> SegmentOpening | None:
        """Return the beginning of a new segment, or None if the keeper fails; then the present one continues."""
        self._staging.expire()
        try:
            snapshot = self._snapshot()
        except Exception as error:
            self._rollAt = self._length + self._segmentBytes
            self._frames = 0
            self._onError(error)
            return None
        # Pending runs already have their offsets; the checkpoint precedes them.
        snapshot.offset = self._segments.nextOffset
        return SegmentOpening(self.id, snapshot, snapshot.offset)

    def _settled(self, commit: Commit) -> None:
        segments = self._segments
        before, first = segments.end, segments.nextOffset
        if commit.begun is not None:
            sealed = segments.all[-1].base if self._state is not State.NEW and len(segments) else None
            segments.begin(*commit.begun)
            self._rollAt = self._segmentBytes
            self._frames = 0
            if sealed is not None:
                self._reader.seal(sealed)
        for position, frame in commit.written:
            segments.committed(position, frame)
        self._staging.assignPositions(commit)
        if self._topicLimit.pending:
            self._topicLimit.settled()
        self._length = commit.length
        self._frames += len(commit.written)
        if commit.opening is not None:
            first = max(first, commit.opening.snapshot.offset)
        self.commits.add(commit.seconds, max(0, segments.nextOffset - first), max(0, commit.end - before))
        self._cleaner.settled(commit, before)
        self._durableEnd.publish(commit.end, commit.next, commit.time)
        if commit.begun is not None:
            self.clean()  # older segments may be removed only after the new one has a checkpoint

    def _rollNow(self) -> None:
        if self._group.readOnly is None:
            self._rollAt = 0
            self._group.roll()

    @property
    def _runs(self) -> bool:
        return self._state in (State.RUNNING, State.REOPENING)

    def clean(self, done: Callable[[FreedSpace], None] = lambda freed: None) -> bool:
        """Begin to remove expired records on a thread; False if a pass is running, or without rules."""
        return self._runs and self._cleaner.clean(done)

    def look(self) -> None:
        """Check that the journal's files exist, in times without commits; if not, later runs are refused."""
        if self._runs and self._group.readOnly is None:
            reasons: list[str | None] = []
            self._worker.hand(lambda: reasons.append(self._log.checkFile()), lambda: self._looked(reasons[0]))

    def _looked(self, reason: str | None) -> None:
        if reason is not None:
            self._group.refuse(reason)

    def beat(self, answered: Callable[[], None]) -> None:
        """Call back when the writing thread has finished its present work; never, if it hangs or is missing."""
        if self._runs:
            self._worker.hand(lambda: None, answered)

    def _failed(self, commit: Commit) -> None:
        self._topicLimit.pending.clear()
        self._count("read-only")
        retries = "; the broker tries again by itself" if self.isRetried else ""
        self._say(f"it is read-only and stores nothing more: {commit.reason}{retries}")
        if commit.error is not None and not isinstance(commit.error, OSError):
            self._onError(commit.error)
        self.onFault()

    # -- appending ---------------------------------------------------------------------------------

    @property
    def appended(self) -> int:
        """See :class:`fleximq.interfaces.IJournal`; so with all below."""
        return self._group.appended

    @property
    def decided(self) -> int:
        return self._group.decided

    @property
    def overloaded(self) -> bool:
        return self._group.overloaded

    @property
    def end(self) -> int:
        return self._group.end

    def append(self, topic: str, publisher: int, name: str, dialect: str, run: Run, committed: OnCommitted) -> int:
        if self._maxBytes:
            self._cleaner.check(len(run.payloads), self._group.waiting)
        isKnown = topic in self._topicLimit.known
        new = set() if isKnown else self._topicLimit.check((topic,), len(run.payloads))
        number = self._group.append(topic, publisher, name, dialect, run, committed)
        self.time = self._group.time
        if new:
            self._topicLimit.pending |= new
        return number

    def appendState(self, event: StateRecord) -> None:
        if isinstance(event, ClientIdsReserved):
            self._clientIds = max(self._clientIds, event.until)
        self._group.appendState(event)

    def stage(self, query: str, batch: int, part: str, runs: Sequence[PublishedRun], found: OnStaged) -> None:
        try:
            self._cleaner.check(1, self._group.waiting)
            self._topicLimit.check((run.topic for run in runs), 1)
        except NotKept as error:
            found(None, error.reason)
            return
        self._staging.stage(query, batch, part, runs, found)

    def commitStaged(self, query: str, batch: int, tokens: Sequence[str], committed: OnCommitted) -> None:
        new = self._topicLimit.check(self._staging.topics(query, batch), 1)
        self._staging.commit(query, batch, tokens, committed)
        self._topicLimit.pending |= new

    # Further methods of the interface are attributes, set where their parts are made: reader and staging area.

    @property
    def removals(self) -> int:
        return self._segments.removals

    # -- faults ------------------------------------------------------------------------------------

    def reopen(self, found: Callable[[str | None], None]) -> None:
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
        return verifyTail(self._files, self._folder, self._segments, end)

    def _verified(self, reason: str | None, found: Callable[[str | None], None]) -> None:
        self._state = TRANSITIONS[self._state, Event.CHECKED]
        if reason is None and self._state is State.CLOSED:
            reason = "the broker stops"
        if reason is not None:
            found(reason)
            return
        self._openSegment(found)

    def _openSegment(self, found: Callable[[str | None], None]) -> None:
        """Begin a segment after a fault; ``found`` receives None when it is on disk, or why it cannot be begun."""

        def opened(reason: str | None) -> None:
            if reason is None:
                self._count("reopened")
            found(reason)

        skipped = self._segments.nextOffset
        self._group.next = offsetAfterGap(max(self._group.next, skipped))
        try:
            opening = SegmentOpening(self.id, self._snapshot(), skipped)
        except Exception as error:
            self._onError(error)
            found(reasonOf(error))
            return
        self._group.openSegment(opening, opened)

    @property
    def isRetried(self) -> bool:
        """Whether the journal is read-only for a cause that may pass, so that it should be reopened."""
        return self._group.readOnly is not None and self._mayRecover()

    def health(self) -> Mapping[str, Any]:
        reason = self._group.readOnly
        found = self._found
        return {
            "state": "ok" if reason is None else "read-only",
            "reason": reason or "",
            "retries": self.isRetried,
            "lost": list(found.lost),
            "torn": list(found.torn),
            "bytes": self._segments.bytes,
            "segments": len(self._segments),
        }
