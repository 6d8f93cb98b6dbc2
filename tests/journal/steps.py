"""The writer's work done step by step where a test says so, and runs to be written."""

from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from fleximq.config.journal_options import Fsync
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.segment_table import segmentName
from fleximq.journal.format.frame import FrameHeader, completeFrame
from fleximq.journal.writing.commit import Commit, SegmentOpening, Snapshot
from fleximq.journal.writing.group_commit import GroupCommit
from fleximq.journal.writing.writer_thread import CommitWriter, IWorker
from fleximq.values.message import Content, Message
from fleximq.values.records import PublishedRun, runOf

JOURNAL = "0123456789abcdef" * 2
ALWAYS = Fsync("always")


@implementer(IWorker)
class Steps:
    """A worker that does one piece of work for each :meth:`step`; ``reminder`` is what it was to be reminded of."""

    def __init__(self, *ignored: Any) -> None:
        self.work: list[tuple[Callable[[], object], Callable[[], None]]] = []
        self.reminder: Callable[[], None] | None = None
        self.stopped = False

    def start(self) -> None:
        """There is nothing to start."""

    def hand(self, work: Callable[[], object], done: Callable[[], None]) -> None:
        """Keep it for :meth:`step`."""
        self.work.append((work, done))

    def remind(self, seconds: float, call: Callable[[], None]) -> None:
        """Keep it for :meth:`remindNow`."""
        self.reminder = call

    def remindNow(self) -> None:
        """Let the time have come."""
        call, self.reminder = self.reminder, None
        assert call is not None
        call()

    def step(self) -> None:
        """Do one piece of work and say so."""
        work, done = self.work.pop(0)
        work()
        done()

    def drain(self, seconds: float = 0.0) -> bool:
        """Do one piece of work if there is one and somebody waits."""
        if not self.work or not seconds:
            return False
        self.step()
        return True

    def all(self) -> None:
        """Do all there is, and what comes of it."""
        while self.work:
            self.step()

    def stop(self, seconds: float) -> bool:
        """End."""
        self.stopped = True
        return True


def published(body: bytes, topic: str = "a", publisher: str = "blipmq-1000") -> PublishedRun:
    """Return a run with a message for each byte."""
    run = runOf([Message(bytes([byte]), Content.BYTES) for byte in body])
    return PublishedRun(topic, 1000, publisher, "blipmq", run)


class Group:
    """A GroupCommit over a Log on a real folder, and what it says; the clock stands at ``now`` microseconds."""

    def __init__(self, files: Files, folder: str, *, fsync: Fsync = ALWAYS, overloadedAt: int = 1 << 20):
        self.now = 1_000_000
        self.seconds = 0.0
        self.steps = Steps()
        self.settled: list[Commit] = []
        self.failed: list[Commit] = []
        self.errors: list[Exception] = []
        self.told: list[Any] = []
        self.rollDue = False
        self.files, self.folder = files, folder
        self.log = CommitWriter(files, folder, fsync, 0, lambda: 77, lambda: self.seconds)
        self.group = GroupCommit(
            now=lambda: self.now,
            next=1,
            overloadedAt=overloadedAt,
            settled=self.settled.append,
            failed=self.failed.append,
            rollDue=lambda: self.rollDue,
            open=self.opening,
            onError=self.errors.append,
        )
        first = Commit(last=0, next=1, opening=self.opening())
        self.log.carryOut(first)
        assert first.reason is None, first.error
        self.group.begin(self.log, self.steps)

    def opening(self) -> SegmentOpening:
        """Return the beginning of a segment; its snapshot is what was told so far."""
        self.rollDue = False
        offset = self.group.end
        return SegmentOpening(JOURNAL, Snapshot(len(self.told), (), 0, offset, self.now), offset)

    def append(self, body: bytes, topic: str = "a") -> int:
        """Append a run of one-byte messages; what becomes of it is told."""
        return self.group.append(
            *published(body, topic), lambda offset, reason: self.told.append((body, offset, reason))
        )

    def frames(self, base: int = 0) -> list[tuple[FrameHeader, bytes]]:
        """Return the frames in the file of a segment."""
        return framesIn(f"{self.folder}/{segmentName(base)}")


def framesIn(path: str) -> list[tuple[FrameHeader, bytes]]:
    """Return the frames of a file, each of which has to be whole and chained to the one before."""
    with open(path, "rb") as file:
        content = file.read()
    found: list[tuple[FrameHeader, bytes]] = []
    at = previous = 0
    while at < len(content):
        header, frame = completeFrame(content, at)
        assert header.previous == previous
        previous = header.crc
        found.append((header, bytes(frame)))
        at += header.length
    return found
