"""The journal that a broker is made with, before the journal's folder is open.

The service of the journal opens the folder later, and a node of a cluster changes from a copy of another node's journal
to its own. The broker sees one object, :class:`BrokerJournal`, which passes its calls to the present journal.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zope.interface import implementer

from fleximq.errors import NotKept
from fleximq.interfaces import IJournal, IJournalAppend
from fleximq.journal.memory_journal import MemoryJournal
from fleximq.journal.writing.commit import Commits
from fleximq.values.message import Message
from fleximq.values.records import (
    BacklogSize,
    OnCommitted,
    OnStaged,
    PublishedRun,
    Run,
    SegmentState,
    StoredBatch,
    TopicBounds,
)
from fleximq.values.state_records import StateRecord


class ClosedJournal(MemoryJournal):
    """A journal on disk that is not open: metrics read it as empty, and it refuses all records."""

    onDisk = True

    @property
    def refusal(self) -> str:
        """The reason why no records are stored, for clients and operators."""
        return "the journal is not open"

    def append(self, topic: str, publisher: int, name: str, dialect: str, run: Run, committed: OnCommitted) -> int:
        raise NotKept(self.refusal, range(len(run.payloads)))

    def stage(self, query: str, batch: int, part: str, runs: Sequence[PublishedRun], found: OnStaged) -> None:
        found(None, self.refusal)

    def commitStaged(self, query: str, batch: int, tokens: Sequence[str], committed: OnCommitted) -> None:
        raise NotKept(self.refusal)

    def reopen(self, found: Callable[[str | None], None]) -> None:
        found(self.refusal)


@implementer(IJournal)
class BrokerJournal:
    """Passes every call to the journal given to :meth:`become`, before that to a closed one. Runs are appended to that
    journal directly, see :meth:`tellCurrent`.

    :param closed: receives the calls before :meth:`become`; by default a :class:`ClosedJournal`.
    """

    onDisk = True

    def __init__(self, closed: IJournal | None = None) -> None:
        self._current: IJournal = closed or ClosedJournal()
        self._users: list[Callable[[IJournalAppend], None]] = []

    def become(self, journal: IJournal) -> None:
        """Pass calls to this journal from now on."""
        self._current = journal
        for use in self._users:
            use(journal)

    @property
    def id(self) -> str:
        """See :class:`fleximq.interfaces.IJournal`; the same holds for all methods below."""
        return self._current.id  # type: ignore[no-any-return]

    @property
    def commits(self) -> Commits:
        return self._current.commits  # type: ignore[no-any-return]

    @property
    def appended(self) -> int:
        return self._current.appended  # type: ignore[no-any-return]

    @property
    def decided(self) -> int:
        return self._current.decided  # type: ignore[no-any-return]

    @property
    def time(self) -> int:
        return self._current.time  # type: ignore[no-any-return]

    @property
    def overloaded(self) -> bool:
        return self._current.overloaded  # type: ignore[no-any-return]

    @property
    def end(self) -> int:
        return self._current.end  # type: ignore[no-any-return]

    @property
    def removals(self) -> int:
        return self._current.removals  # type: ignore[no-any-return]

    def append(self, topic: str, publisher: int, name: str, dialect: str, run: Run, committed: OnCommitted) -> int:
        return self._current.append(topic, publisher, name, dialect, run, committed)

    def tellCurrent(self, use: Callable[[IJournalAppend], None]) -> None:
        self._users.append(use)
        use(self._current)

    def whenCommitted(self, call: Callable[[], None], number: int | None = None) -> None:
        self._current.whenCommitted(call, number)

    def whenRelieved(self, call: Callable[[], None]) -> None:
        self._current.whenRelieved(call)

    def appendState(self, event: StateRecord) -> None:
        self._current.appendState(event)

    def fetch(self, offsets: Sequence[int], most: int, found: Callable[[Sequence[Message]], None]) -> None:
        self._current.fetch(offsets, most, found)

    def fetchRecords(
        self, offsets: Sequence[int], most: int, found: Callable[[Sequence[StoredBatch], int], None]
    ) -> None:
        self._current.fetchRecords(offsets, most, found)

    def read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[StoredBatch], int], None]
    ) -> None:
        self._current.read(offset, wanted, most, found)

    def bounds(self) -> Mapping[str, TopicBounds]:
        return self._current.bounds()

    def segmentStates(self) -> Sequence[SegmentState]:
        return self._current.segmentStates()

    def topics(self, limit: int, start: str = "", before: str = "") -> list[str]:
        return self._current.topics(limit, start, before)

    def removedSince(self, number: int, limit: int) -> tuple[int, Sequence[tuple[str, int]]]:
        return self._current.removedSince(number, limit)

    def backlogFrom(self, offset: int) -> BacklogSize:
        return self._current.backlogFrom(offset)

    def offsetAt(self, time: int, found: Callable[[int], None]) -> None:
        self._current.offsetAt(time, found)

    def advance(
        self, start: int, end: int, records: int | None, size: int | None, found: Callable[[int, int, int], None]
    ) -> None:
        self._current.advance(start, end, records, size, found)

    def readBytes(self, position: int, most: int, found: Callable[[int, bytes | memoryview, int], None]) -> None:
        self._current.readBytes(position, most, found)

    def stage(self, query: str, batch: int, part: str, runs: Sequence[PublishedRun], found: OnStaged) -> None:
        self._current.stage(query, batch, part, runs, found)

    def commitStaged(self, query: str, batch: int, tokens: Sequence[str], committed: OnCommitted) -> None:
        self._current.commitStaged(query, batch, tokens, committed)

    def abortStaged(self, query: str, batch: int) -> None:
        self._current.abortStaged(query, batch)

    def stagedTopics(self, query: str, batch: int) -> set[str]:
        return self._current.stagedTopics(query, batch)

    def reopen(self, found: Callable[[str | None], None]) -> None:
        self._current.reopen(found)

    def health(self) -> Mapping[str, Any]:
        return self._current.health()
