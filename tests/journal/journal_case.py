"""A test with a journal on a real folder, whose writer works step by step."""

from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from fleximq.config.journal_options import Fsync
from fleximq.interfaces import IQueueState
from fleximq.journal.disk_writing import State
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.journal_context import JournalContext
from fleximq.journal.journal_folder import JournalFolder
from fleximq.journal.opened_journal import JournalLimits, OpenedJournal
from fleximq.journal.recovery.recovered_state import RecoveredJournal
from fleximq.values.records import StoredBatch
from fleximq.values.state_records import StateRecord
from tests.journal.faulty_files import FaultyFiles
from tests.journal.steps import ALWAYS, Steps, published


@implementer(IQueueState)
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

    def lags(self) -> bool:
        """See IQueueState."""
        return False

    def begun(self) -> None:
        """See Keeper."""


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
        self.queueStates = FakeKeeper()
        self.begin()

    def context(self, files: Files | None = None) -> JournalContext:
        """Return the surroundings of a journal."""
        return JournalContext(
            files=files or self.files,
            folder=self.folder,
            callFromThread=lambda call, *arguments: self.calls.put((call, arguments)),
            now=lambda: self.now,
            onEvent=lambda event, number: self.events.append((event, number)),
            log=self.log.append,
            onError=lambda error: self.log.append(f"what was told of a commit failed: {error!r}"),
        )

    def make(
        self, files: Files | None = None, fsync: Fsync = ALWAYS, makeWorker: Any = None, **limits: Any
    ) -> JournalFolder:
        """Return the folder of a journal that is not open yet."""
        self.steps = Steps()
        makeWorker = makeWorker or (lambda *ignored: self.steps)
        return JournalFolder(self.context(files), fsync, JournalLimits(**limits), makeWorker)

    def open(self, folder: JournalFolder | None = None, **options: Any) -> OpenedJournal:
        """Open a folder, by default the case's."""
        return (folder or self.make(**options)).open(self.queueStates, lambda: self.faults.append(1))

    def begin(self, **options: Any) -> RecoveredJournal:
        """Open the journal in the folder and begin."""
        self.faults: list[int] = []
        self.journal = journal = self.open(**options)
        journal.begin()
        self.addCleanup(self.crash, journal)
        return journal.recovered

    def crash(self, journal: OpenedJournal | None = None) -> None:
        """Let go of everything as the end of a process does."""
        journal = journal or self.journal
        writing: Any = journal.writing
        if not journal._isClosed:
            journal._isClosed = True
            writing._state = State.CLOSED
            journal.reader.stop()
            writing._log.close()
            journal._durableEnd.close()
            writing._lock.release()

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
