"""The byte pump: everything is prepared before the clock starts, and receivers only count.

One process for each sending connection pushes prepared blocks through a blocking socket; the calling process
reads all receiving connections into one buffer and adds up. It knows no protocol. What it promises is exactness:
a run ends when every receiver has got all its bytes and then nothing more, or it is refused. A receiver is woken
for 64 KiB at a time (SO_RCVLOWAT), which leaves the processors to the broker; measured, the pump moves 20 times
what a broker can.
"""

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from benchmarks.refused import Refused

#: Seconds that anything may take: one exchange of a handshake, or a whole run.
PATIENCE = 60.0
#: Seconds without a single byte that prove that those which are due will not come.
SILENCE = 5.0
#: Seconds of silence after the last expected byte that prove there are no more.
QUIET = 0.03

_BUFFER_BYTES = 1 << 20
_LOW_WATER = 1 << 16


class Load(NamedTuple):
    """What one connection has to send: a block of whole frames, so many times."""

    socket: socket.socket
    block: bytes
    times: int = 1


class Receipt(NamedTuple):
    """What one connection is to get, in bytes; 0 for one that must get nothing."""

    socket: socket.socket
    size: int


def pump(loads: Sequence[Load], receipts: Sequence[Receipt], patience: float = PATIENCE) -> float:
    """Send all loads at once and return the seconds from the start to the last byte received.

    :raises Refused: if a receiver got fewer or more bytes than it should, or lost its connection, or a sender
        could not send everything, within ``patience`` seconds.
    """
    return drive([partial(_send, load) for load in loads], receipts, patience)


def drive(senders: Sequence[Callable[[], None]], receipts: Sequence[Receipt], patience: float = PATIENCE) -> float:
    """Do the same with senders that are functions, each called in a process of its own."""
    counter = _Counter(receipts)
    with counter, forked(senders) as go:
        started = time.perf_counter()
        go()
        ended = counter.count(started + patience)
    counter.nothingMore()
    return ended - started


@contextlib.contextmanager
def forked(tasks: Sequence[Callable[[], None]]) -> Iterator[Callable[[], None]]:
    """Fork a process for each task; they begin when what is returned is called, and have ended when this is left.

    :raises Refused: if a task failed.
    """
    waiting, starting = os.pipe()
    children = [_fork(task, waiting, starting) for task in tasks]
    os.close(waiting)
    started = False

    def go() -> None:
        nonlocal started
        started = True
        os.close(starting)

    try:
        yield go
    except BaseException:
        for child in children:
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        if not started:
            os.close(starting)
        statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise Refused("a sender could not send everything")


def _fork(task: Callable[[], None], waiting: int, starting: int) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.close(starting)
        os.read(waiting, 1)
        task()
        status = 0
    finally:
        os._exit(status)


def _send(load: Load) -> None:
    send, block = load.socket.sendall, load.block
    for _ in range(load.times):
        send(block)


class _Counter:
    """Counts what the receipts' sockets get; while it is entered, they wake it for larger portions only."""

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        self._sockets = {receipt.socket.fileno(): receipt.socket for receipt in receipts}
        self._left = {receipt.socket.fileno(): receipt.size for receipt in receipts}
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._low = _LOW_WATER
        self._poll = select.epoll()
        for number in self._sockets:
            self._poll.register(number, select.EPOLLIN)

    def __enter__(self) -> None:
        for number, left in self._left.items():
            _wakeAt(self._sockets[number], min(max(left, 1), self._low))

    def __exit__(self, *_: object) -> None:
        for each in self._sockets.values():
            _wakeAt(each, 1)

    def count(self, deadline: float) -> float:
        """Return when the last expected byte had come."""
        left, sockets, poll, buffer = self._left, self._sockets, self._poll.poll, self._buffer
        waiting = sum(1 for size in left.values() if size)
        now = time.perf_counter()
        while waiting:
            if now >= deadline:
                raise Refused(self._missing())
            events = poll(min(SILENCE, deadline - now))
            if not events:
                self._listenCloser()
            for number, _ in events:
                try:
                    got = sockets[number].recv_into(buffer, 0, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    got = 0
                rest = left[number] = left[number] - got
                if rest < _LOW_WATER or not got:
                    self._nearTheEnd(number, got, rest)
                    waiting -= not rest
            now = time.perf_counter()
        return now

    def _nearTheEnd(self, number: int, got: int, rest: int) -> None:
        """Refuse a closed connection and a byte too many, and wake for what is left."""
        if not got:
            raise Refused(f"a connection was closed; {self._missing()}")
        if rest < 0:
            raise Refused(f"{-rest} bytes more than were published, the last read began {bytes(self._buffer[:80])!r}")
        if rest:
            _wakeAt(self._sockets[number], min(rest, self._low))

    def _listenCloser(self) -> None:
        """After a silence let every byte wake; if all were counted anyway, something is lost."""
        if self._low == 1:
            raise Refused(self._missing())
        self._low = 1
        for each in self._sockets.values():
            _wakeAt(each, 1)

    def _missing(self) -> str:
        behind = [size for size in self._left.values() if size]
        return f"{sum(behind):,} bytes did not arrive at {len(behind)} of {len(self._left)} connections"

    def nothingMore(self) -> None:
        """Make sure that everyone is connected still and gets nothing more."""
        for number, _ in self._poll.poll(QUIET):
            got = self._sockets[number].recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            if got:
                raise Refused(f"more bytes than were published, beginning {bytes(self._buffer[: min(got, 80)])!r}")
            raise Refused("a connection was closed at the end")
        self._poll.close()


def _wakeAt(each: socket.socket, size: int) -> None:
    each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


def limitWaits(each: socket.socket, seconds: float = PATIENCE) -> None:
    """Let blocking calls on a socket fail with BlockingIOError after so long, at no cost for each call."""
    moment = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, moment)
    each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, moment)
