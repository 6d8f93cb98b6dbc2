"""A test with a store in memory, and owners whose appends it can disturb."""

from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cluster.interfaces import Piece
from fleximq.cluster.stream_log import StreamLog
from fleximq.cluster.stream_replica import StreamReplica
from fleximq.journal.format.frame import FrameHeader, completeFrame
from fleximq.journal.writing.commit import Commit, RecordsPart
from tests.cluster.memory import MemoryCluster, MemoryServers
from tests.journal.frames import JOURNAL, TIME, appended
from tests.journal.recorder import Recorder, State

FOLDER = "/disk/journal"
T = TypeVar("T")


def emptyDisk() -> Recorder:
    """Return a disk with a folder for a journal."""
    disk = Recorder()
    disk.makeFolder("/disk")
    return Recorder(disk.now())


class StoreCase(SynchronousTestCase):
    """``servers`` are the store, ``stream`` is that of shard 0."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.servers = MemoryServers(self.clock, Random(1))
        self.stream = self.servers.stream(0)
        self.sent: list[float] = []

    def cluster(self, node: str = "a") -> MemoryCluster:
        """Return a connection to the store."""
        return MemoryCluster(self.servers, node, self.clock)

    def openCopy(self, disk: Recorder | State | None = None) -> StreamReplica:
        """Return an open copy."""
        disk = Recorder(disk) if isinstance(disk, State) else disk or emptyDisk()
        copy = StreamReplica(disk, FOLDER, 0)
        copy.open()
        return copy

    def log(self, copy: StreamReplica | None = None, node: str = "a", term: int = 1, now: int = TIME) -> StreamLog:
        """Return the log of an owner that has not fenced the stream yet."""
        self.copy = copy or self.openCopy()
        return StreamLog(
            self.cluster(node),
            0,
            self.copy,
            node=node,
            term=term,
            journal=JOURNAL,
            clock=self.clock,
            now=lambda: now,
            randomId=lambda: term << 32 | self.servers.random.getrandbits(32),
            confirmed=self.sent.append,
        )

    def owner(self, node: str = "a", term: int = 1, now: int = TIME) -> StreamLog:
        """Return the log of an owner, whose copy was empty before; it is ``copy``."""
        log = self.log(None, node, term, now)
        self.completed(log.fence())
        return log

    def commit(self, *payloads: bytes) -> Commit:
        """Return a commit with these records."""
        offset = self.copy.next
        parts = [RecordsPart(offset, [appended(*payloads)])] if payloads else []
        return Commit(last=1, next=offset + len(payloads), time=TIME, parts=list(parts))

    def begin(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Begin something."""
        return Deferred.fromCoroutine(work)

    def completed(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what comes of something within 30 seconds."""
        result = self.begin(work)
        for _ in range(3000):
            if result.called:
                break
            self.clock.advance(0.01)
        return self.successResultOf(result)

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)


def headersOf(pieces: Sequence[Piece]) -> list[FrameHeader]:
    """Return the headers of the frames in messages of a stream."""
    data, headers, at = b"".join(piece.data for piece in pieces), [], 0
    while at < len(data):
        headers.append(completeFrame(data, at)[0])
        at += headers[-1].length
    return headers
