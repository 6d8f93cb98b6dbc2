"""A test with a journal on a real folder, whose writer works step by step."""

from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.disk_journal import DiskJournal, State
from fleximq.journal.files.file_system import Files
from fleximq.journal.recovery.recovered_state import RecoveredJournal
from fleximq.values.records import StoredBatch
from fleximq.values.state_records import StateRecord
from tests.journal.faulty_files import FaultyFiles
from tests.journal.steps import Steps, published


class FakeKeeper:
    """Its snapshot is ``state``, or it raises ``error``."""

    def __init__(self) -> None:
        self.state: Any = {"queues": []}
        self.error: Exception | None = None

    def snapshot(self) -> Any:
        """See Keeper."""
        if self.error is not None:
            raise self.error
        return self.state

    def needed(self) -> Mapping[str, int]:
        """See Keeper."""
        return {}

    def reading(self) -> Mapping[str, int]:
        """See Keeper."""
        return {}


class JournalCase(SynchronousTestCase):
    """``journal`` is open and begun; what becomes of runs is in ``told``, sentences for the operator in ``log``."""

    def setUp(self) -> None:
        self.folder = self.mktemp()
        self.files = FaultyFiles()
        self.now = 1_000_000
        self.told: list[Any] = []
        self.log: list[str] = []
        self.events: list[tuple[str, int]] = []
        self.calls: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        self.keeper = FakeKeeper()
        self.begin()

    def make(self, files: Files | None = None, **options: Any) -> DiskJournal:
        """Return a journal that is not open yet."""
        self.steps = Steps()
        return DiskJournal(
            self.folder,
            callFromThread=lambda call, *arguments: self.calls.put((call, arguments)),
            now=lambda: self.now,
            files=files or self.files,
            onEvent=lambda event, number: self.events.append((event, number)),
            log=self.log.append,
            **{"makeWorker": lambda *ignored: self.steps, **options},
        )

    def begin(self, **options: Any) -> RecoveredJournal:
        """Open the journal in the folder and begin."""
        self.journal = journal = self.make(**options)
        found = journal.open()
        journal.keeper = self.keeper
        journal.begin()
        self.addCleanup(self.crash, journal)
        return found

    def crash(self, journal: DiskJournal | None = None) -> None:
        """Let go of everything as the end of a process does."""
        journal = journal or self.journal
        if journal._state is not State.CLOSED:
            journal._state = State.CLOSED
            journal._reader.stop()
            journal._log.close()
            journal._durableEnd.close()
            journal._lock.release()

    def append(self, body: bytes, topic: str = "a") -> int:
        """Append a run of one-byte messages."""
        return self.journal.append(
            *published(body, topic), lambda offset, reason: self.told.append((body, offset, reason))
        )

    def kept(self, body: bytes, topic: str = "a") -> None:
        """Append a run and let it be written."""
        self.append(body, topic)
        self.steps.all()

    def pump(self, until: Callable[[], bool]) -> None:
        """Do what other threads ask for, until something is so."""
        while not until():
            call, arguments = self.calls.get(timeout=300)
            call(*arguments)

    def records(self) -> list[tuple[int, str, bytes]]:
        """Return what can be read back: offset, topic and payload of each record."""
        found: list[StoredBatch] = []
        ends: list[int] = []

        def portion(batches: Any, next: int) -> None:
            found.extend(batches)
            ends.append(next)

        offset = 0
        while offset < self.journal.end:
            self.journal.read(offset, lambda topic: True, 1 << 20, portion)
            self.pump(lambda: bool(ends))
            offset = ends.pop()
        return [
            (offset, batch.topics[topic], payload)
            for batch in found
            for offset, topic, payload in zip(batch.offsets, batch.topicOf, batch.payloads, strict=True)
        ]


def replayed(found: RecoveredJournal) -> tuple[list[tuple[int, bytes]], list[StateRecord]]:
    """Return what is replayed of a journal: offsets and payloads, and notes."""
    records: list[tuple[int, bytes]] = []
    notes: list[StateRecord] = []
    found.replay(lambda batch: records.extend(zip(batch.offsets, batch.payloads, strict=True)), notes.append)
    return records, notes
