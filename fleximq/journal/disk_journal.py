"""The journal on disk, as the reactor's thread sees it: the one door to this room.

It puts the others together: :mod:`fleximq.journal.writing.group_commit` collects what comes,
:mod:`fleximq.journal.writing.writer_thread` has it
on disk, :mod:`fleximq.journal.files.segment_table` knows where everything is, and
:mod:`fleximq.journal.reading.reader_thread` reads it back.
"""

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zope.interface import implementer

from fleximq.config.journal_options import Fsync
from fleximq.errors import JournalError, NotKept
from fleximq.interfaces import IJournal
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import DurableEnd, Lock, checkFolder, identify
from fleximq.journal.files.segment_table import BacklogTotals
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.journal.recovery.recovered_state import IQueueStateOwner, NoQueueState, RecoveredJournal, sentenceOf
from fleximq.journal.recovery.recovery import SKIP, recover, verifyTail
from fleximq.journal.retention.capacity import Capacity
from fleximq.journal.retention.cleaner_thread import CleanerThread
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.journal.writing.commit import Commit, SegmentOpening, Snapshot
from fleximq.journal.writing.group_commit import GroupCommit
from fleximq.journal.writing.staged_records import StagingArea
from fleximq.journal.writing.writer_thread import CommitWriter, Worker, WriterThread, reasonOf
from fleximq.limits import MEBIBYTE
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.histogram import Commits
from fleximq.values.message import Message
from fleximq.values.records import BacklogSize, TopicBounds
from fleximq.values.state_records import ClientIdsReserved, StateRecord

#: The longest that a stop waits for the disk, in seconds.
STOP_TIMEOUT = 30.0
#: A segment with so many frames is followed by another though it has not its size yet: a start looks at each frame
#: behind the last checkpoint, 25 us each, and where messages came one by one there are many.
SEGMENT_FRAMES = 40_000

_ALWAYS = Fsync("always")


