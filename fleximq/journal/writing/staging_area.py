"""Staged records of a pipeline's sink, and the transactions that publish them once per query and batch."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fleximq.errors import NotKept
from fleximq.journal.files.segment_summary import StagedBlock
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import CommittedBatch, Transaction
from fleximq.journal.writing.commit import Commit, StagedPart, TransactionPart
from fleximq.journal.writing.group_commit import GroupCommit, appendedOf, sizeOf
from fleximq.values.printable import shortened
from fleximq.values.records import OnCommitted, OnStaged, PublishedRun, splitQuery

#: Staged records expire after this time, in microseconds.
STAGED_LIFE = 24 * 3600 * 1_000_000
#: The interval of the search for expired records, in microseconds: one batch may have a hundred thousand staged frames.
_LOOK = 60 * 1_000_000
#: Of so many queries of a principal the last batch is remembered, at least.
MAX_QUERIES = 1000
#: Approximate bytes of a transaction for each of its positions.
_POSITION_BYTES = 9


class StagingArea:
    """Stages, commits and aborts records.

    :param committed: the last batch, its first offset and its count by query, from recovery.
    :param segments: has the staged frames that were neither committed nor aborted.
    :param now: microseconds since 1970.
    """

    def __init__(
        self,
        group: GroupCommit,
        segments: SegmentTable,
        committed: Mapping[str, tuple[int, int, int]],
        now: Callable[[], int],
    ) -> None:
        self._group = group
        self._segments = segments
        self._now = now
        self._committed = {query: CommittedBatch(query, *each) for query, each in committed.items()}
        self._queries = Counter(map(_principalOf, self._committed))
        self._onTheirWay: dict[str, CommittedBatch] = {}
        self._look = 0

    @property
    def committed(self) -> tuple[CommittedBatch, ...]:
        """The committed batches for a checkpoint."""
        return tuple(self._committed.values())

    def stage(self, query: str, batch: int, part: str, runs: Sequence[PublishedRun], found: OnStaged) -> None:
        """See :class:`fleximq.interfaces.IJournal`."""
        self.expire()
        now = self._now()
        try:
            appended = [appendedOf(*each, now) for each in runs]
            staged = StagedPart(query, batch, part, appended, self._group.next)

            def told(offset: int, reason: str | None) -> None:
                if reason is None:
                    found(",".join(map(str, staged.positions)), None)
                else:
                    found(None, reason)

            self._group.add(staged, self._group.next, 0, sum(sizeOf(each.run) for each in appended), told)
        except NotKept as error:
            found(None, error.reason)

    def commit(self, query: str, batch: int, tokens: Sequence[str], committed: OnCommitted) -> None:
        """See :class:`fleximq.interfaces.IJournal`. Raises NotKept if the journal accepts nothing at present."""
        if self._group.readOnly is not None:
            raise NotKept(self._group.readOnly)
        last = self._last(query)
        if last is not None and batch <= last.batch:
            self._repeat(last, batch, committed)
            return
        frames = self._framesOf(query, batch, tokens)
        if isinstance(frames, str):
            committed(0, frames)
            return
        count = sum(frame.count for frame in frames)
        transaction = Transaction(query, batch, tuple(frame.position for frame in frames))

        offset = self._group.next
        this = self._onTheirWay[query] = CommittedBatch(query, batch, offset, count)

        def told(offset: int, reason: str | None) -> None:
            if self._onTheirWay.get(query) is this:
                del self._onTheirWay[query]
            if reason is None:
                self._remember(this)
            committed(offset, reason)

        part = TransactionPart(transaction, offset, count, self._now())
        self._group.add(part, offset, count, _POSITION_BYTES * len(frames), told)

    def _last(self, query: str) -> CommittedBatch | None:
        """Return the last batch of a query, which earlier versions stored without its principal."""
        return self._onTheirWay.get(query) or self._committed.get(query) or self._committed.get(splitQuery(query)[1])

    def _remember(self, batch: CommittedBatch) -> None:
        """Remember the last batch of a query; a principal with too many queries loses the one silent for longest."""
        isNew = self._committed.pop(batch.query, None) is None
        self._committed[batch.query] = batch
        if not isNew:
            return
        principal = _principalOf(batch.query)
        self._queries[principal] += 1
        if self._queries[principal] > MAX_QUERIES + MAX_QUERIES // 4:
            own = [query for query in self._committed if _principalOf(query) == principal]
            for query in own[:-MAX_QUERIES]:
                del self._committed[query]
            self._queries[principal] = MAX_QUERIES

    def _repeat(self, last: CommittedBatch, batch: int, committed: OnCommitted) -> None:
        if batch < last.batch:
            committed(0, f"batch {batch} comes before batch {last.batch}, which was committed")
            return

        def told() -> None:
            safe = self._committed.get(last.query) == last
            committed(*((last.base, None) if safe else (0, self._group.readOnly or "it was not kept")))

        self._group.whenCommitted(told)

    def _framesOf(self, query: str, batch: int, tokens: Sequence[str]) -> list[StagedBlock] | str:
        """Return the staged frames of these tokens, or the reason why they are invalid."""
        known = {str(frame.position): frame for frame in self._segments.staged()}
        frames = []
        for token in tokens:
            for position in filter(None, token.split(",")):
                frame = known.pop(position, None)
                if frame is None or (frame.query, frame.batch) != (query, batch):
                    return f"nothing is staged under {shortened(token)!r} for this batch, or it was named twice"
                frames.append(frame)
        return frames

    def abort(self, query: str, batch: int) -> None:
        """See :class:`fleximq.interfaces.IJournal`; a committed batch is not changed."""
        last = self._last(query)
        if self._group.readOnly is not None or (last is not None and last.batch == batch):
            return
        positions = [each.position for each in self._segments.staged() if (each.query, each.batch) == (query, batch)]
        if positions:
            part = TransactionPart(Transaction(query, batch, tuple(positions), True), self._group.next, 0, self._now())
            self._group.add(part, self._group.next, 0, _POSITION_BYTES * len(positions), lambda offset, reason: None)

    def topics(self, query: str, batch: int) -> set[str]:
        """Return the topics of a batch's staged records."""
        mine = (each for each in self._segments.staged() if (each.query, each.batch) == (query, batch))
        return {name for each in mine for name in each.topicCounts}

    def expire(self) -> None:
        """Discard records that were staged more than 24 hours ago; they are searched once a minute."""
        now = self._now()
        if self._look <= now < self._look + _LOOK:
            return
        self._look = now
        before = now - STAGED_LIFE
        self._segments.forget([each.position for each in self._segments.staged() if each.time < before])

    @staticmethod
    def assignPositions(commit: Commit) -> None:
        """Give the staged records of a commit their positions."""
        for part in commit.parts:
            if isinstance(part, StagedPart):
                made = set(map(id, part.made))
                part.positions = [position for position, frame in commit.written if id(frame) in made]


def _principalOf(query: str) -> str | None:
    return splitQuery(query)[0]
