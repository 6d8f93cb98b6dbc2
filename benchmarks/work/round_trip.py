"""Requests and replies, one at a time: microseconds from the request to its reply."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.peers.peer import Exchange, Peer
from benchmarks.percentiles import percentile
from benchmarks.pump import forked
from benchmarks.refused import Refused
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import letters

_WARM = 200


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """A requester and a responder in a process each; the payload has ``size`` bytes both ways."""

    size: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Connect the two and prepare all requests."""
        with peer.connect() as requester, peer.connect() as responder:
            exchange = peer.exchange(requester, responder, letters(self.size), effort.exchanges)
            peer.becomeQuiet([requester, responder])

            def run() -> Figures:
                peer.barrier(requester)
                peer.barrier(responder)
                with forked([lambda: _answer(responder.socket, exchange)]) as go:
                    go()
                    trips = _ask(requester.socket, exchange)
                return {"p50, us": percentile(trips, 50) / 1000, "p99, us": percentile(trips, 99) / 1000}

            yield run


def _ask(line: socket.socket, exchange: Exchange) -> list[int]:
    """Return how many nanoseconds each request took, without the first ones."""
    trips = []
    clock, where, size = time.perf_counter_ns, exchange.idInReply, exchange.replySize
    for request in exchange.requests:
        started = clock()
        line.sendall(request)
        reply = _read(line, size)
        trips.append(clock() - started)
        if reply[where] not in request:
            raise Refused(f"a reply to another request: {reply[:120]!r}")
    return trips[min(_WARM, len(trips) // 2) :]


def _answer(line: socket.socket, exchange: Exchange) -> None:
    before, after, size, where = exchange.replyBefore, exchange.replyAfter, exchange.requestSize, exchange.idInRequest
    for _ in exchange.requests:
        request = _read(line, size)
        line.sendall(before + request[where] + after)


def _read(line: socket.socket, size: int) -> bytes:
    """Return exactly so many bytes, with one call where they come at once.

    :raises Refused: if they do not come in time, or more do.
    """
    said = b""
    while len(said) < size:
        try:
            more = line.recv(1 << 16)
        except BlockingIOError:
            raise Refused(f"{size - len(said)} bytes of a message did not arrive") from None
        if not more:
            raise Refused("the broker closed the connection")
        said = said + more if said else more
    if len(said) > size:
        raise Refused(f"more than one message at a time: {said[:200]!r}")
    return said
