"""A journal with an open folder: records can be read at once, and stored after :meth:`OpenedJournal.begin`.

:mod:`fleximq.journal.writing.group_commit` collects runs, an :class:`IWriting` writes them,
:mod:`fleximq.journal.files.segment_table` locates them, and :mod:`fleximq.journal.reading.reader_thread` reads them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zope.interface import Attribute, Interface, implementer

from fleximq.errors import NotKept
from fleximq.interfaces import IJournal, IJournalAppend, IQueueState
from fleximq.journal.files.folder_files import DurableEnd
from fleximq.journal.files.journal_context import JournalContext
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.journal.recovery.recovered_state import RecoveredJournal
from fleximq.journal.retention.cleaner_thread import CleanerThread
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.journal.retention.topic_limit import TopicLimit
from fleximq.journal.stored_records import StoredRecords
from fleximq.journal.writing.commit import Commit, Commits, ICommitLog, SegmentOpening, Snapshot
from fleximq.journal.writing.group_commit import GroupCommit
from fleximq.journal.writing.staging_area import StagingArea
from fleximq.journal.writing.writer_thread import IWorker
from fleximq.limits import MEBIBYTE
from fleximq.values.records import OnCommitted, OnStaged, PublishedRun, Run
from fleximq.values.state_records import ClientIdsReserved, StateRecord

#: A segment ends after this number of frames even if it is small: a start reads each frame after the last checkpoint,
#: 25 us each, and single messages make many frames.
SEGMENT_FRAMES = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """The limits of a journal: sizes in bytes, a number of topics, and rules for the removal of records.

    :param segmentBytes: the size at which a segment ends and the next one begins.
    :param maxBytes: the approximate maximum size of the segments; 0: the capacity of the disk.
    :param maxTopics: the maximum number of topics with records, except those of dead letters; 0: unlimited.
    :param overloadedAt: the size of pending runs above which publishers should not be read.
    :param rules: which records may be removed; None: no records.
    """

    segmentBytes: int = 64 * MEBIBYTE
    maxBytes: int = 0
    maxTopics: int = 0
    overloadedAt: int = 32 * MEBIBYTE
    rules: RetentionPolicy | None = None


class IWriting(Interface):
    """Writes the commits of an opened journal: to the files of its folder, or to the stream of a cluster.

    :meth:`begin` is called first, :meth:`end` and then :meth:`release` last.
    """

    isBounded = Attribute("""Whether :meth:`admit` may refuse runs.""")
    isRetried = Attribute("""Whether the journal is read-only for a cause that may pass: then :meth:`reopen` it.""")

    def begin() -> None:
        """Write the beginning of a segment, and call :meth:`OpenedJournal.accept`; blocks. Raises JournalError."""

    def admit(runs: Iterable[Run], count: int) -> None:
        """Check that there is space for these runs; raises NotKept for the indexes of ``count`` messages."""

    def reopen(found: Callable[[str | None], None]) -> None:
        """See :class:`fleximq.interfaces.IJournal`."""

    def look() -> None:
        """Check that the journal's files still exist; if not, refuse later runs. Called in times without commits."""

    def beat(answered: Callable[[], None]) -> None:
        """Call ``answered`` when the writing thread has finished its present work; never if it hangs or is missing."""

    def end() -> str | None:
        """Write all pending runs and a last checkpoint; return the reason if these could not be written. Blocks."""

    def release() -> None:
        """Unlock the folder for other processes, unless a write may still be in progress."""