@implementer(IJournal)
class DiskJournal:
    """Keeps what is durable in the files of one folder.

    Made first, then :meth:`open`, then the broker is restored and becomes ``keeper``, then :meth:`begin`.

    :param callFromThread: runs a function on the reactor's thread; safe to call from any.
    :param now: microseconds since 1970.
    :param maxBytes: the most that its segments may have, about; 0: as much as the disk has.
    :param rules: what may be taken out again; None: nothing is.
    :param makeWorker: where the writing is done; a thread unless a test wants it at once.
    :param onEvent: is told what is worth counting, and how many.
    :param log: is given sentences for the operator.
    :param onError: is given what somebody raised who was told of a commit.
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
        crowdedAt: int = 32 * MEBIBYTE,
        rules: RetentionPolicy | None = None,
        makeWorker: Callable[[CommitWriter, Callable[..., Any], Callable[[str], None]], Worker] = WriterThread,
        onEvent: Callable[[str, int], None] = lambda event, number: None,
        log: Callable[[str], None] = lambda sentence: None,
        onError: Callable[[Exception], None] | None = None,
    ) -> None:
        self.id = ""
        self.keeper: IQueueStateOwner = NoQueueState()
        self.commits = Commits()
        self._folder = directory
        self._files = files or Files()
        self._fsync = fsync
        self._segmentBytes = self._rollAt = segmentBytes
        self._maxBytes = maxBytes
        self._callFromThread = callFromThread
        self._now = now
        self._crowdedAt = crowdedAt
        self._rules = rules
        self._makeWorker = makeWorker
        self._onEvent = onEvent
        self._say = log
        self._onError = onError or (lambda error: log(f"what was told of a commit failed: {error!r}"))
        self._group = self._newGroup(1)
        self._clientIds = 0
        self._length = self._frames = 0
        self._unsaid: list[str] = []
        self._began = self._closed = self._reopening = False

    def _newGroup(self, next: int) -> GroupCommit:
        return GroupCommit(
            now=self._now,
            next=next,
            crowdedAt=self._crowdedAt,
            settled=self._settled,
            failed=self._failed,
            rollDue=self._rollDue,
            open=self._openingHere,
            onError=self._onError,
        )

    # -- opening and closing -----------------------------------------------------------------------

    def open(self) -> RecoveredJournal:
        """Lock and check the folder, cut off a torn tail, and say what is there. Blocks.

        :raises JournalError: it cannot be used.
        """
        checkFolder(self._files, self._folder)
        self._lock = Lock(self._files, self._folder)
        try:
            self.id = identify(self._files, self._folder, _randomHex)
            found = recover(self._files, self._folder, self.id, self._unsaid.append)
            self._durableEnd = DurableEnd(self._files, self._folder)
        except OSError as error:
            self._lock.release()
            raise JournalError(f"the journal in {self._folder} cannot be opened: {reasonOf(error)}") from error
        except BaseException:
            self._lock.release()
            raise
        self._found = found
        self._segments = found.segments
        self._weights = BacklogTotals(found.segments)
        self._clientIds = found.nextClientId
        self._group = self._newGroup(found.nextOffset)
        self._staging = StagingArea(self._group, self._segments, found.transactions, self._now)
        self._reader = ReaderThread(
            self._files, self._folder, self._segments, self._callFromThread, lost=self._foundLost, log=self._say
        )
        self._room = Capacity(
            self._maxBytes,
            self._segments,
            self._newCleaner(),
            self._rollNow,
            self._now,
            lambda freed: self._onEvent(CountedEvent(EventFamily.JOURNAL, "bytes freed"), freed),
        )
        self._count(CountedEvent(EventFamily.JOURNAL, "torn tail"), len(found.torn))
        self._count(CountedEvent(EventFamily.JOURNAL, "lost range"), len(found.lost))
        return found

    def _newCleaner(self) -> CleanerThread | None:
        if self._rules is None:
            return None
        return CleanerThread(
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
        )

    def _count(self, event: str, number: int) -> None:
        if number:
            self._onEvent(event, number)

    def _goesUnread(self, sentence: str, records: int) -> None:
        self._count(CountedEvent(EventFamily.JOURNAL, "expired unread"), records)
        self._say(sentence)

    def _foundLost(self, lost: LostRange, why: str) -> None:
        sentence = sentenceOf(lost, f"damaged ({why})")
        self._found.lost.append(sentence)
        self._count(CountedEvent(EventFamily.JOURNAL, "lost range"), 1)
        self._say(sentence)

    def begin(self) -> None:
        """Begin a segment and start to write; ``keeper`` has been set, and is restored. Blocks.

        :raises JournalError: nothing can be written.
        """
        found = self._found
        log = CommitWriter(self._files, self._folder, self._fsync, found.end, _randomId)
        opening = SegmentOpening(self.id, self._snapshot(), found.lastOffset)
        commit = Commit(last=0, next=self._group.next, time=self._now(), opening=opening)
        log.carryOut(commit)
        if commit.reason is not None:
            log.close()
            raise JournalError(f"the journal in {self._folder} cannot be written: {commit.reason}") from commit.error
        self._log = log
        self._settled(commit)
        self._worker = self._makeWorker(log, self._callFromThread, self._group.refuse)
        self._worker.start()
        self._reader.begin()
        self._group.begin(log, self._worker)
        self._began = True
        # Where the journal cannot be written either, that is what there is to say.
        while self._unsaid:
            self._say(self._unsaid.pop(0))

    def close(self) -> None:
        """Write all that waits, a last checkpoint, and give the lock back. Blocks, for half a minute at most."""
        if self._closed:
            return
        self._closed = True
        ended = not self._began or self._finish(time.monotonic() + STOP_TIMEOUT)
        if self._began:
            self._room.close()
            self._reader.stop()
        if hasattr(self, "_durableEnd"):
            self._durableEnd.close()
            if ended:
                self._lock.release()

    def _finish(self, until: float) -> bool:
        """End the writing; False if something may still be written, so that nobody else must."""
        group = self._group
        whole = self._flush(until)
        if whole and group.readOnly is None:
            try:
                group.closeWith(self._snapshot())
            except Exception as error:
                self._onError(error)
            whole = self._flush(until)
        group.stop()
        ended = self._worker.stop(max(0.0, until - time.monotonic()))
        if ended:
            self._log.close()
        if not (ended and whole):
            self._say("the disk was too slow for an orderly end, so the next start will look through the journal")
        return ended

    def _flush(self, until: float) -> bool:
        """Wait until nothing waits any more; False if that takes too long."""
        while True:
            self._group.handOver(notes=True)
            if self._group.idle:
                return True
            left = until - time.monotonic()
            if left <= 0 or not self._worker.drain(left):
                return False

    # -- segments ----------------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        return Snapshot(self.keeper.snapshot(), self._staging.committed, self._clientIds, self._group.next, self._now())

    def _rollDue(self) -> bool:
        return self._length >= self._rollAt or self._frames >= SEGMENT_FRAMES

    def _openingHere(self) -> SegmentOpening | None:
        """Return the beginning of a new segment, or None if the keeper fails; then the present one goes on."""
        self._staging.expire()
        try:
            snapshot = self._snapshot()
        except Exception as error:
            self._rollAt = self._length + self._segmentBytes
            self._frames = 0
            self._onError(error)
            return None
        # What waits already has its offsets; the checkpoint stands before it.
        snapshot.offset = self._segments.nextOffset
        return SegmentOpening(self.id, snapshot, snapshot.offset)

    def _settled(self, commit: Commit) -> None:
        segments = self._segments
        before, first = segments.end, segments.nextOffset
        if commit.begun is not None:
            self._beginSegment(*commit.begun)
        for position, frame in commit.written:
            segments.committed(position, frame)
        self._staging.settle(commit)
        self._length = commit.length
        self._frames += len(commit.written)
        if commit.opening is not None:
            first = max(first, commit.opening.snapshot.offset)
        self.commits.add(commit.seconds, max(0, segments.nextOffset - first), max(0, commit.end - before))
        self._room.settled(commit, before)
        self._durableEnd.publish(commit.end, commit.next, commit.time)
        if commit.begun is not None:
            self.clean()  # only now is it known that the new segment has a checkpoint, so that others may go

    def _beginSegment(self, base: int, id: int) -> None:
        sealed = self._segments.all[-1].base if self._began and len(self._segments) else None
        self._segments.begin(base, id)
        self._rollAt = self._segmentBytes
        self._frames = 0
        if sealed is not None:
            self._reader.seal(sealed)

    def _rollNow(self) -> None:
        if self._group.readOnly is None:
            self._rollAt = 0
            self._group.roll()

    def clean(self, done: Callable[[FreedSpace], None] = lambda freed: None) -> bool:
        """Take out what the rules let go, elsewhere and bit by bit; False if that is going on, or there are none."""
        return self._began and not self._closed and self._room.clean(done)

    def look(self) -> None:
        """See that the journal's files are still there; if they are not, nothing is kept any more.

        Each commit looks for itself, so this is for times when there are none.
        """
        if self._began and not self._closed and self._group.readOnly is None:
            reasons: list[str | None] = []
            self._worker.hand(lambda: reasons.append(self._log.look()), lambda: self._looked(reasons[0]))

    def _looked(self, reason: str | None) -> None:
        if reason is not None:
            self._group.refuse(reason)

    def beat(self, answered: Callable[[], None]) -> None:
        """Call when the thread that writes has done all it was handed before; never while it hangs, or is not there."""
        if self._began and not self._closed:
            self._worker.hand(_nothing, answered)

    def _failed(self, commit: Commit) -> None:
        self._onEvent(CountedEvent(EventFamily.JOURNAL, "read-only"), 1)
        self._say(f"nothing is kept any more, since writing failed: {commit.reason}")
        if commit.error is not None and not isinstance(commit.error, OSError):
            self._onError(commit.error)

    # -- keeping -----------------------------------------------------------------------------------

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

    def append(self, envelope: Any, body: Any, count: int, committed: Callable[[int, str | None], None]) -> int:
        if self._maxBytes:
            self._room.check(count, self._group.waiting)
        return self._group.append(envelope, body, count, committed)

    def whenCommitted(self, call: Callable[[], None], number: int | None = None) -> None:
        self._group.whenCommitted(call, number)

    def whenRelieved(self, call: Callable[[], None]) -> None:
        self._group.whenRelieved(call)

    def appendState(self, event: StateRecord) -> None:
        if isinstance(event, ClientIdsReserved):
            self._clientIds = max(self._clientIds, event.until)
        self._group.appendState(event)

    def noteClientIds(self, until: int, safe: Callable[[], None]) -> None:
        """Note that client ids below ``until`` may be given out, and call when that is on disk."""
        self.appendState(ClientIdsReserved(until))
        self._group.whenCommitted(safe)

    def stage(
        self, query: str, batch: int, part: str, run: Any, found: Callable[[str | None, str | None], None]
    ) -> None:
        try:
            self._room.check(1, self._group.waiting)
        except NotKept as error:
            found(None, error.reason)
            return
        self._staging.stage(query, batch, part, run, found)

    def commitStaged(
        self, query: str, batch: int, tokens: Sequence[str], committed: Callable[[int, str | None], None]
    ) -> None:
        self._staging.commit(query, batch, tokens, committed)

    def abortStaged(self, query: str, batch: int) -> None:
        self._staging.abort(query, batch)

    def stagedTopics(self, query: str, batch: int) -> set[str]:
        return self._staging.topics(query, batch)

    # -- reading back ------------------------------------------------------------------------------

    def fetch(self, offsets: Sequence[int], most: int, found: Callable[[list[Message]], None]) -> None:
        self._reader.fetch(offsets, most, found)

    def read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[Any], int], None]
    ) -> None:
        self._reader.read(offset, wanted, most, found)

    def bounds(self) -> Mapping[str, TopicBounds]:
        return self._segments.bounds()

    def backlogFrom(self, offset: int) -> BacklogSize:
        return self._weights.backlogFrom(offset)

    def offsetAt(self, time: int, found: Callable[[int], None]) -> None:
        self._reader.offsetAt(time, found)

    def advance(
        self, start: int, end: int, records: int | None, size: int | None, found: Callable[[int, int, int], None]
    ) -> None:
        self._reader.advance(start, end, records, size, found)

    def readBytes(self, position: int, most: int, found: Callable[[int, bytes | memoryview, int], None]) -> None:
        self._reader.readBytes(position, most, found)

    # -- faults ------------------------------------------------------------------------------------

    def reopen(self, found: Callable[[str | None], None]) -> None:
        if self._closed or not self._began or self._reopening:
            found("the broker stops" if self._closed else "the journal is just being opened")
            return
        if self._group.readOnly is None:
            found(None)
            return
        self._reopening = True
        outcome: list[str | None] = []
        self._worker.hand(
            lambda: outcome.append(self._log.reopen(self._verify)), lambda: self._verified(outcome[0], found)
        )

    def _verify(self, end: int) -> int:
        return verifyTail(self._files, self._folder, self._segments, end)

    def _verified(self, reason: str | None, found: Callable[[str | None], None]) -> None:
        self._reopening = False
        if reason is None and self._closed:
            reason = "the broker stops"
        if reason is not None:
            found(reason)
            return
        skipped = self._segments.nextOffset
        self._group.next = offsetAfterGap(max(self._group.next, skipped))
        try:
            opening = SegmentOpening(self.id, self._snapshot(), skipped)
        except Exception as error:
            self._onError(error)
            found(reasonOf(error))
            return
        self._group.openSegment(opening, found)

    def health(self) -> Mapping[str, Any]:
        reason = self._group.readOnly
        found = self._found
        return {
            "state": "ok" if reason is None else "read-only",
            "reason": reason or "",
            "lost": list(found.lost),
            "torn": list(found.torn),
            "bytes": self._segments.bytes,
            "segments": len(self._segments),
        }


def offsetAfterGap(offset: int) -> int:
    """Return the offset at which numbering goes on if nobody knows whether this one was given."""
    return (offset // SKIP + 1) * SKIP


def _nothing() -> None:
    """Show that one is there."""


def _randomHex(digits: int) -> str:
    return secrets.token_hex(digits // 2)


def _randomId() -> int:
    return int.from_bytes(os.urandom(8), "little")
