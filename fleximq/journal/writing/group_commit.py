"""Group commit on the reactor's thread: the runs that arrive during one commit form the next.

A file takes one commit at a time. The stream of a cluster takes several, in order, since each one is a request over the
network; the next is sent when it has as many bytes as all that are under way, so commits do not become smaller.

Hot: :meth:`GroupCommit.append` costs about 3 us for each run. A record of 100 bytes in runs of 1,000 costs 0.12 us on
the reactor's thread and 0.08 us on the writer's (CPython 3.11, one core). Encoding on the reactor's thread was clearly
slower than on the writer's; starting a commit at the end of a reactor turn made no visible difference.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial

from fleximq.errors import NotKept
from fleximq.journal.format.column_builder import AppendedRun
from fleximq.journal.writing.commit import (
    Commit,
    CommitPart,
    ICommitLog,
    MergedStateRecords,
    RecordsPart,
    SegmentOpening,
    Snapshot,
)
from fleximq.journal.writing.writer_thread import IWorker, reasonOf
from fleximq.values.records import OTHER_DIALECT, PUBLISHER_CODES, Blobs, OnCommitted, Run
from fleximq.values.state_records import StateRecord

#: State records wait this many seconds for a commit with messages.
STATE_RECORDS_WAIT = 0.005
#: Approximate bytes of a record in a frame, without header and payload.
_RECORD_BYTES = 28


@dataclass(eq=False)
class GroupCommit:
    """Collects runs, starts commits, and reports the result of each run in order.

    ``end`` is the offset after the last reported message, ``next`` that of the next appended one. ``appended`` is the
    number of the last run, ``time`` when it was appended, ``decided`` the number of the last reported one. ``readOnly``
    is the reason why appends are refused, or None; ``reopening``: a commit that begins a segment after a fault is being
    written.

    :param now: microseconds since 1970.
    :param overloadedAt: ``overloaded`` is True while more bytes than this wait.
    :param settled: called with each successful commit, before its callbacks.
    :param failed: called with the first failed commit.
    :param rollDue: returns whether the next commit should begin a new segment.
    :param open: returns the beginning of that segment, or None if it cannot be made now.
    :param onError: called with the exceptions of callbacks.
    """

    _: KW_ONLY
    now: Callable[[], int]
    next: int
    overloadedAt: int
    settled: Callable[[Commit], None]
    failed: Callable[[Commit], None]
    rollDue: Callable[[], bool]
    open: Callable[[], SegmentOpening | None]
    onError: Callable[[Exception], None]

    def __post_init__(self) -> None:
        self.end = self.next
        self.appended = self.decided = self.time = 0
        self.overloaded = False
        self.readOnly: str | None = "the journal is not open"
        self._commitLog: ICommitLog | None = None
        self._worker: IWorker | None = None
        self._bytes = 0
        self._room: list[Callable[[], None]] = []
        self._opening = self._faulty = self.reopening = False
        #: The commit with the state records that a reminder was set for.
        self._reminded: Commit | None = None
        self._pending = Commit(last=0, next=self.next)
        #: The commits that were handed over and have no result yet.
        self._writing: deque[Commit] = deque()
        #: The bytes of the commits in ``_writing``.
        self._underWay = 0
        self._telling: Commit | None = None

    def begin(self, log: ICommitLog, worker: IWorker) -> None:
        """Accept runs from now on; the worker runs the commits of this log."""
        self._commitLog, self._worker = log, worker
        self.readOnly = None

    # -- appending ---------------------------------------------------------------------------------

    def append(self, topic: str, publisher: int, name: str, dialect: str, run: Run, committed: OnCommitted) -> int:
        """See :class:`fleximq.interfaces.IJournal`."""
        count = len(run.payloads)
        if self.readOnly is not None:
            raise NotKept(self.readOnly, range(count))
        self.time = self.now()
        each = appendedOf(topic, publisher, name, dialect, run, self.time)
        pending = self._pending
        parts = pending.parts
        if parts and type(parts[-1]) is RecordsPart:
            parts[-1].appended.append(each)
        else:
            parts.append(RecordsPart(self.next, [each]))
        offset = self.next
        self.next = offset + count
        return self._took(committed, offset, count, sizeOf(run))

    def add(self, part: CommitPart, offset: int, count: int, size: int, committed: OnCommitted) -> int:
        """Append a part other than a run, with ``count`` messages from this offset. Raises NotKept."""
        if self.readOnly is not None:
            raise NotKept(self.readOnly, range(count))
        self._pending.parts.append(part)
        self._pending.isStaged = True
        self.next = max(self.next, offset + count)
        return self._took(committed, offset, count, size)

    def _took(self, committed: OnCommitted, offset: int, count: int, size: int) -> int:
        pending = self._pending
        self.appended = pending.last = self.appended + 1
        pending.calls.append((committed, offset, count))
        pending.next = self.next
        pending.size += size
        self._bytes += size
        if self._bytes > self.overloadedAt:
            self.overloaded = True
        if not self._writing or pending.size >= self._underWay:
            self.handOver()
        return self.appended

    def appendState(self, event: StateRecord) -> None:
        """See :class:`fleximq.interfaces.IJournal`; ignored after a fault, since the next checkpoint covers it."""
        if self.readOnly is None or self.reopening:
            pending = self._pending
            if pending.stateRecords is None:
                pending.stateRecords = MergedStateRecords()
            pending.stateRecords.add(event)
            if not self._writing:
                self.handOver()

    def whenCommitted(self, call: Callable[[], None], number: int | None = None) -> None:
        """See :class:`fleximq.interfaces.IJournal`."""
        commit = self._commitOf(number)
        if commit is None:
            call()
            return
        commit.calls.append((call, -1, 0))
        if not self._writing:
            self.handOver()

    def _commitOf(self, number: int | None) -> Commit | None:
        """Return the unreported commit of a run, or the last one with anything in it."""
        pending = self._pending
        if number is None:
            if pending.calls or pending.stateRecords:
                return pending
            return self._writing[-1] if self._writing else self._telling
        if number <= self.decided:
            return None
        commits = (self._telling, *self._writing, pending)
        return next((commit for commit in commits if commit is not None and number <= commit.last), None)

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """See :class:`fleximq.interfaces.IJournal`."""
        if self.overloaded:
            self._room.append(call)
        else:
            call()

    @property
    def waiting(self) -> int:
        """The approximate number of uncommitted bytes."""
        return self._bytes

    @property
    def idle(self) -> bool:
        """Whether no commit is pending, being written or being reported."""
        pending = self._pending
        return not (pending.calls or pending.stateRecords or self._writing or self._telling)

    # -- handing over ------------------------------------------------------------------------------

    def handOver(self, stateRecords: bool = False) -> None:
        """Start the pending commit unless the log has enough to write. One with state records alone waits for messages,
        unless ``stateRecords`` is true.
        """
        pending, log = self._pending, self._commitLog
        refused = self.readOnly is not None and not self.reopening
        if refused or self._worker is None or log is None or self._opening:
            return
        if self._writing and (pending.size < self._underWay or len(self._writing) >= log.most):
            return
        if not pending.calls and not stateRecords:
            if pending.stateRecords and self._reminded is None:
                self._reminded = pending
                self._worker.remind(STATE_RECORDS_WAIT, self._reminderCame)
            return
        if not (pending.calls or pending.stateRecords):
            return
        if self.rollDue():
            if self._telling is not None or self._writing:
                # A snapshot contains exactly the reported commits, so it must not be made before all are reported.
                return
            if pending.opening is None:
                # Making the snapshot may append state records, which must not start another commit.
                self._opening = True
                try:
                    pending.opening = self.open()
                finally:
                    self._opening = False
        pending.time = self.now()
        self._pending = Commit(last=pending.last, next=pending.next)
        self._writing.append(pending)
        self._underWay += pending.size
        self._worker.hand(partial(log.carryOut, pending), partial(self._done, pending))

    def _reminderCame(self) -> None:
        """Commit the state records that wait; later ones, after a commit with messages, have a time of their own."""
        reminded, self._reminded = self._reminded, None
        self.handOver(stateRecords=reminded is self._pending)

    def roll(self) -> None:
        """Make a commit, even without content, so that a due segment can begin."""
        self._pending.calls.append((lambda: None, -1, 0))
        self.handOver()

    def openSegment(self, opening: SegmentOpening, told: Callable[[str | None], None]) -> None:
        """Begin a new segment after a fault, and accept runs once it is on disk. ``told`` is then called with None, or
        with the reason why it cannot be opened. State records are collected from now on: the snapshot lacks them.
        """
        self.reopening = True
        self.next = self._pending.next = opening.snapshot.offset
        pending = self._pending
        pending.opening = opening
        # Reads end here from now on, although the message before this offset was never reported.
        pending.calls.append((partial(self._opened, told), opening.snapshot.offset, 0))
        self.appended = pending.last = self.appended + 1
        self.handOver()

    def _opened(self, told: Callable[[str | None], None], offset: int, reason: str | None) -> None:
        if reason is None:
            self.readOnly = None
            self._faulty = self.reopening = False
        told(reason)

    def closeWith(self, snapshot: Snapshot, told: Callable[[str | None], None] = lambda reason: None) -> None:
        """End the last commit with this checkpoint, and refuse later runs; ``told`` gets the reason of a failure."""
        pending = self._pending
        pending.closing = snapshot
        pending.calls.append((lambda offset, reason: told(reason), pending.next, 0))
        self.appended = pending.last = self.appended + 1
        self.handOver()
        self.stop()

    def stop(self) -> None:
        """Refuse later runs."""
        if self.readOnly is None:
            self.readOnly = "the broker stops"

    # -- results -----------------------------------------------------------------------------------

    def _done(self, commit: Commit) -> None:
        self._writing.popleft()
        self._underWay -= commit.size
        if commit.reason is not None:
            self.refuse(commit.reason, commit)
            return
        try:
            self.settled(commit)
        except Exception as error:
            # It is on disk, but reads would not find it.
            commit.error, commit.reason = error, reasonOf(error)
            self.refuse(commit.reason, commit)
            return
        self._bytes -= commit.size
        self._telling = commit
        if self._pending.calls:
            # The next commit is written while this one is reported.
            self.handOver()
        self._tell(commit, None)
        if self.overloaded:
            self._makeRoom()
        self.handOver()

    def refuse(self, reason: str, commit: Commit | None = None) -> None:
        """Refuse later runs, and report the reason for all pending ones: those of the failed commit, then the later
        ones. ``commit`` is None if the sync between two commits failed; the commit that is being written then fails as
        well. So do all commits that were handed over after a failed one.
        """
        if self.readOnly is None or self.reopening:
            self.readOnly = reason
        self.reopening = False
        if commit is None and self._writing:
            return
        behind = Commit(last=self.appended, next=self.next)
        if not self._writing:
            behind, self._pending = self._pending, behind
        commit = commit or Commit(last=self.decided, next=self.end, reason=reason)
        self._bytes -= commit.size + behind.size
        if not self._faulty:
            self._faulty = True
            self.failed(commit)
        self._tell(commit, reason)
        self._tell(behind, reason)
        self._makeRoom()

    def _tell(self, commit: Commit, reason: str | None) -> None:
        self._telling = commit
        for call, offset, count in commit.calls:
            try:
                if offset < 0:
                    call()
                    continue
                self.decided += 1
                if reason is not None:
                    call(0, reason)
                    continue
                if offset:
                    self.end = offset + count
                call(offset, None)
            except Exception as error:
                self.onError(error)
        self._telling = None

    def _makeRoom(self) -> None:
        if not self.overloaded or self._bytes > self.overloadedAt:
            return
        self.overloaded = False
        waiting, self._room = self._room, []
        for index, call in enumerate(waiting):
            if self.overloaded:
                self._room = waiting[index:] + self._room
                return
            try:
                call()
            except Exception as error:
                self.onError(error)


def appendedOf(topic: str, publisher: int, name: str, dialect: str, run: Run, now: int) -> AppendedRun:
    """Return a run in the form for encoding. Raises NotKept if a name cannot be encoded as UTF-8."""
    if not (topic.isascii() and name.isascii()):
        try:
            topic.encode(), name.encode()
        except UnicodeEncodeError:
            raise NotKept("its topic or its publisher's name is no UTF-8", range(len(run.payloads))) from None
    return AppendedRun(topic, publisher, name, PUBLISHER_CODES.get(dialect, OTHER_DIALECT), now, run)


def sizeOf(run: Run) -> int:
    """Return the approximate size of a run in the journal, in bytes."""
    headers, payloads, _ = run
    count = len(payloads)
    size = _RECORD_BYTES * count
    size += payloads.size if isinstance(payloads, Blobs) else sum(map(len, payloads))
    return size + (len(headers) * count if isinstance(headers, bytes) else sum(map(len, headers)))
