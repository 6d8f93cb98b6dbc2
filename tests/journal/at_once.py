"""The journal without its threads: what they do is done when a test says so."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fleximq.config.journal_options import Fsync
from fleximq.journal.disk_journal import DiskJournal
from fleximq.journal.files.file_system import Files
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.journal.writing.writer_thread import CommitWriter
from fleximq.values.records import QOS1, PublishedRun, Run, StoredBatch

ALWAYS = Fsync("always")


def atOnce(function: Callable[..., Any], *arguments: Any) -> None:
    """Call without going through a reactor."""
    function(*arguments)


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
    """Answers before the question returns."""

    def begin(self) -> None:
        """No thread."""

    def stop(self) -> None:
        """Close the files."""
        self._opened.close()

    def _ask(
        self, job: Callable[[], Sequence[Any]], found: Callable[..., None], otherwise: Sequence[Any] | None = None
    ) -> None:
        self._opened.end = self._segments.end
        found(*job())


class JournalAtOnce(DiskJournal):
    """A journal whose commits wait for ``worker.step()``."""

    worker: Steps

    def __init__(
        self,
        files: Files,
        folder: str = "/disk/journal",
        *,
        now: Callable[[], int] = lambda: 1_700_000_000_000_000,
        fsync: Fsync = ALWAYS,
        segmentBytes: int = 1 << 20,
    ) -> None:
        def makeWorker(*arguments: Any) -> Steps:
            self.worker = Steps(*arguments)
            return self.worker

        self.said: list[str] = []
        self.lost: list[LostRange] = []
        super().__init__(
            folder,
            callFromThread=atOnce,
            now=now,
            fsync=fsync,
            files=files,
            segmentBytes=segmentBytes,
            makeWorker=makeWorker,
            log=self.said.append,
            onError=_raise,
        )

    def open(self) -> Any:
        """Open it, with a reader that answers at once."""
        found = super().open()
        self._readBy(
            ReaderAtOnce(
                self._files,
                self._folder,
                self._segments,
                atOnce,
                lost=lambda lost, why: self.lost.append(lost),
                log=self.said.append,
            )
        )
        return found

    def everything(self) -> list[StoredBatch]:
        """Return all records, read back."""
        all: list[StoredBatch] = []
        answers: list[tuple[list[StoredBatch], int]] = []
        offset = 1
        while offset < self._segments.nextOffset:
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
