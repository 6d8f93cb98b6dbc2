"""A journal that commits, or refuses, only when a test says so, as a disk does, and reads back what it committed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from zope.interface import implementer

from fleximq.errors import NotKept
from fleximq.interfaces import IJournal, IJournalAppend
from fleximq.journal.writing.commit import Commits
from fleximq.values.message import Message
from fleximq.values.records import BacklogSize, OnCommitted, OnStaged, PublishedRun, Run, SegmentState, TopicBounds
from tests.journal_records import Record, batchOf, recordsOf


@dataclass
class _Waiting:
    """Something that is to be said behind the run of this number."""

    number: int
    told: Callable[[str | None], None]


@implementer(IJournal)
class SlowJournal:
    """Gives offsets from 1; ``notes`` holds what was noted, ``kept`` the runs.

    ``records`` are those that are committed. ``now`` (microseconds) is the time of what is appended. Reading back
    answers at once, or, while ``patient`` is set, one answer for each :meth:`answer`. ``portion`` is how many records
    a batch has at most. ``readOnly`` is the reason why nothing is kept, "" while all is well.
    """

    onDisk = True
    id = "5e"

    def __init__(self) -> None:
        self.appended = self.decided = self.time = 0
        self.end = self._next = 1
        self.now = 1_000_000
        self.commits = Commits()
        self.notes: list[Any] = []
        self.kept: list[PublishedRun] = []
        self.records: list[Record] = []
        self.removed: list[tuple[str, int]] = []
        self.patient = False
        self.portion = 1000
        self.readOnly = ""
        self.reads = 0
        self._crowded = False
        self._room: list[Callable[[], None]] = []
        self._waiting: list[_Waiting] = []
        self._answers: list[Callable[[], None]] = []
        self._staged: dict[str, tuple[str, int, Sequence[PublishedRun]]] = {}
        self._tokens = 0
        self._done: dict[tuple[str, int], int] = {}

    # -- keeping -----------------------------------------------------------------------------------

    def append(self, topic: str, publisher: int, name: str, dialect: str, run: Run, committed: OnCommitted) -> int:
        """Keep a run until :meth:`commit`."""
        count = len(run.payloads)
        if self.readOnly:
            raise NotKept(self.readOnly, range(count))
        offset, self.time = self._next, self.now
        self._next += count
        self.kept.append(PublishedRun(topic, publisher, name, dialect, run))
        records = partial(recordsOf, self.kept[-1], offset, self.now)
        return self._later(offset + count, records, lambda reason: committed(0 if reason else offset, reason))

    def _later(self, end: int, records: Callable[[], list[Record]], told: Callable[[str | None], None]) -> int:
        self.appended += 1

        def decided(reason: str | None) -> None:
            if reason is None:
                self.records += records()
                self.end = end
            told(reason)

        self._waiting.append(_Waiting(self.appended, decided))
        return self.appended

    def commit(self, reason: str | None = None, runs: int | None = None) -> None:
        """Say of everything appended so far, or of so many runs, that it is safe, or why it is not kept."""
        last = self.appended if runs is None else self.decided + runs
        while self._waiting and self._waiting[0].number <= last:
            next = self._waiting.pop(0)
            self.decided = max(self.decided, next.number)
            next.told(reason)

    def tellCurrent(self, use: Callable[[IJournalAppend], None]) -> None:
        """No other journal stores its runs."""
        use(self)

    def whenCommitted(self, call: Callable[[], None], number: int | None = None) -> None:
        """Call behind the run of this number, or behind all."""
        number = self.appended if number is None else number
        if number <= self.decided:
            call()
            return
        places = [place for place, waiting in enumerate(self._waiting) if waiting.number <= number]
        self._waiting.insert(places[-1] + 1, _Waiting(number, lambda reason: call()))

    @property
    def overloaded(self) -> bool:
        """Whether nobody should publish."""
        return self._crowded

    @overloaded.setter
    def overloaded(self, overloaded: bool) -> None:
        self._crowded = overloaded
        if not overloaded:
            calls, self._room = self._room, []
            for call in calls:
                call()

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call when ``overloaded`` is set to False."""
        if self._crowded:
            self._room.append(call)
        else:
            call()

    def appendState(self, event: Any) -> None:
        """Remember what was noted."""
        self.notes.append(event)

    def forget(self, before: int, wanted: Callable[[str], bool] = lambda topic: True) -> None:
        """Do what retention does: lose the records of these topics below an offset."""
        gone = [each for each in self.records if each.offset < before and wanted(each.topic)]
        self.removed += {each.topic: each.offset for each in gone}.items()
        self.records = [record for record in self.records if record.offset >= before or not wanted(record.topic)]

    def lose(self, *offsets: int) -> None:
        """Do what damage does."""
        self.records = [record for record in self.records if record.offset not in offsets]

    # -- reading back ------------------------------------------------------------------------------

    def answer(self, number: int = 1) -> None:
        """Give the answers of so many readings that wait."""
        for _ in range(number):
            self._answers.pop(0)()

    def postpone(self) -> Callable[[], None]:
        """Leave the last reading that waits out of :meth:`answer`, and return what gives its answer."""
        return self._answers.pop()

    @property
    def asked(self) -> int:
        """How many readings wait for :meth:`answer`."""
        return len(self._answers)

    def _answer(self, give: Callable[[], None]) -> None:
        self.reads += 1
        if self.patient:
            self._answers.append(give)
        else:
            give()

    def fetch(self, offsets: Sequence[int], most: int, found: Callable[[list[Message]], None]) -> None:
        """Give the messages at these offsets, until they have so many bytes."""

        def give() -> None:
            wanted = set(offsets)
            messages: list[Message] = []
            size = 0
            for record in self.records:
                if record.offset in wanted:
                    messages.append(record.message)
                    size += len(record.payload)
                    if size >= most:
                        break
            found(messages)

        self._answer(give)

    def fetchRecords(self, offsets: Sequence[int], most: int, found: Callable[[Sequence[Any], int], None]) -> None:
        """Give the records at these offsets, until their payloads have so many bytes."""

        def give() -> None:
            there = {record.offset: record for record in self.records}
            taken: list[Record] = []
            size = number = 0
            for offset in offsets:
                if taken and size >= most:
                    break
                number += 1
                if offset in there:
                    taken.append(there[offset])
                    size += len(taken[-1].payload)
            found(self._batches(taken), number)

        self._answer(give)

    def read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[Any], int], None]
    ) -> None:
        """Give what is wanted from an offset on, in batches of neighbouring runs."""

        def give() -> None:
            taken: list[Record] = []
            size = 0
            for record in self.records:
                if record.offset < offset or not wanted(record.topic):
                    continue
                if size >= most:
                    found(self._batches(taken), record.offset)
                    return
                taken.append(record)
                size += len(record.payload)
            found(self._batches(taken), self.end)

        self._answer(give)

    def _batches(self, records: list[Record]) -> list[Any]:
        groups = groupby(enumerate(records), lambda pair: pair[0] // self.portion)
        return [batchOf([record for _, record in group]) for _, group in groups]

    def bounds(self) -> Mapping[str, Any]:
        """Return the bounds of each topic that has a record."""
        found: dict[str, TopicBounds] = {}
        for record in self.records:
            size = len(record.header) + len(record.payload)
            known = found.get(record.topic)
            first, time = (record.offset, record.time) if known is None else (known.first, known.firstTime)
            count, total = (0, 0) if known is None else (known.count, known.bytes)
            found[record.topic] = TopicBounds(first, record.offset, time, record.time, count + 1, total + size)
        return found

    def segmentStates(self) -> Sequence[SegmentState]:
        """There are no files."""
        return ()

    def topics(self, limit: int, start: str = "", before: str = "") -> list[str]:
        """Return the topics that have a record, in order."""
        names = sorted(name for name in self.bounds() if start <= name and not (before and name >= before))
        return names[:limit]

    @property
    def removals(self) -> int:
        """Count what was forgotten."""
        return len(self.removed)

    def removedSince(self, number: int, limit: int) -> tuple[int, list[tuple[str, int]]]:
        """Return what was forgotten."""
        found = self.removed[number : number + limit]
        return number + len(found), found

    def backlogFrom(self, offset: int) -> BacklogSize:
        """Count the records that are committed."""
        waiting = [record for record in self.records if record.offset >= offset]
        return BacklogSize(len(waiting), sum(len(record.payload) for record in waiting))

    def offsetAt(self, time: int, found: Callable[[int], None]) -> None:
        """Give the first offset of this time or later."""

        def give() -> None:
            found(next((record.offset for record in self.records if record.time >= time), self.end))

        self._answer(give)

    def advance(
        self, start: int, end: int, records: int | None, size: int | None, found: Callable[[int, int, int], None]
    ) -> None:
        """Give how far so many records go; a byte of payload is a byte."""

        def give() -> None:
            taken: list[Record] = []
            total = 0
            for record in self.records:
                if start <= record.offset < end:
                    isFull = size is not None and total + len(record.payload) > size
                    if taken and (isFull or len(taken) == records):
                        break
                    taken.append(record)
                    total += len(record.payload)
            else:
                found(max(start, end), len(taken), total)
                return
            found(taken[-1].offset + 1, len(taken), total)

        self._answer(give)

    def readBytes(self, position: int, most: int, found: Callable[[int, bytes | memoryview, int], None]) -> None:
        """Give payloads as if they were frames: one byte position each payload byte."""

        def give() -> None:
            log = b"".join(record.payload for record in self.records)
            found(position, log[position : position + most], len(log))

        self._answer(give)

    # -- staging -----------------------------------------------------------------------------------

    def stage(self, query: str, batch: int, part: str, runs: Sequence[PublishedRun], found: OnStaged) -> None:
        """Keep messages that nobody sees until :meth:`commitStaged`."""
        if self.readOnly:
            found(None, self.readOnly)
            return
        self._tokens += 1
        token = f"{self._tokens}"

        def told(reason: str | None) -> None:
            if reason is None:
                self._staged[token] = (query, batch, runs)
            found(None if reason else token, reason)

        self._later(self.end, list, told)

    def commitStaged(self, query: str, batch: int, tokens: Sequence[str], committed: OnCommitted) -> None:
        """Publish what was staged, at the next :meth:`commit`; a repeated call gives the same offset."""
        if self.readOnly:
            raise NotKept(self.readOnly)
        done = self._done.get((query, batch))
        if done is not None:
            self.whenCommitted(lambda: committed(done, None))
            return
        tokens = [each for token in tokens for each in token.split(",") if each]
        unknown = [token for token in tokens if self._staged.get(token, ("", 0))[:2] != (query, batch)]
        if unknown:
            committed(0, f"nothing is staged under {unknown[0]!r}")
            return
        offset = self._next
        records: list[Record] = []
        for token in tokens:
            for run in self._staged[token][2]:
                records += recordsOf(run, offset + len(records), self.now)
        self._next += len(records)
        self._done[query, batch] = offset
        self._later(self._next, lambda: records, lambda reason: committed(0 if reason else offset, reason))

    def abortStaged(self, query: str, batch: int) -> None:
        """Forget what was staged for a batch."""
        self._staged = {token: staged for token, staged in self._staged.items() if staged[:2] != (query, batch)}

    def stagedTopics(self, query: str, batch: int) -> set[str]:
        """Return the topics of what was staged for a batch."""
        staged = [each for each in self._staged.values() if each[:2] == (query, batch)]
        return {run.topic for each in staged for run in each[2]}

    # -- health ------------------------------------------------------------------------------------

    def reopen(self, found: Callable[[str | None], None]) -> None:
        """Keep things again."""
        self.readOnly = ""
        self._answer(lambda: found(None))

    def health(self) -> Mapping[str, Any]:
        """Say whether it keeps things."""
        return {"state": "read-only" if self.readOnly else "ok", "reason": self.readOnly, "lost": [], "torn": 0}
