"""Measures what inputs cost a running broker: processor time, the longest event, memory and log lines.

Times are those that the broker's own thread worked, as a multiple of what a fixed piece of work takes in the same
moment, so neither the other processes of a machine count nor its speed; its caches do, so the least of a few tries
counts. Memory is the peak above that before; the first try counts, since later
ones find memory that the broker has released but the interpreter has not.
"""

import contextlib
import mmap
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.attacks.watched import ALL, EVENT, SLOTS, TURN
from tests.broker_process import BrokerProcess
from tests.conversations.clients import BlipClient, FlexiClient, IdentityClient, MiniClient, Stream, WebSocketStream
from tests.conversations.test_slow_consumers import MEBIBYTE, forgetPeak, status

#: Seconds for which an attack is waited for.
PATIENCE = 300.0
#: The broker is at rest if so many looks, so many seconds apart, see less than so many seconds of work.
LOOKS, LOOK, REST = 5, 0.02, 0.004
#: Seconds of work that each connection, and each message of a busy broker, may cost.
BY_CONNECTION = 0.004
#: How often a cost is measured before it counts as too high.
TRIES = 6


class WatchedBroker(BrokerProcess):
    """A broker whose reactor notes its times."""

    fresh = True

    def start(self) -> None:
        """Start the process."""
        self._times = self.folder / "times"
        self._times.write_bytes(bytes(8 * SLOTS))
        with open(self._times, "r+b") as file:
            self.times = memoryview(mmap.mmap(file.fileno(), 8 * SLOTS)).cast("d")
        super().start()

    @property
    def command(self) -> list[str]:
        """The words with which it is started."""
        python, _, *others = super().command
        return [python, str(Path(__file__).with_name("watched.py")), str(self._times), *others]

    @property
    def works(self) -> bool:
        """Whether one of its threads runs, or would if the machine had a free processor."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                if (task / "stat").read_text().rpartition(")")[2].split()[0] in "RD":
                    return True
        return False


class Bounds(NamedTuple):
    """The most that an input may cost.

    ``byMebibyte`` and ``least`` are seconds of work, for each MiB sent and in all, ``event`` those of one event,
    ``grown`` the bytes of memory, ``lines`` those of the log.
    """

    byMebibyte: float = 2.0
    least: float = 0.3
    event: float = 0.1
    grown: int = 32 * MEBIBYTE
    lines: int = 25


class Cost(NamedTuple):
    """What an attack has cost, in the units of :class:`Bounds`."""

    connections: int
    sent: int
    work: float
    event: float
    turn: float
    grown: int
    lines: int

    def over(self, bounds: Bounds) -> list[str]:
        """Return what is over its bound."""
        most = bounds.least + self.connections * BY_CONNECTION + self.sent / MEBIBYTE * bounds.byMebibyte
        found = {
            f"work of {self.work:.2f} s": self.work > most,
            f"an event of {self.event * 1000:.0f} ms": self.event > bounds.event,
            f"{self.grown / MEBIBYTE:.1f} MiB of memory": self.grown > bounds.grown,
            f"{self.lines} lines of log": self.lines > bounds.lines,
        }
        return [words for words, isOver in found.items() if isOver]

    def least(self, other: "Cost") -> "Cost":
        """Return the lower times of two tries, and the larger memory."""
        return self._replace(
            work=min(self.work, other.work), event=min(self.event, other.event), turn=min(self.turn, other.turn)
        )

    def __str__(self) -> str:
        return (
            f"{self.connections} x {self.sent // max(1, self.connections):,} bytes: {self.work * 1000:.0f} ms in all, "
            f"{self.event * 1000:.1f} ms an event, {self.turn * 1000:.0f} ms a turn, "
            f"{self.grown / MEBIBYTE:+.1f} MiB, {self.lines} lines"
        )


class Opened(NamedTuple):
    """A connection, and the id of its client."""

    socket: socket.socket
    id: int = 0


def _joined(carrier: Stream | WebSocketStream) -> int:
    return FlexiClient(carrier).join().id


def _admittedFlexi(address: tuple[str, int]) -> Opened:
    stream = Stream(address)
    return Opened(stream.socket, _joined(stream))


def _admittedFlexiWs(address: tuple[str, int]) -> Opened:
    stream = WebSocketStream(address, headers=("Sec-WebSocket-Extensions: permessage-deflate",))
    id = _joined(stream)
    return Opened(stream.webSocket._socket, id)


def _admittedMini(address: tuple[str, int]) -> Opened:
    client = MiniClient(address)
    client.barrier()
    return Opened(client.socket)


def _admittedIdentity(address: tuple[str, int]) -> Opened:
    client = IdentityClient(address, headers=("Sec-WebSocket-Extensions: permessage-deflate",))
    return Opened(client.webSocket._socket)


#: Opens a connection and has it admitted, in each dialect.
ADMITTED: dict[str, Callable[[tuple[str, int]], Opened]] = {
    "fleximq": _admittedFlexi,
    "fleximq-ws": _admittedFlexiWs,
    "blipmq": lambda address: Opened(BlipClient(address).login().socket),
    "minimq": _admittedMini,
    "identity": _admittedIdentity,
    "http": lambda address: Opened(Stream(address).socket),
}


class Crowd:
    """Connections that say what they are given and throw away what they hear; they stay open until :meth:`close`."""

    def __init__(self, broker: WatchedBroker, opened: Sequence[Opened]) -> None:
        self._broker = broker
        self.opened = opened
        self._selector = selectors.DefaultSelector()
        for each in opened:
            each.socket.setblocking(False)
            self._selector.register(each.socket, selectors.EVENT_READ, None)

    def say(self, data: Sequence[bytes]) -> int:
        """Say this, each connection its own, until all is said or the broker has closed; return how many bytes."""
        sent = 0
        for each, own in zip(self.opened, data, strict=True):
            if own and each.socket in self._selector.get_map():
                self._selector.modify(each.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, memoryview(own))
        until = time.monotonic() + PATIENCE
        while any(key.data for key in self._selector.get_map().values()) and time.monotonic() < until:
            sent += self.pump(0.1)
        return sent

    def pump(self, seconds: float) -> int:
        """Write and read once, and return how many bytes were written."""
        sent = 0
        if not self._selector.get_map():
            time.sleep(seconds)
        for key, events in self._selector.select(seconds):
            connected, rest = key.fileobj, key.data
            assert isinstance(connected, socket.socket)
            try:
                if events & selectors.EVENT_READ and not connected.recv(1 << 18):
                    raise ConnectionError
                if events & selectors.EVENT_WRITE and rest:
                    done = connected.send(rest[: 1 << 18])
                    sent += done
                    rest = rest[done:]
                    writes = selectors.EVENT_WRITE if rest else 0
                    self._selector.modify(connected, selectors.EVENT_READ | writes, rest or None)
            except BlockingIOError:
                pass
            except OSError:
                self._selector.unregister(connected)
        return sent

    def rest(self) -> None:
        """Wait until the broker has nothing to do; hear what it says meanwhile."""
        until = time.monotonic() + PATIENCE
        quiet = 0
        while quiet < LOOKS and time.monotonic() < until:
            before = self._broker.times[ALL]
            look = time.monotonic() + LOOK
            while (left := look - time.monotonic()) > 0:
                self.pump(left)
            worked = self._broker.times[ALL] - before
            quiet = quiet + 1 if worked < REST and not self._broker.works else 0

    def cost(self, data: Callable[[int], bytes]) -> Cost:
        """Let all say what this makes of their ids, and return what it cost; then close them."""
        said = [data(each.id) for each in self.opened]
        try:
            self.rest()
            broker = self._broker
            resting, lines = status(broker.pid, "VmRSS"), broker.output.count("\n")
            forgetPeak(broker.pid)
            broker.times[EVENT] = broker.times[TURN] = broker.times[ALL] = 0.0
            sent = self.say(said)
            self.rest()
            event, turn, work = broker.times[EVENT], broker.times[TURN], broker.times[ALL]
            grown = status(broker.pid, "VmHWM") - resting
            time.sleep(0.05)  # the lines pass through a pipe
            return Cost(len(said), sent, work, event, turn, grown, broker.output.count("\n") - lines)
        finally:
            self.close()

    def close(self) -> None:
        """Close all connections at once."""
        self._selector.close()
        for each in self.opened:
            each.socket.close()
        if self.opened:
            Crowd(self._broker, ()).rest()
