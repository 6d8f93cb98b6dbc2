"""The journal of a node: the owner's commits go to the stream, and from there to its copy (/explanation/cluster).

It has the content, the reader and the retention of a journal of a single node. The folder's lock and active segment
belong to the :class:`fleximq.cluster.copy.Copy`, which writes each commit that the stream has stored. While another
node owns the shard, records can only be read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from fleximq.cluster.copy import Copy
from fleximq.cluster.interfaces import Refused
from fleximq.cluster.stream_log import StreamLog, StreamWorker
from fleximq.errors import NotKept
from fleximq.journal.disk_journal import TRANSITIONS, DiskJournal, Event
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.recovery.recovered_state import RecoveredJournal, sentenceOf
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.journal.writing.group_commit import sizeOf
from fleximq.values.records import OnCommitted, OnStaged, PublishedRun, Run

#: Seconds between two looks at whether the last commit is stored.
_LOOK = 0.01


class OwnerJournal(DiskJournal):
    """Order of use: perhaps :meth:`follow`; :meth:`take` the shard, and :meth:`hand` it on, or end the process.

    :param trimmed: called with the position of the first segment when earlier ones were removed, to trim the stream.
    :param refusal: returns why nothing is stored while another node owns the shard.
    """

    def __init__(
        self,
        copy: Copy,
        directory: str,
        *,
        trimmed: Callable[[int], None],
        refusal: Callable[[], str] = lambda: "this node does not own the journal",
        **options: Any,
    ) -> None:
        super().__init__(directory, **options)
        self._copy = copy
        self._trimmed = trimmed
        self._refusal = refusal

    def follow(self) -> None:
        """Read from the copy, which is loaded, while another node owns the shard."""
        assert self._copy.segments is not None
        self.id = self._copy.journal
        self._readFrom(self._copy.segments)
        self._reader.begin()

    def _readFrom(self, segments: SegmentTable) -> None:
        if getattr(self, "_segments", None) is not segments:
            super()._readFrom(segments)

    def _foundLost(self, lost: LostRange, why: str) -> None:
        if self._isTaken:
            super()._foundLost(lost, why)
        else:
            self._say(sentenceOf(lost, f"damaged ({why})"))

    async def take(
        self, log: StreamLog, worker: StreamWorker, restore: Callable[[RecoveredJournal], None]
    ) -> RecoveredJournal:
        """Fence the stream, read the copy, restore the broker from it, and accept runs after a first checkpoint.

        :raises Deposed: another node owns the shard.
        :raises Refused: the stream has no room.
        :raises CopyError: the copy cannot be read on to the end of the stream, or cannot be written.
        :raises JournalError: the copy cannot be read.
        """
        await log.fence()
        self._stream = log
        self.id = self._copy.journal
        # Reads search by time, so times must not go back where the clock of this node is behind.
        self._now = log.now
        found = self._recover()
        restore(found)
        commit = self._firstCommit()
        await log.carryOut(commit)
        if commit.reason is not None:
            raise Refused(commit.reason)
        self._begin(log, worker, commit)
        return found

    def append(self, topic: str, publisher: int, name: str, dialect: str, run: Run, committed: OnCommitted) -> int:
        if not self._runs:
            raise NotKept(self._refusal())
        self._checkRoom([run], len(run.payloads))
        return super().append(topic, publisher, name, dialect, run, committed)

    def stage(self, query: str, batch: int, part: str, runs: Sequence[PublishedRun], found: OnStaged) -> None:
        try:
            self._checkRoom([each.run for each in runs], 1)
        except NotKept as error:
            found(None, error.reason)
            return
        super().stage(query, batch, part, runs, found)

    def _checkRoom(self, runs: Sequence[Run], count: int) -> None:
        """Check that the stream has room for runs with so many messages."""
        if self._runs and not self._stream.hasRoom(self._group.waiting + sum(map(sizeOf, runs))):
            self._cleaner.makeRoom()
            raise NotKept("the stream of the cluster is full", range(count))

    @property
    def end(self) -> int:
        return super().end if self._isTaken else self._copy.next

    def health(self) -> Mapping[str, Any]:
        if self._isTaken:
            return super().health()
        return {"state": "ok", "reason": "", "lost": [], "torn": [], **self._copy.size()}

    @property
    def _isTaken(self) -> bool:
        return hasattr(self, "_found")

    def probe(self) -> None:
        """Make a commit, if none is pending: it shows whether this node still owns the shard."""
        if self._runs and self._group.idle and self._group.readOnly is None:
            self._group.roll()

    async def hand(self, clock: IReactorTime) -> None:
        """Write all runs and a last checkpoint, refuse further ones; waits for the store. Then :meth:`close` it."""
        await self._stored(clock)
        if self._group.readOnly is None:
            self._group.closeWith(self._snapshot())
            await self._stored(clock)
        self._group.stop()

    async def _stored(self, clock: IReactorTime) -> None:
        self._group.handOver(stateRecords=True)
        while not self._group.idle:
            await deferLater(clock, _LOOK)
            self._group.handOver(stateRecords=True)

    def _content(self) -> RecoveredJournal:
        """Return the content of the copy: the stream has nothing after it, so no offset is skipped."""
        if self._copy.segments is None:
            self._copy.load(self._unsaid.append)
        self._copy.isOwned = True
        found = RecoveredJournal(self._files, self._folder, self._copy.segments)
        found.lost = [sentenceOf(lost) for lost in found.segments.lost]
        found.readCheckpoint()
        return found

    def _freed(self, number: int) -> None:
        super()._freed(number)
        self._trimmed(self._segments.all[0].base)

    def clean(self, done: Callable[[FreedSpace], None] = lambda freed: None) -> bool:

        def cleaned(freed: FreedSpace) -> None:
            self._trimmed(self._segments.all[0].base)
            done(freed)

        return super().clean(cleaned)

    def look(self) -> None:
        """The copy checks its files with each commit."""

    def reopen(self, found: Callable[[str | None], None]) -> None:
        """Refuse it: after a fault another node takes the shard."""
        found("a node of a cluster hands its journal on after a fault")

    def close(self) -> None:
        """Close the files, at once; the folder's lock stays with the copy."""
        began = hasattr(self, "_worker")
        self._state = TRANSITIONS[self._state, Event.CLOSE]
        if began:
            self._group.stop()
            self._worker.stop(0.0)
            self._cleaner.stop()
        if hasattr(self, "_reader"):
            self._reader.stop()
        if hasattr(self, "_durableEnd"):
            self._durableEnd.close()
