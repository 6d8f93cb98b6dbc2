"""What a reader that never reads costs those beside it, and the broker's memory."""

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.peers.blipmq import BlipMQ
from benchmarks.peers.line import Line
from benchmarks.peers.minimq import MiniMQ
from benchmarks.peers.peer import Peer
from benchmarks.peers.program import forgetPeak, peakBytes, residentBytes
from benchmarks.percentiles import percentile
from benchmarks.pump import forked, limitWaits
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import names
from benchmarks.work.latency import Layout, Paced, Reader

_MEBIBYTE = 1 << 20
#: Requests that a reader of a polled dialect sends at a time: as many as are published, in the same rhythm.
_ASK = 16


@dataclass(frozen=True, slots=True)
class Beside:
    """A steady publisher with healthy subscribers, first alone, then beside one of ``dialect`` that never reads.

    Either is done with a broker that was just started and has done the same for a second; every second pair begins
    with the slow reader. Growth is from before the slow reader comes to the peak. Where messages have to be asked for,
    the process that asks runs in both, alone at a connection that nobody reads: what it takes of the processors is the
    benchmark's, and no slow reader's doing. The broker has a processor of its own, so that the system does not put its
    subscribers in front of it by chance.
    """

    dialect: type[Peer]
    size: int = 4096
    healthy: int = 20
    rate: float = 8_000.0

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Nothing to make ready."""
        topic = names(1)[0]
        paced = Paced.at(self.rate, effort.unread / self.size / self.rate)

        turns = itertools.count()

        def run() -> Figures:
            if next(turns) % 2:
                beside, growth = self._beside(peer, topic, effort, paced)
                alone = self._alone(peer, topic, effort, paced)
            else:
                alone = self._alone(peer, topic, effort, paced)
                beside, growth = self._beside(peer, topic, effort, paced)
            return {
                "p99 without, us": alone,
                "p99 with, us": beside,
                "with/without": beside / alone,
                "growth, MiB": growth,
            }

        yield run

    @contextmanager
    def _crew(self, peer: Peer, topic: bytes, effort: Effort) -> Iterator["_Crew"]:
        """Start the broker anew, and let publisher and subscribers find their pace."""
        peer.stop()
        peer.start()
        with ExitStack() as lines:
            publisher = lines.enter_context(peer.connect())
            healthy = [lines.enter_context(peer.connect()) for _ in range(self.healthy)]
            for line in healthy:
                peer.subscribe(line, [topic])
            crew = _Crew(peer, publisher, healthy, Layout(peer, publisher, topic, self.size))
            lines.enter_context(apart(peer.pid))
            crew.p99(Paced.at(self.rate, effort.seconds))
            yield crew

    def _alone(self, peer: Peer, topic: bytes, effort: Effort, paced: Paced) -> float:
        with self._crew(peer, topic, effort) as crew, self._askingNobody(topic, paced.bursts * paced.pace):
            return crew.p99(paced)

    def _beside(self, peer: Peer, topic: bytes, effort: Effort, paced: Paced) -> tuple[float, float]:
        with self._crew(peer, topic, effort) as crew:
            forgetPeak(peer.pid)
            before = residentBytes(peer.pid)
            with self._slow(peer, topic, paced.bursts * paced.pace):
                beside = crew.p99(paced)
            return beside, (peakBytes(peer.pid) - before) / _MEBIBYTE

    @contextmanager
    def _slow(self, peer: Peer, topic: bytes, seconds: float) -> Iterator[None]:
        """Connect the one that never reads; where messages have to be asked for, it asks all the time."""
        slow = self.dialect()
        slow.port = peer.port
        with slow.connect() as line:
            id = 0
            if isinstance(slow, BlipMQ):
                id = slow.subscribeWith(line, topic, qos=0)
            else:
                slow.subscribe(line, [topic])
            with self._asking(line.socket, _question(slow, topic, id), seconds):
                yield

    @contextmanager
    def _askingNobody(self, topic: bytes, seconds: float) -> Iterator[None]:
        """Let the same process ask somewhere else."""
        with socket.create_server(("127.0.0.1", 0)) as door, socket.create_connection(door.getsockname()) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            other, _ = door.accept()
            with other, self._asking(line, _question(self.dialect(), topic, 0), seconds):
                yield

    @contextmanager
    def _asking(self, line: socket.socket, question: bytes, seconds: float) -> Iterator[None]:
        asking = [lambda: _insist(line, question, seconds, self.rate)] if question else []
        with forked(asking) as go:
            go()
            yield


@contextmanager
def apart(pid: int) -> Iterator[None]:
    """Let a process run on the first processor, and this one and those it forks on the others, until this is left.

    Where there is only one processor, they share it.
    """
    all = os.sched_getaffinity(0)
    first = {min(all)}
    if len(all) > 1:
        os.sched_setaffinity(pid, first)
        os.sched_setaffinity(0, all - first)
    try:
        yield
    finally:
        os.sched_setaffinity(0, all)


def _question(slow: Peer, topic: bytes, subscription: int) -> bytes:
    """Return what asks for one message; nothing where messages come by themselves."""
    if isinstance(slow, BlipMQ):
        return slow.poll(subscription)
    return slow.consume(topic) if isinstance(slow, MiniMQ) else b""


@dataclass(frozen=True, slots=True)
class _Crew:
    """The publisher and the healthy ones."""

    peer: Peer
    publisher: Line
    healthy: list[Line]
    layout: Layout

    def p99(self, paced: Paced) -> float:
        """Send everything to everybody, and return the microseconds that 99 of 100 deliveries do not exceed."""
        for line in (self.publisher, *self.healthy):
            self.peer.barrier(line)
        readers = [Reader(line.socket, self.layout, paced.messages) for line in self.healthy]
        return percentile(paced.run(self.publisher, readers, self.layout), 99) / 1e3


def _insist(line: socket.socket, question: bytes, seconds: float, rate: float) -> None:
    """Ask for so many messages a second without reading any, until the time is over or the broker takes no more."""
    limitWaits(line, 0.5)
    started = time.monotonic()
    with contextlib.suppress(OSError):
        for asked in range(0, round(seconds * rate), _ASK):
            wait = started + asked / rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            line.sendall(question * _ASK)
