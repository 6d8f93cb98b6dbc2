"""The journal of a node: the owner's commits go to the stream, and from there to its copy (/explanation/cluster).

It has the content, the reader and the retention of a journal of a single node. The folder's lock and active segment
belong to the :class:`fleximq.cluster.stream_replica.StreamReplica`, which writes each commit that the stream has
stored. While another node owns the shard, records can only be read.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from fleximq.cluster.interfaces import Refused
from fleximq.cluster.stream_log import StreamLog, StreamWorker
from fleximq.cluster.stream_replica import StreamReplica
from fleximq.errors import NotKept
from fleximq.interfaces import IQueueState
from fleximq.journal.broker_journal import BrokerJournal, ClosedJournal
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.journal_folder import JournalFolder
from fleximq.journal.opened_journal import IWriting, OpenedJournal
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.journal.recovery.recovered_state import NoQueueState, RecoveredJournal, sentenceOf
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.journal.stored_records import StoredRecords
from fleximq.journal.writing.group_commit import sizeOf
from fleximq.values.records import Run

#: Seconds between two looks at whether all is stored and delivered.
_LOOK = 0.01
_REOPENING = "a node of a cluster hands its journal on after a fault"


class StandbyJournal(ClosedJournal):
    """The journal while another node owns the shard and no client reads here."""

    def __init__(self, copy: StreamReplica, whyRefused: Callable[[], str]) -> None:
        super().__init__()
        self._copy = copy
        self._whyRefused = whyRefused

    @property
    def refusal(self) -> str:
        return self._whyRefused()

    @property
    def end(self) -> int:
        return self._copy.next

    def reopen(self, found: Callable[[str | None], None]) -> None:
        found(_REOPENING)

    def health(self) -> Mapping[str, Any]:
        return {"state": "ok", "reason": "", "lost": [], "torn": [], **self._copy.size()}


class FollowedJournal(StoredRecords, StandbyJournal):
    """The journal while another node owns the shard and clients read its records from the copy."""

    def __init__(
        self, copy: StreamReplica, whyRefused: Callable[[], str], reader: ReaderThread, segments: SegmentTable
    ) -> None:
        StandbyJournal.__init__(self, copy, whyRefused)
        StoredRecords.__init__(self, segments, reader)
        self.id = copy.journal

    @property
    def end(self) -> int:
        return self._copy.next


@implementer(IWriting)
class StreamWriting:
    """The :class:`fleximq.journal.opened_journal.IWriting` of an owner. After a fault another node takes the shard."""

    isBounded = True
    isRetried = False

    def __init__(
        self, log: StreamLog, worker: StreamWorker, whyRefused: Callable[[], str], journal: OpenedJournal
    ) -> None:
        self._log = log
        self._worker = worker
        self._whyRefused = whyRefused
        self._journal = journal

    async def prepare(self) -> None:
        """Write the first commit to the stream, for :meth:`begin`; raises Refused if the stream has no room."""
        self._first = commit = self._journal.firstCommit()
        await self._log.carryOut(commit)
        if commit.reason is not None:
            raise Refused(commit.reason)

    def begin(self) -> None:
        """Accept runs after the first commit."""
        self._journal.accept(self._first, self._log, self._worker)

    def admit(self, runs: Iterable[Run], count: int) -> None:
        """Check that this node owns the shard, and that the stream has room."""
        journal = self._journal
        if not journal.isRunning:
            raise NotKept(self._whyRefused())
        if not self._log.hasRoom(journal.group.waiting + sum(map(sizeOf, runs))):
            journal.cleaner.makeRoom()
            raise NotKept("the stream of the cluster is full", range(count))

    def reopen(self, found: Callable[[str | None], None]) -> None:
        """Refuse it."""
        found(_REOPENING)

    def look(self) -> None:
        """The copy checks its files with each commit."""

    def beat(self, answered: Callable[[], None]) -> None:
        """There is no thread that could hang."""
        answered()

    def end(self) -> None:
        """Report no further result, at once; :meth:`OwnerJournal.hand` has written the last checkpoint."""
        self._journal.group.stop()
        self._worker.stop(0.0)

    def release(self) -> None:
        """The folder's lock stays with the copy."""


