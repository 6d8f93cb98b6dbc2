"""The volatile journal: every publication is committed at once and stored only by queues in memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zope.interface import implementer

from fleximq.errors import NotKept
from fleximq.interfaces import IJournal, IJournalAppend
from fleximq.journal.writing.commit import Commits
from fleximq.values.message import Message
from fleximq.values.records import BacklogSize, OnCommitted, OnStaged, PublishedRun, Run, SegmentState

_NONE = "there is no journal"


@implementer(IJournal)
class MemoryJournal:
    """Stores nothing, and commits at once."""

    onDisk = False
    id = ""
    appended = decided = time = 0
    overloaded = False

    def __init__(self) -> None:
        self.commits = Commits()

    @property
    def end(self) -> int:
        return 1

    @property
    def removals(self) -> int:
        return 0

    def append(self, topic: str, publisher: int, name: str, dialect: str, run: Run, committed: OnCommitted) -> int:
        committed(0, None)
        return 0

    def tellCurrent(self, use: Callable[[IJournalAppend], None]) -> None:
        use(self)

    def whenCommitted(self, call: Callable[[], None], number: int | None = None) -> None:
        call()

    def whenRelieved(self, call: Callable[[], None]) -> None:
        call()

    def appendState(self, event: Any) -> None:
        """Do nothing: no state survives the process."""

    def fetch(self, offsets: Sequence[int], most: int, found: Callable[[Sequence[Message]], None]) -> None:
        found([])

    def fetchRecords(self, offsets: Sequence[int], most: int, found: Callable[[Sequence[Any], int], None]) -> None:
        found([], len(offsets))

    def read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[Any], int], None]
    ) -> None:
        found([], self.end)

    def bounds(self) -> Mapping[str, Any]:
        return {}

    def segmentStates(self) -> Sequence[SegmentState]:
        return ()

    def topics(self, limit: int, start: str = "", before: str = "") -> list[str]:
        return []

    def removedSince(self, number: int, limit: int) -> tuple[int, Sequence[tuple[str, int]]]:
        return number, ()

    def backlogFrom(self, offset: int) -> BacklogSize:
        return BacklogSize(0, 0)

    def offsetAt(self, time: int, found: Callable[[int], None]) -> None:
        found(self.end)

    def advance(
        self, start: int, end: int, records: int | None, size: int | None, found: Callable[[int, int, int], None]
    ) -> None:
        found(max(start, end), 0, 0)

    def readBytes(self, position: int, most: int, found: Callable[[int, bytes | memoryview, int], None]) -> None:
        found(0, b"", 0)

    def stage(self, query: str, batch: int, part: str, runs: Sequence[PublishedRun], found: OnStaged) -> None:
        found(None, _NONE)

    def commitStaged(self, query: str, batch: int, tokens: Sequence[str], committed: OnCommitted) -> None:
        raise NotKept(_NONE)

    def abortStaged(self, query: str, batch: int) -> None:
        """Do nothing: there are no staged records."""

    def stagedTopics(self, query: str, batch: int) -> set[str]:
        return set()

    def reopen(self, found: Callable[[str | None], None]) -> None:
        found(None)

    def health(self) -> Mapping[str, Any]:
        return {"state": "ok", "reason": ""}
