"""Publications by HTTP: each connection has one request at a time, as most clients of HTTP have."""

import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.peers.http import HttpPeer, isWhole
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer
from benchmarks.pump import SILENCE
from benchmarks.refused import Refused
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import letters, names

_TICKS = os.sysconf("SC_CLK_TCK")
POSTED, WORKED = "POST/s", "processor, us"


@dataclass(frozen=True, slots=True)
class Posts:
    """Messages of ``size`` bytes to one topic without subscribers, over so many connections that stay open.

    The figures are how many are answered in a second, and what one costs the broker: the time of its process.
    """

    connections: int = 32
    size: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Connect, and find out how many messages fill the time."""
        assert isinstance(peer, HttpPeer)
        block = peer.publication(None, names(1)[0], letters(self.size))
        with ExitStack() as stack:
            lines = [stack.enter_context(peer.connect()) for _ in range(self.connections)]
            for line in lines:
                _post(line, block)
            rate = self.connections * 20 / postAll(lines, block, self.connections * 20)

            def run() -> Figures:
                count = max(self.connections, round(rate * effort.seconds))
                before = processorSeconds(peer.pid)
                seconds = postAll(lines, block, count)
                return {POSTED: count / seconds, WORKED: (processorSeconds(peer.pid) - before) / count * 1e6}

            yield run


def _post(line: Line, block: bytes) -> None:
    line.send(block)
    said = b""
    while not isWhole(said):
        said += line.more(said)


def postAll(lines: Sequence[Line], block: bytes, count: int) -> float:
    """Return the seconds until so many requests were answered; each line has one, and gets a next one after it.

    :raises Refused: an answer is no success, or does not come.
    """
    poll = select.epoll()
    sockets = {line.socket.fileno(): line.socket for line in lines}
    said = dict.fromkeys(sockets, b"")
    for number in sockets:
        poll.register(number, select.EPOLLIN)
    unsent, unanswered = count - len(lines), count
    started = time.perf_counter()
    for each in sockets.values():
        each.sendall(block)
    while unanswered:
        events = poll.poll(SILENCE)
        if not events:
            raise Refused(f"{unanswered} requests were not answered")
        for number, _ in events:
            found = said[number] + sockets[number].recv(1 << 16)
            if not isWhole(found):
                if len(found) > 1 << 12 or found == said[number]:
                    raise Refused(f"not answered well: {found[:200]!r}")
                said[number] = found
                continue
            said[number] = b""
            unanswered -= 1
            if unsent > 0:
                unsent -= 1
                sockets[number].sendall(block)
    seconds = time.perf_counter() - started
    poll.close()
    return seconds


def processorSeconds(pid: int) -> float:
    """Return the processor time of a process and its children that run."""
    total = 0.0
    for each in (pid, *_childrenOf(pid)):
        with open(f"/proc/{each}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def _childrenOf(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return list(map(int, file.read().split()))
