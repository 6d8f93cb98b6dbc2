"""Group commit, as the reactor's thread sees it: what comes in while one commit is written becomes the next.

Hot: :meth:`GroupCommit.append` is called for every run. It costs about 3 us beside what the source needs to take the
payloads out of the run; with all that the writer does, runs of 1,000 payloads of 100 bytes cost 0.2 us of computing a
record, of which 0.12 us are on the reactor's thread (CPython 3.11, one core). In the tries that led here, encoding on
the reactor's thread instead of the writer's was clearly slower, and handing over at the end of a turn instead of at
once made no difference that showed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from fleximq.errors import NotKept
from fleximq.journal.format.column_builder import AppendedRun
from fleximq.journal.writing.commit import Commit, CommitPart, MergedStateRecords, RecordsPart, SegmentOpening, Snapshot
from fleximq.journal.writing.writer_thread import CommitWriter, Worker, reasonOf
from fleximq.values.records import dialectCode, runOf
from fleximq.values.state_records import StateRecord

#: For so many seconds notes wait for messages to be written with, unless somebody waits for them.
STATE_RECORDS_WAIT = 0.005
#: What a record takes in a frame beside its header and payload, about.
_RECORD_BYTES = 28


class GroupCommit:
    """Collects, hands over, and says in order what became of each run.

    ``end`` is the offset behind the last message that somebody was told of, ``next`` the one that the next gets.
    ``readOnly`` is the reason why nothing is taken, None while all is well.

    :param now: microseconds since 1970.
    :param crowdedAt: bytes that may wait before ``overloaded`` is True.
    :param settled: is given each commit that is safe, before anybody is told of it.
    :param failed: is given the first one that is not.
    :param rollDue: tells whether the next commit should begin a new segment.
    :param open: returns the beginning of that segment, or None if it cannot be made now.
    :param onError: is given what somebody who was told raised.
    """

    def __init__(
        self,
        *,
        now: Callable[[], int],
        next: int,
        crowdedAt: int,
        settled: Callable[[Commit], None],
        failed: Callable[[Commit], None],
        rollDue: Callable[[], bool],
        open: Callable[[], SegmentOpening | None],
        onError: Callable[[Exception], None],
    ) -> None:
        self.next = self.end = next
        self.appended = self.decided = 0
        self.overloaded = False
        self.readOnly: str | None = "the journal is not open"
        self._now = now
        self._crowdedAt = crowdedAt
        self._settled = settled
        self._failed = failed
        self._rollDue = rollDue
        self._open = open
        self._onError = onError
        self._log: CommitWriter | None = None
        self._worker: Worker | None = None
        self._bytes = 0
        self._room: list[Callable[[], None]] = []
        self._reminded = self._opening = self._faulty = False
        self._pending = Commit(last=0, next=next)
        self._writing: Commit | None = None
        self._telling: Commit | None = None

    def begin(self, log: CommitWriter, worker: Worker) -> None:
        """Take what is appended from now on, and have it written by this log where this worker works."""
        self._log, self._worker = log, worker
        self.readOnly = None

    # -- what comes in -----------------------------------------------------------------------------

    def append(self, envelope: Any, body: Any, count: int, committed: Callable[[int, str | None], None]) -> int:
        """See :class:`fleximq.interfaces.IJournal`."""
        if self.readOnly is not None:
            raise NotKept(self.readOnly, range(count))
        each = appendedOf(envelope, body, count, self._now())
        pending = self._pending
        parts = pending.parts
        if parts and type(parts[-1]) is RecordsPart:
            parts[-1].appended.append(each)
        else:
            parts.append(RecordsPart(self.next, [each]))
        offset = self.next
        self.next = offset + count
        return self._took(committed, offset, count, sizeOf(each))

    def add(
        self, part: CommitPart, offset: int, count: int, size: int, committed: Callable[[int, str | None], None]
    ) -> int:
        """Keep something that is no run, with so many messages from this offset on.

        :raises NotKept: nothing can be kept now.
        """
        if self.readOnly is not None:
            raise NotKept(self.readOnly, range(count))
        self._pending.parts.append(part)
        self.next = max(self.next, offset + count)
        return self._took(committed, offset, count, size)

    def _took(self, committed: Callable[[int, str | None], None], offset: int, count: int, size: int) -> int:
        pending = self._pending
        self.appended = pending.last = self.appended + 1
        pending.calls.append((committed, offset, count))
        pending.next = self.next
        pending.size += size
        self._bytes += size
        if self._bytes > self._crowdedAt:
            self.overloaded = True
        if self._writing is None:
            self.handOver()
        return self.appended

    def appendState(self, event: StateRecord) -> None:
        """See :class:`fleximq.interfaces.IJournal`; while nothing can be kept a later checkpoint says it all."""
        if self.readOnly is None:
            pending = self._pending
            if pending.noted is None:
                pending.noted = MergedStateRecords()
            pending.noted.add(event)
            if self._writing is None:
                self.handOver()

    def whenCommitted(self, call: Callable[[], None], number: int | None = None) -> None:
        """See :class:`fleximq.interfaces.IJournal`."""
        commit = self._lastWith() if number is None else self._commitOf(number)
        if commit is None:
            call()
            return
        commit.calls.append((call, -1, 0))
        if self._writing is None:
            self.handOver()

    def _lastWith(self) -> Commit | None:
        pending = self._pending
        return pending if pending.calls or pending.noted else self._writing or self._telling

    def _commitOf(self, number: int) -> Commit | None:
        if number <= self.decided:
            return None
        for commit in (self._telling, self._writing):
            if commit is not None and number <= commit.last:
                return commit
        return self._pending if number <= self._pending.last else None

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """See :class:`fleximq.interfaces.IJournal`."""
        if self.overloaded:
            self._room.append(call)
        else:
            call()

    @property
    def waiting(self) -> int:
        """The bytes that are not committed yet, about."""
        return self._bytes

    @property
    def idle(self) -> bool:
        """Whether nothing waits, is written or being told."""
        pending = self._pending
        return not (pending.calls or pending.noted or self._writing or self._telling)

    # -- handing over ------------------------------------------------------------------------------

    def handOver(self, notes: bool = False) -> None:
        """Let what waits be written, if nothing else is.

        :param notes: even if there are only notes, for which nobody waits.
        """
        pending = self._pending
        if self._writing is not None or self.readOnly is not None or self._worker is None or self._opening:
            return
        if not pending.calls and not notes:
            if pending.noted and not self._reminded:
                self._reminded = True
                self._worker.remind(STATE_RECORDS_WAIT, self._reminderCame)
            return
        if not (pending.calls or pending.noted):
            return
        if self._rollDue():
            if self._telling is not None:
                # What a roll's snapshot says is what all were told; in the middle of that it has to wait.
                return
            if pending.opening is None:
                # Whoever is asked for a snapshot may note something meanwhile, which comes behind it.
                self._opening = True
                try:
                    pending.opening = self._open()
                finally:
                    self._opening = False
        self._hand(pending)

    def _reminderCame(self) -> None:
        self._reminded = False
        self.handOver(notes=True)

    def _hand(self, commit: Commit) -> None:
        assert self._log is not None and self._worker is not None
        log = self._log
        commit.time = self._now()
        self._pending = Commit(last=commit.last, next=commit.next)
        self._writing = commit
        self._worker.hand(partial(log.carryOut, commit), partial(self._done, commit))

    def roll(self) -> None:
        """Let there be a next commit, even if there is nothing to write, so that a segment that is due can begin."""
        self._pending.calls.append((lambda: None, -1, 0))
        self.handOver()

    def openSegment(self, opening: SegmentOpening, told: Callable[[str | None], None]) -> None:
        """Take things again after a fault: the next commit begins a new segment. Gives None, or the new reason."""
        self.readOnly = None
        self._faulty = False
        self.next = self._pending.next = opening.snapshot.offset
        pending = self._pending
        pending.opening = opening
        # What is read back now ends here, though nobody was told of a message with the offset before.
        pending.calls.append((lambda offset, reason: told(reason), opening.snapshot.offset, 0))
        self.appended = pending.last = self.appended + 1
        self.handOver()

    def closeWith(self, snapshot: Snapshot) -> None:
        """Let the last commit end with this checkpoint, and take nothing behind it."""
        self._pending.closing = snapshot
        self.roll()
        self.stop()

    def stop(self) -> None:
        """Take nothing any more."""
        if self.readOnly is None:
            self.readOnly = "the broker stops"

    # -- what came of it ---------------------------------------------------------------------------

    def _done(self, commit: Commit) -> None:
        self._writing = None
        if commit.reason is not None:
            self.refuse(commit.reason, commit)
            return
        try:
            self._settled(commit)
        except Exception as error:
            # It is on disk, but nobody could find it there.
            commit.error, commit.reason = error, reasonOf(error)
            self.refuse(commit.reason, commit)
            return
        self._bytes -= commit.size
        self._telling = commit
        if self._pending.calls:
            self.handOver()  # the disk is busy again while we tell
        self._tell(commit, None)
        if self.overloaded:
            self._makeRoom()
        self.handOver()

    def refuse(self, reason: str, commit: Commit | None = None) -> None:
        """Take nothing any more, and say so to all who wait: those of a failed commit, then those behind it.

        Without a commit it was something in between that failed; then the commit that is being written fails next.
        """
        if self.readOnly is None:
            self.readOnly = reason
        if commit is None and self._writing is not None:
            return
        behind, self._pending = self._pending, Commit(last=self.appended, next=self.next)
        commit = commit or Commit(last=self.decided, next=self.end, reason=reason)
        self._bytes -= commit.size + behind.size
        if not self._faulty:
            self._faulty = True
            self._failed(commit)
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
                self._onError(error)
        self._telling = None

    def _makeRoom(self) -> None:
        if not self.overloaded or self._bytes > self._crowdedAt:
            return
        self.overloaded = False
        waiting, self._room = self._room, []
        for place, call in enumerate(waiting):
            if self.overloaded:
                self._room = waiting[place:] + self._room
                return
            try:
                call()
            except Exception as error:
                self._onError(error)


def appendedOf(envelope: Any, body: Any, count: int, now: int) -> AppendedRun:
    """Return a run as it is encoded.

    :raises NotKept: a name in it cannot be written as UTF-8.
    :raises ValueError: its source finds another number of messages than there are.
    """
    source = envelope.source
    run = source.run(body) if hasattr(source, "run") else runOf(source.messages(body))
    if len(run.payloads) != count:
        raise ValueError(f"the source of a run of {count} found {len(run.payloads)} messages")
    topic, publisher = envelope.topic.name, envelope.publisher
    if not (topic.isascii() and publisher.name.isascii()):
        _checkNames(topic, publisher.name, count)
    return AppendedRun(topic, publisher.id, publisher.name, dialectCode(publisher.dialect), now, run)


def _checkNames(topic: str, name: str, count: int) -> None:
    try:
        topic.encode(), name.encode()
    except UnicodeEncodeError:
        raise NotKept("its topic or its publisher's name is no UTF-8", range(count)) from None


def sizeOf(appended: AppendedRun) -> int:
    """Return about how many bytes a run takes in the journal."""
    headers, payloads, _ = appended.run
    count = len(payloads)
    size = sum(map(len, payloads)) + _RECORD_BYTES * count
    return size + (len(headers) * count if isinstance(headers, bytes) else sum(map(len, headers)))
