"""Publications that are confirmed when they are kept: many behind each other, or one at a time on many connections."""

import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from benchmarks.peers.line import Line
from benchmarks.peers.minimq import MiniMQ
from benchmarks.peers.peer import Peer, Who
from benchmarks.percentiles import percentile
from benchmarks.refused import Refused
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import letters, names

#: The share of what the disk takes with nothing else to do.
SHARE = "of bare disk"
#: Messages of a block; two blocks may be unconfirmed, which is less than what JetStream takes before it refuses.
_BLOCK = 4_000
#: Bytes that a bare disk is given between two syncs, about what a commit of ours has, and bytes in all.
_SYNCED_BYTES, _BARE_BYTES = 8 << 20, 128 << 20


@runtime_checkable
class Keeper(Protocol):
    """A peer that confirms what it keeps."""

    def keep(self, line: Line, topic: bytes) -> None:
        """Make ready to publish durably on a connection."""

    def kept(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        """Return a publication that is to be confirmed."""

    def closing(self, who: Who) -> bytes:
        """Return what has to be said behind publications so that they are confirmed."""

    def confirmations(self, count: int) -> int:
        """Return how many bytes will confirm the next ``count`` publications, what closes them included."""


@dataclass(frozen=True, slots=True)
class Pipelined:
    """One connection publishes as fast as it can; the clock stops with the last confirmation.

    A broker that confirms each message gets blocks, of which two may be unconfirmed; one that confirms all at
    once gets them all, and the closing question behind them. Behind each run the disk is given the same bytes with
    nothing between: what no broker can surpass that syncs before it confirms.
    """

    size: int = 100
    figure: str = "kept msg/s"

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Prepare a block, and find out how many fill the time."""
        assert isinstance(peer, Keeper)
        topic = names(1)[0]
        with peer.connect() as line:
            peer.keep(line, topic)
            peer.becomeQuiet([line])
            block = peer.kept(line.who, topic, letters(self.size)) * _BLOCK
            times = 1
            while (rate := self._run(peer, line, block, times)) and times * _BLOCK / rate < effort.seconds / 4:
                times *= 2
            times = max(1, round(rate * effort.seconds / _BLOCK))

            def run() -> Figures:
                kept, bare = self._run(peer, line, block, times), _writeBare(peer, block)
                return {self.figure: kept, "bare disk, msg/s": bare, SHARE: kept / bare}

            yield run

    def _run(self, peer: Keeper, line: Line, block: bytes, times: int) -> float:
        closing = peer.closing(line.who)
        started = time.perf_counter()
        if closing:
            for _ in range(times):
                line.send(block)
            line.send(closing)
            line.read(peer.confirmations(times * _BLOCK))
        else:
            due: list[int] = []
            for _ in range(times):
                due.append(peer.confirmations(_BLOCK))
                line.send(block)
                if len(due) > 1:
                    _drop(line, due.pop(0))
            for size in due:
                _drop(line, size)
        return times * _BLOCK / (time.perf_counter() - started)


def _writeBare(peer: Peer, block: bytes) -> float:
    """Return how many messages a second the disk of a broker's folder takes, written and synced as they are sent."""
    path = peer.folder / "bare"
    syncs, blocks = _BARE_BYTES // _SYNCED_BYTES, max(1, _SYNCED_BYTES // len(block))
    with path.open("wb", buffering=0) as file:
        begun = time.perf_counter()
        for _ in range(syncs):
            for _ in range(blocks):
                file.write(block)
            os.fdatasync(file.fileno())
        seconds = time.perf_counter() - begun
    path.unlink()
    return syncs * blocks * _BLOCK / seconds


def _drop(line: Line, size: int) -> None:
    """Read exactly so many bytes, whatever they are."""
    if len(line.read(size)) != size:
        raise Refused("confirmations are missing")


@dataclass(frozen=True, slots=True)
class OneByOne:
    """Many connections, each with one message under way: it sends the next when that is confirmed."""

    connections: int = 64
    size: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Connect them all."""
        assert isinstance(peer, Keeper)
        topic = names(1)[0]
        with ExitStack() as stack:
            lines = [stack.enter_context(peer.connect()) for _ in range(self.connections)]
            for line in lines:
                peer.keep(line, topic)
            peer.becomeQuiet(lines)
            messages = {
                line.socket.fileno(): peer.kept(line.who, topic, letters(self.size)) + peer.closing(line.who)
                for line in lines
            }
            yield lambda: {"kept msg/s": self._run(peer, lines, messages, effort.seconds)}

    def _run(self, peer: Keeper, lines: Sequence[Line], messages: dict[int, bytes], seconds: float) -> float:
        """Count confirmations for so long, then wait for those under way."""
        sockets = {line.socket.fileno(): line.socket for line in lines}
        under = dict.fromkeys(sockets, b"")
        poll = select.epoll()
        for number in sockets:
            poll.register(number, select.EPOLLIN)
        confirmed = 0
        started = time.perf_counter()
        for number, each in sockets.items():
            each.sendall(messages[number])
        waiting = len(sockets)
        while waiting:
            events = poll.poll(5.0)
            if not events:
                raise Refused(f"{waiting} publications were not confirmed")
            for number, _ in events:
                said = under[number] + sockets[number].recv(4096)
                if not self._confirms(peer, said):
                    under[number] = said
                    continue
                under[number] = b""
                confirmed += 1
                if time.perf_counter() - started < seconds:
                    sockets[number].sendall(messages[number])
                else:
                    waiting -= 1
        ended = time.perf_counter()
        poll.close()
        peer.confirmations(confirmed)
        return confirmed / (ended - started)

    def _confirms(self, peer: Keeper, said: bytes) -> bool:
        """Tell whether this is one whole confirmation and no error."""
        if peer.closing(0):
            return len(said) == peer.confirmations(1)
        if b"error" in said:
            raise Refused(f"a publication was refused: {said[:200]!r}")
        return said.endswith(b"}\r\n")


@dataclass(frozen=True, slots=True)
class Produced:
    """MiniMQ with a journal: PRODUCE pipelined, then one at a time beside a bare write and sync of the same size."""

    size: int = 100
    single: int = 400

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Prepare everything."""
        assert isinstance(peer, MiniMQ)
        topic, payload, n = names(1)[0], letters(self.size), effort.queued
        ids = [b"00000000-0000-4000-8000-%012d" % number for number in range(n)]
        produces = [peer.publication(None, topic, payload, id=each) for each in ids]
        whole = b"".join(produces)
        answers = sum(len(each) + 1 for each in ids)
        rest = b"".join([*map(peer.acknowledgement, ids), peer.ping()])
        consumed = sum(len(peer.delivery(None, topic, payload, id=each)) for each in ids)
        with peer.connect() as line:
            peer.subscribe(line, [topic])

            def run() -> Figures:
                started = time.perf_counter()
                line.send(whole)
                line.read(answers)
                rate = n / (time.perf_counter() - started)
                _empty(peer, line, topic, n, consumed, rest)
                trips, bare = [], []
                few = min(self.single, n)
                for place in range(few):
                    bare.append(_syncBare(peer, self.size))
                    begun = time.perf_counter_ns()
                    line.send(produces[place])
                    line.read(len(ids[place]) + 1)
                    trips.append((time.perf_counter_ns() - begun) / 1000)
                size = sum(len(peer.delivery(None, topic, payload, id=each)) for each in ids[:few])
                _empty(peer, line, topic, few, size, b"".join(map(peer.acknowledgement, ids[:few])) + peer.ping())
                single, sync = percentile(trips, 50), percentile(bare, 50)
                return {
                    "PRODUCE/s": rate,
                    "one at a time p50, us": single,
                    "bare sync p50, us": sync,
                    "over bare sync, us": single - sync,
                }

            yield run


def _empty(peer: MiniMQ, line: Line, topic: bytes, count: int, size: int, acknowledgements: bytes) -> None:
    line.send(peer.consume(topic) * count)
    line.read(size)
    line.send(acknowledgements)
    line.readUntil(peer.pong())


def _syncBare(peer: Peer, size: int) -> float:
    """Return the microseconds that writing and syncing so much takes on the disk of the broker's folder."""
    folder = peer.folder
    with open(folder / "bare", "ab", buffering=0) as file:
        begun = time.perf_counter_ns()
        file.write(bytes(size))
        os.fdatasync(file.fileno())
        return (time.perf_counter_ns() - begun) / 1000