@implementer(IJournal)
class OpenedJournal(StoredRecords):
    """Stores publications in segments, and updates its table of segments after each commit.

    ``commits`` has statistics of the commits, ``recovered`` is the content of the folder when it was opened,
    ``clientIds`` the first client id that was never assigned. ``group`` collects pending runs, ``staging`` the records
    of open transactions; ``cleaner`` removes expired records.

    :param queues: the broker's queues: the journal stores snapshots of them, and retains the records that they need.
    :param makeWriting: makes the :class:`IWriting`; called with this journal, before it begins.
    :param id: the random id of the journal, which never changes.
    :param notices: sentences for the operator, logged when the journal begins. If it cannot begin, they are not logged,
        so that the error is the only report.
    :param onFault: called when the journal becomes read-only.
    :param onCleaned: called after each pass that may have removed records.
    """

    onDisk = True

    def __init__(
        self,
        context: JournalContext,
        limits: JournalLimits,
        recovered: RecoveredJournal,
        reader: ReaderThread,
        queues: IQueueState,
        makeWriting: "Callable[[OpenedJournal], IWriting]",
        *,
        journalId: str,
        notices: Sequence[str] = (),
        onFault: Callable[[], None] = lambda: None,
        onCleaned: Callable[[], None] = lambda: None,
    ) -> None:
        segments = recovered.segments
        super().__init__(segments, reader)
        self.id = journalId
        self.recovered = recovered
        self.clientIds = recovered.nextClientId
        self.commits = Commits()
        self.time = 0
        self._context = context
        self._queues = queues
        self._notices = notices
        self._onFault = onFault
        self._durableEnd = DurableEnd(context.files, context.folder)
        self._segmentBytes = self._rollAt = limits.segmentBytes
        self._length = self._frames = 0
        self.group = GroupCommit(
            now=context.now,
            next=recovered.nextOffset,
            overloadedAt=limits.overloadedAt,
            settled=self._settled,
            failed=self._failed,
            rollDue=self._isRollDue,
            open=self._openingHere,
            onError=context.onError,
        )
        self.staging = StagingArea(self.group, segments, recovered.transactions, context.now)
        self.cleaner = CleanerThread(
            context, segments, reader, limits.rules, queues, maxBytes=limits.maxBytes, roll=self.roll, passed=onCleaned
        )
        self._topicLimit = TopicLimit(
            limits.maxTopics, segments.bounds(), limits.rules, queues, context.now, self.cleaner.makeRoom
        )
        self.writing = makeWriting(self)
        self._isBounded = bool(limits.maxBytes) or self.writing.isBounded
        self._hasBegun = self._isClosed = False
        context.count("torn tail", len(recovered.torn))
        context.count("lost range", len(recovered.lost))

    # -- beginning and end -------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a segment and accept runs; call it after the broker was restored. Blocks. Raises JournalError."""
        self.writing.begin()

    def firstCommit(self) -> Commit:
        """Return the commit that begins the first segment after the folder was opened; for an :class:`IWriting`."""
        opening = SegmentOpening(self.id, self.snapshot(), self.recovered.lastOffset)
        return Commit(last=0, next=self.group.next, time=self._context.now(), opening=opening)

    def accept(self, commit: Commit, log: ICommitLog, worker: IWorker) -> None:
        """Accept runs from now on; for an :class:`IWriting` that has written the :meth:`firstCommit`.

        :param log: writes later commits, on ``worker``.
        """
        self._settled(commit)
        worker.start()
        self.reader.begin()
        self.group.begin(log, worker)
        self._hasBegun = True
        for sentence in self._notices:
            self._context.log(sentence)
        self._queues.begun()

    def close(self) -> str | None:
        """Write all pending runs and a last checkpoint, and unlock the folder; idempotent. Blocks for 30 s at most.

        Returns the reason if the pending runs or the checkpoint could not be written, otherwise None.
        """
        if self._isClosed:
            return None
        self._isClosed = True
        reason = self.writing.end()
        self.cleaner.stop()
        self.reader.stop()
        self._durableEnd.close()
        self.writing.release()
        return reason

    @property
    def isRunning(self) -> bool:
        """Whether the journal has begun and is not closed."""
        return self._hasBegun and not self._isClosed

    def settle(self) -> bool:
        """Commit all runs and state records so far; tell whether all are stored, and delivered to the queues."""
        self.group.handOver(stateRecords=True)
        return self.group.idle and not self.lags

    @property
    def lags(self) -> bool:
        """Whether a checkpoint must wait, see :meth:`fleximq.interfaces.IQueueState.lags`."""
        return self._queues.lags()

    # -- segments ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the state from which the broker continues if it is restarted after the commits so far."""
        group, now = self.group, self._context.now()
        return Snapshot(self._queues.snapshot(), self.staging.committed, self.clientIds, group.next, now)

    def _isRollDue(self) -> bool:
        return self._length >= self._rollAt or self._frames >= SEGMENT_FRAMES

    def _openingHere(self) -> SegmentOpening | None:
        """Return the beginning of a new segment. None if the queues lag, until the next commit, or if a snapshot fails:
        then the present segment continues.
        """
        if self.lags:
            return None
        self.staging.expire()
        try:
            snapshot = self.snapshot()
        except Exception as error:
            self._rollAt = self._length + self._segmentBytes
            self._frames = 0
            self._context.onError(error)
            return None
        # Pending runs already have their offsets; the checkpoint precedes them.
        snapshot.offset = self.segments.nextOffset
        return SegmentOpening(self.id, snapshot, snapshot.offset)

    def _settled(self, commit: Commit) -> None:
        """Add a successful commit to the table of segments and to the statistics."""
        segments = self.segments
        before, first = segments.end, segments.nextOffset
        if commit.begun is not None:
            self._begun(*commit.begun)
        for position, frame in commit.written:
            segments.committed(position, frame)
        if commit.isStaged:
            self.staging.assignPositions(commit)
        if self._topicLimit.pending:
            self._topicLimit.settled()
        self._length = commit.length
        self._frames += len(commit.written)
        if commit.opening is not None:
            first = max(first, commit.opening.snapshot.offset)
        self.commits.add(commit.seconds, max(0, segments.nextOffset - first), max(0, commit.end - before))
        self._durableEnd.publish(commit.end, commit.next, commit.time)
        if commit.begun is not None:
            self.clean()  # older segments may be removed only after the new one has a checkpoint

    def _begun(self, position: int, segmentId: int) -> None:
        """Add a new segment to the table, and seal the previous one if it was written by this journal."""
        segments = self.segments
        sealed = segments.all[-1].base if self._hasBegun and len(segments) else None
        segments.begin(position, segmentId)
        self._rollAt = self._segmentBytes
        self._frames = 0
        if sealed is not None:
            self.reader.seal(sealed)

    def roll(self) -> None:
        """Begin a segment with the next commit, and make one."""
        if self.group.readOnly is None:
            self._rollAt = 0
            self.group.roll()

    def clean(self, done: Callable[[FreedSpace], None] = lambda freed: None) -> bool:
        """Begin to remove expired records on a thread, and call ``done`` after; False if a pass is running already, or
        without rules: then ``done`` is not called.
        """
        return self.isRunning and self.cleaner.clean(done)

    # -- appending ---------------------------------------------------------------------------------

    @property
    def appended(self) -> int:
        """See :class:`fleximq.interfaces.IJournal`; the same holds for all methods below."""
        return self.group.appended

    @property
    def decided(self) -> int:
        return self.group.decided

    @property
    def overloaded(self) -> bool:
        return self.group.overloaded

    @property
    def end(self) -> int:
        return self.group.end

    def append(self, topic: str, publisher: int, name: str, dialect: str, run: Run, committed: OnCommitted) -> int:
        count = len(run.payloads)
        if self._isBounded:
            self._checkRoom((run,), count)
        isKnown = topic in self._topicLimit.known
        new = set() if isKnown else self._topicLimit.check((topic,), count)
        number = self.group.append(topic, publisher, name, dialect, run, committed)
        self.time = self.group.time
        if new:
            self._topicLimit.pending |= new
        return number

    def _checkRoom(self, runs: Iterable[Run], count: int) -> None:
        self.writing.admit(runs, count)
        self.cleaner.check(count, self.group.waiting)

    def tellCurrent(self, use: Callable[[IJournalAppend], None]) -> None:
        use(self)

    def whenCommitted(self, call: Callable[[], None], number: int | None = None) -> None:
        self.group.whenCommitted(call, number)

    def whenRelieved(self, call: Callable[[], None]) -> None:
        self.group.whenRelieved(call)

    def appendState(self, event: StateRecord) -> None:
        if isinstance(event, ClientIdsReserved):
            self.clientIds = max(self.clientIds, event.until)
        self.group.appendState(event)

    def stage(self, query: str, batch: int, part: str, runs: Sequence[PublishedRun], found: OnStaged) -> None:
        try:
            self._checkRoom((each.run for each in runs), 1)
            self._topicLimit.check((run.topic for run in runs), 1)
        except NotKept as error:
            found(None, error.reason)
            return
        self.staging.stage(query, batch, part, runs, found)

    def commitStaged(self, query: str, batch: int, tokens: Sequence[str], committed: OnCommitted) -> None:
        new = self._topicLimit.check(self.staging.topics(query, batch), 1)
        self.staging.commit(query, batch, tokens, committed)
        self._topicLimit.pending |= new

    def abortStaged(self, query: str, batch: int) -> None:
        self.staging.abort(query, batch)

    def stagedTopics(self, query: str, batch: int) -> set[str]:
        return self.staging.topics(query, batch)

    # -- faults ------------------------------------------------------------------------------------

    def _failed(self, commit: Commit) -> None:
        context = self._context
        self._topicLimit.pending.clear()
        context.count("read-only")
        retries = "; the broker tries again by itself" if self.writing.isRetried else ""
        context.log(f"it is read-only and stores nothing more: {commit.reason}{retries}")
        if commit.error is not None and not isinstance(commit.error, OSError):
            context.onError(commit.error)
        self._onFault()

    def reopen(self, found: Callable[[str | None], None]) -> None:
        self.writing.reopen(found)

    def health(self) -> Mapping[str, Any]:
        reason = self.group.readOnly
        return {
            "state": "ok" if reason is None else "read-only",
            "reason": reason or "",
            "retries": self.writing.isRetried,
            "lost": list(self.recovered.lost),
            "torn": list(self.recovered.torn),
            "bytes": self.segments.bytes,
            "segments": len(self.segments),
        }
