"""How long a delivery takes at half of a broker's own top rate: microseconds from sending to receiving."""

import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer
from benchmarks.percentiles import median, percentile
from benchmarks.pump import PATIENCE, forked
from benchmarks.refused import Refused
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import Fan, letters, names

#: Seconds between two bursts: a sender cannot be woken for each message.
_PACE = 0.001
#: One message of so many carries the time.
_EVERY = 16
_PERCENTS = 50, 99, 99.9, 99.99
_STAMP = struct.Struct("=Q")
_MARK = b"\xfe\xed" * 4
_BUFFER_BYTES = 1 << 20
#: The figures of the slowest deliveries.
TAILS = ("p99.9, us", "p99.99, us")


class Layout:
    """Where the time stands in publications and deliveries, which all have the same length."""

    def __init__(self, peer: Peer, publisher: Line, topic: bytes, size: int) -> None:
        payload = _MARK + letters(size)[len(_MARK) :]
        self.publication = peer.publication(publisher.who, topic, payload)
        delivery = peer.delivery(publisher.who, topic, payload)
        self.sentAt = self.publication.index(_MARK)
        self.size = len(delivery)
        self.deliveredAt = delivery.index(_MARK)


class Reader:
    """Takes the times out of one subscriber's stream."""

    def __init__(self, line: socket.socket, layout: Layout, messages: int) -> None:
        self.socket = line
        self.trips: list[int] = []
        self.left = messages * layout.size
        self._layout = layout
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._kept = 0
        self._next = 0

    def read(self) -> None:
        """Read once, and take the time of each stamped message that is whole.

        :raises Refused: if the connection ended, or more came than was published.
        """
        got = self.socket.recv_into(self._view[self._kept :], 0, socket.MSG_DONTWAIT)
        now = time.monotonic_ns()
        self.left -= got
        if not got or self.left < 0:
            raise Refused("a connection was closed" if not got else f"{-self.left} bytes more than were published")
        size, at = self._layout.size, self._layout.deliveredAt
        have = self._kept + got
        whole = have // size
        for place in range(self._next, whole, _EVERY):
            self.trips.append(now - _STAMP.unpack_from(self._buffer, place * size + at)[0])
        self._next = (self._next - whole) % _EVERY
        end = whole * size
        self._kept = have - end
        self._view[: self._kept] = self._view[end:have]


@dataclass(frozen=True, slots=True)
class Paced:
    """Messages at a steady rate, in bursts; ``burst`` is a multiple of 16 messages."""

    burst: int
    bursts: int
    pace: float

    @classmethod
    def at(cls, rate: float, seconds: float) -> "Paced":
        """Return bursts of about a millisecond that make up ``rate`` messages a second."""
        burst = max(1, round(rate * _PACE / _EVERY)) * _EVERY
        pace = burst / rate
        return cls(burst, max(2, round(seconds / pace)), pace)

    @property
    def messages(self) -> int:
        """How many messages there are in all."""
        return self.burst * self.bursts

    def send(self, line: socket.socket, layout: Layout) -> None:
        """Send all bursts, each at its time, with the time of its sending in it.

        :raises Refused: if the broker took them so slowly that the rate was missed by a tenth.
        """
        block = bytearray(layout.publication * self.burst)
        places = range(layout.sentAt, len(block), len(layout.publication) * _EVERY)
        started = time.monotonic_ns()
        for number in range(self.bursts):
            wait = started + number * self.pace * 1e9 - time.monotonic_ns()
            if wait > 0:
                time.sleep(wait / 1e9)
            now = time.monotonic_ns()
            for place in places:
                _STAMP.pack_into(block, place, now)
            line.sendall(block)
        if time.monotonic_ns() - started > 1.1e9 * self.bursts * self.pace + 1e8:
            raise Refused("the broker could not take half of its top rate")

    def run(self, publisher: Line, readers: Sequence[Reader], layout: Layout) -> list[int]:
        """Send and receive everything, and return the nanoseconds of all stamped deliveries.

        :raises Refused: if anything was lost.
        """
        byNumber = {reader.socket.fileno(): reader for reader in readers}
        poll = select.epoll()
        for number in byNumber:
            poll.register(number, select.EPOLLIN)
        with poll, forked([lambda: self.send(publisher.socket, layout)]) as go:
            go()
            deadline = time.monotonic() + PATIENCE
            while any(reader.left for reader in readers):
                for number, _ in poll.poll(max(0.0, deadline - time.monotonic())):
                    byNumber[number].read()
                if time.monotonic() > deadline:
                    raise Refused(f"{sum(reader.left for reader in readers):,} bytes did not arrive")
        return [trip for reader in readers for trip in reader.trips]


@dataclass(frozen=True, slots=True)
class Latency:
    """One publisher at half of the rate that the same work reaches unpaced."""

    size: int = 100
    subscribers: int = 1

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Measure the top rate, then connect for the paced runs."""
        with Fan(self.size, self.subscribers).on(peer, effort) as fan:
            top = median([fan()["deliveries/s"] for _ in range(3)]) / self.subscribers
        topic = names(1)[0]
        with ExitStack() as lines:
            publisher = lines.enter_context(peer.connect())
            subscribers = [lines.enter_context(peer.connect()) for _ in range(self.subscribers)]
            for line in subscribers:
                peer.subscribe(line, [topic])
            everybody = [publisher, *subscribers]
            peer.becomeQuiet(everybody)
            layout = Layout(peer, publisher, topic, self.size)
            paced = Paced.at(top / 2, effort.seconds)

            def run() -> Figures:
                for line in everybody:
                    peer.barrier(line)
                readers = [Reader(line.socket, layout, paced.messages) for line in subscribers]
                trips = paced.run(publisher, readers, layout)
                figures = {f"p{percent}, us": percentile(trips, percent) / 1e3 for percent in _PERCENTS}
                return figures | {"at, msg/s": paced.burst / paced.pace}

            yield run
