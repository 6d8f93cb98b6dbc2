"""Work queues: jobs are enqueued and confirmed, delivered to consumers that share them, and acknowledged.

One process enqueues; this one holds all consumers. They settle the jobs of one read together, so the rates are those
of brokers and not of a client that works. A run is refused unless exactly the jobs that were enqueued came.
"""

import select
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer
from benchmarks.peers.work_queue import WorkQueue
from benchmarks.percentiles import percentile
from benchmarks.pump import PATIENCE, forked
from benchmarks.refused import Refused
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import letters, names

#: Jobs of a block; two blocks may be unconfirmed.
_BLOCK = 1_000
#: The end of a payload by which a complete job is known.
_ENDING = 16
_MARK, _STAMP = b"\xfe\xed" * 4, struct.Struct("=Q")
_STAMP_AT = len(_MARK)


class Consumer:
    """One connection that takes jobs out of a stream and settles them."""

    def __init__(self, peer: WorkQueue, line: Line, queue: bytes, size: int, prefetch: int) -> None:
        self.line = line
        self._peer, self._queue, self._prefetch = peer, queue, prefetch
        self._jobs, self._ending = peer.jobs(size), letters(size)[-_ENDING:] + peer.suffix
        self._rest = b""
        self._last: list[bytes] = []
        peer.work(line, queue, prefetch)

    def read(self) -> bytes:
        """Read once and settle all jobs that are complete; return their bytes."""
        said = self._rest + self.line.more(self._rest)
        end = self._peer.whole(said, self._ending, self._prefetch)
        self._rest = said[end:]
        if not end:
            return b""
        self._last = self._jobs.findall(said, 0, end)
        self.line.send(self._peer.settled(self.line.who, self._queue, self._last, self._prefetch))
        return said[:end]

    @property
    def taken(self) -> int:
        """How many jobs were in what :meth:`read` returned last, if that was not empty."""
        return len(self._last)

    def finish(self) -> None:
        """Return when all its jobs are settled."""
        self._peer.finish(self.line, self._rest, self._last)
        self._rest, self._last = b"", []


class Crew:
    """The consumers of a queue, which has one job too many as soon as there is one more than expected."""

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = {each.line.socket.fileno(): each for each in consumers}

    def take(self, count: int, taken: Callable[[bytes], object] | None = None) -> None:
        """Take and settle exactly so many jobs; call ``taken`` with the bytes of each read.

        :raises Refused: some did not come, or too many came.
        """
        with select.epoll() as poll:
            for number in self._consumers:
                poll.register(number, select.EPOLLIN)
            while count > 0:
                events = poll.poll(PATIENCE)
                if not events:
                    raise Refused(f"{count:,} jobs did not come")
                for number, _ in events:
                    consumer = self._consumers[number]
                    if said := consumer.read():
                        count -= consumer.taken
                        if taken is not None:
                            taken(said)
        if count:
            raise Refused(f"{-count} jobs more than were enqueued")
        for consumer in self._consumers.values():
            consumer.finish()


@dataclass(frozen=True, slots=True)
class Jobs:
    """One producer, and consumers that each have at most ``prefetch`` unsettled jobs; as fast as it goes.

    The clock stops when every job is confirmed, delivered and settled.
    """

    size: int = 100
    consumers: int = 4
    prefetch: int = 64

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Open the queue, connect the consumers, and find out how many blocks fill the time."""
        with crew(peer, self.consumers, self.size, self.prefetch) as (broker, consumers):
            times = 1
            while (seconds := self._run(broker, consumers, times)) < effort.seconds / 4:
                times *= 2
            times = max(1, round(times * effort.seconds / seconds))
            yield lambda: {"jobs/s": times * _BLOCK / self._run(broker, consumers, times)}

    def _run(self, peer: WorkQueue, consumers: Crew, times: int) -> float:
        queue, text = names(1)[0], letters(self.size)
        with peer.connect() as producer:
            peer.producing(producer)
            payloads = (b"%08d" % number + text[8:] for number in range(_BLOCK))
            block = b"".join(peer.enqueued(producer.who, queue, each) for each in payloads)
            block += peer.closing(producer.who)
            with forked([lambda: _enqueue(peer, producer, block, times)]) as go:
                started = time.perf_counter()
                go()
                consumers.take(times * _BLOCK)
            return time.perf_counter() - started


def _enqueue(peer: WorkQueue, line: Line, block: bytes, times: int) -> None:
    for number in range(times):
        line.send(block)
        if number:
            peer.confirmed(line, _BLOCK)
    peer.confirmed(line, _BLOCK)


@dataclass(frozen=True, slots=True)
class JobStart:
    """Microseconds from enqueueing to the start of a job, at a steady rate far below the broker's own.

    Every job is to be confirmed, and is settled when it has started.
    """

    size: int = 100
    consumers: int = 4
    prefetch: int = 64
    rate: float = 1_000.0

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Open the queue and connect everybody."""
        with crew(peer, self.consumers, self.size, self.prefetch) as (broker, consumers):
            count = max(10, round(self.rate * effort.seconds))

            def run() -> Figures:
                trips = self._run(broker, consumers, count)
                return {f"p{percent}, us": percentile(trips, percent) / 1e3 for percent in (50, 99)}

            run()
            yield run

    def _run(self, peer: WorkQueue, consumers: Crew, count: int) -> list[int]:
        trips: list[int] = []

        def started(said: bytes) -> None:
            now = time.monotonic_ns()
            place = said.find(_MARK)
            while place >= 0:
                trips.append(now - _STAMP.unpack_from(said, place + _STAMP_AT)[0])
                place = said.find(_MARK, place + self.size)

        with peer.connect() as producer:
            peer.producing(producer)
            with forked([lambda: self._enqueue(peer, producer, count)]) as go:
                go()
                consumers.take(count, started)
        return trips

    def _enqueue(self, peer: WorkQueue, line: Line, count: int) -> None:
        """Send one job at a time, each at its moment with the moment in it; confirmations are read at the end."""
        job = peer.enqueued(line.who, names(1)[0], _MARK + letters(self.size)[len(_MARK) :])
        at, said = job.index(_MARK) + _STAMP_AT, bytearray(job + peer.closing(line.who))
        begun = time.monotonic_ns()
        for number in range(count):
            time.sleep(max(0.0, begun / 1e9 + number / self.rate - time.monotonic()))
            _STAMP.pack_into(said, at, time.monotonic_ns())
            line.send(bytes(said))
        for _ in range(count):
            peer.confirmed(line, 1)


@contextmanager
def crew(peer: Peer, consumers: int, size: int, prefetch: int) -> Iterator[tuple[WorkQueue, Crew]]:
    """Open the queue of a broker, and connect its consumers."""
    assert isinstance(peer, WorkQueue)
    queue = names(1)[0]
    with ExitStack() as lines:
        peer.open(lines.enter_context(peer.connect()), queue)
        everybody = [lines.enter_context(peer.connect()) for _ in range(consumers)]
        peer.becomeQuiet(everybody)
        yield peer, Crew([Consumer(peer, line, queue, size, prefetch) for line in everybody])
