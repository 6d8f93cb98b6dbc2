"""Messages that wait in the journal: schedules for their time, and jobs for a consumer.

Their memory is the difference of a broker that was started with them and one that was started without; ``bare, s`` is
how long the latter takes to start.
"""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.peers.fleximq_queue import DurableQueue
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer
from benchmarks.peers.program import residentBytes
from benchmarks.percentiles import percentile
from benchmarks.refused import Refused
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import letters, names
from benchmarks.work.jobs import Consumer
from benchmarks.work.recovered import restart

#: Messages that are sent between two confirmations.
_BLOCK = 10_000
#: Seconds until the schedules that only wait are due, those that are timed, and those that are due at once.
_FAR, _SOON, _TOGETHER = 3_600, 1.0, 2.0
_TIMED = 1_000
_MARK = b"\xfe\xed" * 4
_DUE = re.compile(_MARK + rb"(\d{13})")
#: Bytes on the disk that a waiting job takes at most.
_JOB_BYTES = 120


@dataclass(frozen=True, slots=True)
class Scheduled:
    """``effort.kept`` schedules wait, each for a millisecond of its own; others become due and are received.

    ``p99 late`` is of single ones, from their due time to their arrival. ``fired msg/s`` counts ``effort.queued`` ones
    with the same due time, from it to the last arrival.
    """

    size: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Start with nothing, then fill the journal."""
        assert isinstance(peer, DurableQueue)
        bareStart, bare = restart(peer), residentBytes(peer.pid)
        topic, fired = names(2)
        far = _now() + _FAR * 1000
        with peer.connect() as line:
            for start in range(0, effort.kept, _BLOCK):
                dues = range(far + start, far + min(start + _BLOCK, effort.kept))
                line.send(b"".join(peer.scheduled(line.who, topic, letters(self.size), due) for due in dues))
                peer.barrier(line)

        def run() -> Figures:
            ready = restart(peer)
            memory = residentBytes(peer.pid) - bare
            with peer.connect() as publisher, peer.connect() as subscriber:
                peer.subscribe(subscriber, [fired])
                late = self._late(peer, publisher, subscriber, fired)
                rate = self._rate(peer, publisher, subscriber, fired, effort.queued)
            return {
                "p99 late, ms": percentile(late, 99),
                "bytes/schedule": memory / effort.kept,
                "ready, s": ready,
                "bare, s": bareStart,
                "fired msg/s": rate,
            }

        yield run

    def _late(self, peer: DurableQueue, publisher: Line, subscriber: Line, topic: bytes) -> list[float]:
        """Return the milliseconds by which single schedules are late, of one in each millisecond of a second."""
        first, rest = _now() + round(_SOON * 1000), letters(self.size)
        for due in range(first, first + _TIMED):
            publisher.send(peer.scheduled(publisher.who, topic, _MARK + b"%013d" % due + rest, due))
        late: list[float] = []
        said = b""
        while len(late) < _TIMED:
            said += subscriber.more()
            now = time.time() * 1000
            found = [*_DUE.finditer(said)]
            late += [now - int(each[1]) for each in found]
            said = said[found[-1].end() :] if found else said
        if min(late) < 0:
            raise Refused(f"a schedule fired {-min(late):.0f} ms early")
        return late

    def _rate(self, peer: DurableQueue, publisher: Line, subscriber: Line, topic: bytes, count: int) -> float:
        """Return how many schedules a second are published that are due together."""
        due = _now() + round(_TOGETHER * 1000)
        publisher.send(peer.scheduled(publisher.who, topic, _MARK + letters(self.size), due) * count)
        peer.barrier(publisher)
        if _now() >= due:
            due = _now()  # they became due before all were there: this counts those that were late
        received, said = 0, b""
        while received < count:
            said = said[1 - len(_MARK) :] + subscriber.more()
            received += said.count(_MARK)
        return count / (time.time() - due / 1000)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A hundred times ``effort.kept`` jobs wait in one queue, fewer if the disk is too small; it never had a consumer.

    Ready is when a new connection has joined; ``first job, s`` is when it has its first job.
    """

    size: int = 16
    times: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Start with nothing, then fill the journal."""
        assert isinstance(peer, DurableQueue)
        bareStart, bare = restart(peer), residentBytes(peer.pid)
        queue, payload = names(1)[0], letters(self.size)
        count = min(self.times * effort.kept, shutil.disk_usage(peer.folder).free // 2 // _JOB_BYTES)
        with peer.connect() as line:
            block = peer.enqueued(line.who, queue, payload) * _BLOCK
            for _ in range(0, count, _BLOCK):
                line.send(block)
                peer.barrier(line)
        full = residentBytes(peer.pid) - bare

        def run() -> Figures:
            ready = restart(peer)
            memory = residentBytes(peer.pid) - bare
            started = time.perf_counter()
            with peer.connect() as line:
                consumer = Consumer(peer, line, queue, self.size, 1)
                while not consumer.read():
                    pass
            return {
                "waiting": count,
                "memory, MB": max(full, memory) / 1e6,
                "ready, s": ready,
                "bare, s": bareStart,
                "first job, s": ready + time.perf_counter() - started,
            }

        yield run


def _now() -> int:
    return time.time_ns() // 1_000_000