class OwnerJournal(BrokerJournal):
    """Order of use: perhaps :meth:`follow`; :meth:`take` the shard, and :meth:`hand` it on, or end the process.

    :param folder: the copy's folder, which the copy has opened.
    :param trimmed: called with the position of the first segment when earlier ones were removed, to trim the stream.
    :param refusal: returns why nothing is stored while another node owns the shard.
    """

    def __init__(
        self,
        copy: StreamReplica,
        folder: JournalFolder,
        *,
        trimmed: Callable[[int], None],
        refusal: Callable[[], str] = lambda: "this node does not own the journal",
    ) -> None:
        super().__init__(StandbyJournal(copy, refusal))
        self._copy = copy
        self._folder = folder
        self._trimmed = trimmed
        self._refusal = refusal
        #: The broker's side of the journal, needed to take the shard.
        self.queues: IQueueState = NoQueueState()
        self._reader: ReaderThread | None = None
        self._readSegments: SegmentTable | None = None
        self._owned: OpenedJournal | None = None

    def follow(self) -> None:
        """Read from the copy, which is loaded, while another node owns the shard."""
        segments = self._copy.segments
        assert segments is not None
        reader = self._readerOf(segments)
        self.become(FollowedJournal(self._copy, self._refusal, reader, segments))
        reader.begin()

    def _readerOf(self, segments: SegmentTable) -> ReaderThread:
        """Return the reader of these segments: the present one, with its requests, if it reads them already."""
        if self._reader is None or self._readSegments is not segments:
            self._reader, self._readSegments = self._folder.reader(segments, self._foundLost), segments
        return self._reader

    def _foundLost(self, lost: LostRange, why: str) -> None:
        context = self._folder.context
        if self._owned is not None:
            self._owned.recovered.reportLost(context, lost, why)
        else:
            context.log(sentenceOf(lost, f"damaged ({why})"))

    async def take(
        self,
        log: StreamLog,
        worker: StreamWorker,
        restore: Callable[[RecoveredJournal], None],
        clock: IReactorTime,
    ) -> RecoveredJournal:
        """Fence the stream, read the copy, restore the broker from it, and accept runs after a first checkpoint.

        Records that wait for their delivery are delivered before the broker is restored: the restored queues have them
        from the copy, and would get them twice.

        :raises Deposed: another node owns the shard.
        :raises Refused: the stream has no room.
        :raises ReplicaError: the copy cannot be read on to the end of the stream, or cannot be written.
        :raises JournalError: the copy cannot be read.
        """
        writing: StreamWriting

        def makeWriting(journal: OpenedJournal) -> StreamWriting:
            nonlocal writing
            writing = StreamWriting(log, worker, self._refusal, journal)
            return writing

        await log.fence()
        while self.queues.lags():
            await deferLater(clock, _LOOK)
        notices: list[str] = []
        found = self._content(notices)
        self._owned = owned = OpenedJournal(
            # Reads search by time, so times must not go back where the clock of this node is behind.
            replace(self._folder.context, now=log.now),
            self._folder.limitsFor(found.segments, notices),
            found,
            self._readerOf(found.segments),
            self.queues,
            makeWriting,
            journalId=self._copy.journal,
            notices=notices,
            onCleaned=lambda: self._trimmed(found.segments.all[0].base),
        )
        self.become(owned)
        restore(found)
        await writing.prepare()
        owned.begin()
        return found

    def _content(self, notices: list[str]) -> RecoveredJournal:
        """Return the content of the copy: the stream has nothing after it, so no offset is skipped."""
        if self._copy.segments is None:
            self._copy.load(notices.append)
        assert self._copy.segments is not None
        self._copy.isOwned = True
        context = self._folder.context
        found = RecoveredJournal(context.files, context.folder, self._copy.segments)
        found.lost = [sentenceOf(lost) for lost in found.segments.lost]
        found.readCheckpoint()
        return found

    def clean(self, done: Callable[[FreedSpace], None] = lambda freed: None) -> bool:
        """Begin to remove expired records on a thread; False if a pass is running, or this node is no owner."""
        return self._owned is not None and self._owned.clean(done)

    def probe(self) -> None:
        """Make a commit, if none is pending: it shows whether this node still owns the shard."""
        owned = self._owned
        if owned is not None and owned.isRunning and owned.group.idle and owned.group.readOnly is None:
            owned.group.roll()

    async def hand(self, clock: IReactorTime) -> None:
        """Write all runs and a last checkpoint, refuse further ones; waits for the store. Then :meth:`close` it."""
        owned = self._owned
        if owned is None:
            return
        await _settled(owned, clock)
        if owned.group.readOnly is None:
            owned.group.closeWith(owned.snapshot())
            await _settled(owned, clock)
        owned.group.stop()

    def close(self) -> None:
        """Close the files, at once; the folder's lock stays with the copy."""
        if self._owned is not None:
            self._owned.close()
        elif self._reader is not None:
            self._reader.stop()


async def _settled(journal: OpenedJournal, clock: IReactorTime) -> None:
    """Wait until the store has all runs and state records so far, and the queues all records."""
    while not journal.settle():
        await deferLater(clock, _LOOK)
