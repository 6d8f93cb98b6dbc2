"""How fast connections are made, and what an idle one costs."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer
from benchmarks.peers.program import residentBytes
from benchmarks.work.effort import Effort, Figures, Run

#: Connections that are on their way at a time; fewer than listeners let wait.
_AT_ONCE = 32
#: Seconds for a broker to come to rest before its memory is looked at.
_REST = 1.0


def joined(peer: Peer, count: int, lines: ExitStack) -> list[Line]:
    """Open so many connections and say hello on each, some ahead of the answers; return when all are welcome.

    :raises Refused: if one is not.
    """
    opening: deque[Line] = deque()
    done = []
    for _ in range(count):
        if len(opening) == _AT_ONCE:
            done.append(opening.popleft())
            peer.settle(done[-1])
        opening.append(lines.enter_context(peer.dial()))
    for line in opening:
        peer.settle(line)
    return [*done, *opening]


@dataclass(frozen=True, slots=True)
class Joining:
    """Connections a second, each with a hello that is answered: JOIN, CONNECT with PING, or what a protocol has."""

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Warm up with a few."""

        def run(count: int = effort.joins) -> Figures:
            with ExitStack() as lines:
                started = time.perf_counter()
                joined(peer, count, lines)
                seconds = time.perf_counter() - started
            time.sleep(_REST)  # the next peer's run must not pay for the end of these connections
            return {"connections/s": count / seconds}

        run(_AT_ONCE)
        yield run


@dataclass(frozen=True, slots=True)
class Idle:
    """Resident memory that each of many idle connections costs; the broker is started anew for each run."""

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Nothing to make ready."""

        def run() -> Figures:
            peer.stop()
            peer.start()
            with ExitStack() as lines:
                joined(peer, 1, lines)
                time.sleep(_REST)
                before = residentBytes(peer.pid)
                joined(peer, effort.idle, lines)
                time.sleep(_REST)
                return {"bytes/connection": (residentBytes(peer.pid) - before) / effort.idle}

        yield run
