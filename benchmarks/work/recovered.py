"""What the journal brings back: the time of a start with many messages in it, and the rate of their replay."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.peers.blipmq import BlipMQ
from benchmarks.peers.journal import Durable
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer
from benchmarks.pump import Receipt, pump
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import letters, names

_BLOCK = 10_000


@dataclass(frozen=True, slots=True)
class Restarted:
    """The broker is killed with ``effort.kept`` messages in its journal, a tenth of them unacknowledged, and started.

    Ready is when a new connection has joined. ``bare, s`` is what the same takes with an empty journal.
    """

    size: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Start with nothing, then fill the journal."""
        assert isinstance(peer, Durable)
        bare = restart(peer)
        topic, queued = names(2)
        unacknowledged = effort.kept // 10
        with peer.connect() as line:
            _fill(peer, line, topic, self.size, effort.kept - unacknowledged)
        blip = BlipMQ()
        blip.port = peer.port
        with blip.connect() as line:
            blip.subscribeWith(line, queued, 1)
            line.send(blip.publication(None, queued, letters(self.size), 1) * unacknowledged + blip.ping())
            line.read(len(blip.pong()))

        def run() -> Figures:
            return {"ready, s": restart(peer), "bare, s": bare}

        yield run


@dataclass(frozen=True, slots=True)
class Replayed:
    """One subscriber asks for everything that the journal has of a topic, ``effort.kept`` messages."""

    size: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Fill the journal."""
        assert isinstance(peer, Durable)
        topic = names(1)[0]
        with peer.connect() as line:
            _fill(peer, line, topic, self.size, effort.kept)
            size = effort.kept * peer.replayed(line.who, topic, letters(self.size))

        def run() -> Figures:
            with peer.connect() as reader:
                peer.barrier(reader)
                peer.replay(reader, topic)
                return {"replayed msg/s": effort.kept / pump([], [Receipt(reader.socket, size)])}

        yield run


def _fill(peer: Durable, line: Line, topic: bytes, size: int, count: int) -> None:
    """Publish so many messages, and return when they are kept."""
    block = peer.kept(line.who, topic, letters(size)) * _BLOCK
    for start in range(0, count, _BLOCK):
        line.send(block[: len(block) // _BLOCK * min(_BLOCK, count - start)])
    peer.barrier(line)


def restart(peer: Peer) -> float:
    """Kill the broker, start it again on its port and folder, and return the seconds until somebody has joined."""
    peer.kill()
    started = time.perf_counter()
    peer.again()
    with peer.connect():
        return time.perf_counter() - started
