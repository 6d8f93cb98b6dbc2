"""Messages that wait in the broker until they are fetched: BlipMQ's subscriptions and MiniMQ's queues."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.peers.blipmq import BlipMQ
from benchmarks.peers.line import Line
from benchmarks.peers.minimq import MiniMQ
from benchmarks.peers.peer import Peer
from benchmarks.pump import Load, Receipt, pump
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import letters, names

#: So many POLLs go out before what they bring is acknowledged.
_WINDOW = 64


@dataclass(frozen=True, slots=True)
class Polled:
    """BlipMQ: publishes in, then POLLs out, both pipelined on one connection each.

    With ``qos`` 1 everything that is polled is acknowledged, in windows. Each phase ends with a PING's answer.
    """

    qos: int = 0
    size: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Subscribe, and prepare everything that is sent and what is due for it."""
        assert isinstance(peer, BlipMQ)
        topic, payload, n = names(1)[0], letters(self.size), effort.queued
        with peer.connect() as publisher, peer.connect() as consumer:
            subscription = peer.subscribeWith(consumer, topic, self.qos)
            publishes = peer.publication(None, topic, payload, self.qos) * n + peer.ping()
            delivery = len(peer.delivery(None, topic, payload))
            runs = 0

            def run() -> Figures:
                nonlocal runs
                polls = self._polls(peer, subscription, n, first=runs * n + 1)
                runs += 1
                inward = _phase(publisher, publishes, len(peer.pong()))
                outward = _phase(consumer, polls, n * delivery + len(peer.pong()))
                return {"in, msg/s": n / inward, "out, msg/s": n / outward}

            yield run

    def _polls(self, peer: BlipMQ, subscription: int, n: int, first: int) -> bytes:
        """Return POLLs for ``n`` messages; delivery tags count from ``first``."""
        parts = []
        for start in range(0, n, _WINDOW):
            window = range(start, min(start + _WINDOW, n))
            parts.append(peer.poll(subscription) * len(window))
            if self.qos:
                parts.extend(peer.acknowledgement(subscription, first + place) for place in window)
        return b"".join(parts) + peer.ping()


@dataclass(frozen=True, slots=True)
class Queued:
    """MiniMQ: PRODUCE, CONSUME and ACK, each for all messages, pipelined on one connection."""

    size: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Open the queue, and prepare everything that is sent and what is due for it."""
        assert isinstance(peer, MiniMQ)
        topic, payload, n = names(1)[0], letters(self.size), effort.queued
        ids = [b"00000000-0000-4000-8000-%012d" % number for number in range(n)]
        produces = b"".join(peer.publication(None, topic, payload, id=each) for each in ids)
        consumes = peer.consume(topic) * n
        acknowledgements = b"".join(map(peer.acknowledgement, ids)) + peer.ping()
        produced = sum(len(each) + 1 for each in ids)
        consumed = sum(len(peer.delivery(None, topic, payload, id=each)) for each in ids)
        with peer.connect() as line:
            peer.subscribe(line, [topic])

            def run() -> Figures:
                return {
                    "PRODUCE/s": n / _phase(line, produces, produced),
                    "CONSUME/s": n / _phase(line, consumes, consumed),
                    "ACK/s": n / _phase(line, acknowledgements, len(peer.pong())),
                }

            yield run


def _phase(line: Line, block: bytes, size: int) -> float:
    """Send everything on a connection, get everything back on it, and return the seconds."""
    return pump([Load(line.socket, block)], [Receipt(line.socket, size)])
