"""The journal without its threads: what they do is done when a test says so."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from zope.interface import implementer

from fleximq.config.journal_options import Fsync
from fleximq.interfaces import IQueueState
from fleximq.journal.broker_journal import BrokerJournal
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.journal_context import JournalContext
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.journal_folder import JournalFolder
from fleximq.journal.opened_journal import JournalLimits, OpenedJournal
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.journal.recovery.recovered_state import RecoveredJournal
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.writing.writer_thread import CommitWriter, IWorker
from fleximq.values.records import QOS1, PublishedRun, Run, StoredBatch

ALWAYS = Fsync("always")


def atOnce(function: Callable[..., Any], *arguments: Any) -> None:
    """Call without going through a reactor."""
    function(*arguments)


@implementer(IWorker)
class Steps:
    """Carries out commits one by one, by :meth:`step`."""

    def __init__(self, log: CommitWriter, callFromThread: Callable[..., Any], failed: Callable[[str], None]) -> None:
        self.log = log
        self.failed = failed
        self.handed: deque[tuple[Callable[[], object], Callable[[], None]]] = deque()

    def start(self) -> None:
        """Nothing is needed."""

    def hand(self, work: Callable[[], object], done: Callable[[], None]) -> None:
        """Keep it for :meth:`step`."""
        self.handed.append((work, done))

    def remind(self, seconds: float, call: Callable[[], None]) -> None:
        """Time does not pass."""

    def step(self) -> bool:
        """Do one piece of work, and say what came of it; False if there was none."""
        if not self.handed:
            return False
        work, done = self.handed.popleft()
        work()
        done()
        return True

    def drain(self, seconds: float = 0.0) -> bool:
        """Do everything."""
        worked = False
        while self.step():
            worked = True
        return worked

    def syncDue(self) -> None:
        """Do what the thread does between commits."""
        reason = self.log.syncDue()
        if reason is not None:
            self.failed(reason)

    def stop(self, seconds: float) -> bool:
        """End at once."""
        return True


class ReaderAtOnce(ReaderThread):
    """Answers before the question returns; while it is ``patient``, one question for each :meth:`answer`."""

    patient = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._questions: deque[Callable[[], None]] = deque()

    def answer(self) -> None:
        """Answer the first question that waits, if there is one."""
        if self._questions:
            self._questions.popleft()()

    def begin(self) -> None:
        """No thread."""

    def stop(self) -> None:
        """Close the files."""
        self._walk.opened.close()

    def _ask(
        self, job: Callable[[], Sequence[Any]], found: Callable[..., None], otherwise: Sequence[Any] | None = None
    ) -> None:
        def answer() -> None:
            self._walk.opened.end = self._segments.end
            found(*job())

        self._questions.append(answer)
        if not self.patient:
            self.answer()


def contextAtOnce(
    files: Files, folder: str, now: Callable[[], int], say: Callable[[str], None] = lambda sentence: None
) -> JournalContext:
    """Return surroundings without threads."""
    return JournalContext(
        files=files, folder=folder, callFromThread=atOnce, now=now, onEvent=lambda event, number: None, log=say,
        onError=_raise,
    )  # fmt: skip


class JournalAtOnce(BrokerJournal):
    """A journal whose commits wait for ``worker.step()``, and whose reads are answered at once, from :meth:`open` on.

    ``lost`` is the damage found by reads, ``said`` are sentences for the operator.
    """

    worker: Steps
    opened: OpenedJournal

    def __init__(
        self,
        files: Files,
        folder: str = "/disk/journal",
        *,
        now: Callable[[], int] = lambda: 1_700_000_000_000_000,
        fsync: Fsync = ALWAYS,
        segmentBytes: int = 1 << 20,
        rules: RetentionPolicy | None = None,
    ) -> None:
        super().__init__()

        def makeWorker(*arguments: Any) -> Steps:
            self.worker = Steps(*arguments)
            return self.worker

        def makeReader(files: Files, folder: str, segments: SegmentTable, *others: Any) -> ReaderAtOnce:
            return ReaderAtOnce(files, folder, segments, atOnce, lambda lost, why: self.lost.append(lost), others[-1])

        self.said: list[str] = []
        self.lost: list[LostRange] = []
        self.files = files
        context = contextAtOnce(files, folder, now, self.said.append)
        limits = JournalLimits(segmentBytes=segmentBytes, rules=rules)
        self.folder = JournalFolder(context, fsync, limits, makeWorker, makeReader)

    def open(self, queues: IQueueState | None = None) -> RecoveredJournal:
        """Open it, and return its content."""
        self.opened = self.folder.open(queues)
        self.become(self.opened)
        return self.opened.recovered

    def begin(self) -> None:
        """Accept runs."""
        self.opened.begin()

    def close(self) -> str | None:
        """Close it."""
        return self.opened.close()

    @property
    def segments(self) -> SegmentTable:
        """Those of the opened journal."""
        return self.opened.segments

    def everything(self) -> list[StoredBatch]:
        """Return all records, read back."""
        all: list[StoredBatch] = []
        answers: list[tuple[Sequence[StoredBatch], int]] = []
        offset = 1
        while offset < self.segments.nextOffset:
            before = offset
            self.read(offset, lambda topic: True, 1 << 20, lambda *answer: answers.append(answer))
            batches, offset = answers.pop()
            if offset <= before:
                raise ValueError(f"reading does not go on behind {before}")
            all += batches
        return all


def _raise(error: Exception) -> None:
    raise error


def published(
    payloads: Sequence[bytes],
    topic: str = "t",
    publisher: int = 7,
    name: str = "p",
    dialect: str = "fleximq",
    header: bytes = b"",
    content: int = QOS1,
) -> PublishedRun:
    """Return a run of payloads with one header, to be appended."""
    return PublishedRun(topic, publisher, name, dialect, Run(header, list(payloads), content))
