"""Readers that do not read: what they cost the broker, and those beside them.

Each test has a broker of its own with a small budget. Five times that is published in step with a healthy reader, so
that only the slow one can fall behind; the kernel takes some of it. Resident memory may grow by the budget, which for
the dialects that poll is that of a connection and of a queue, and by :data:`ALLOWANCE`.
"""

import socket
import struct
import threading
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.case import SocketCase
from tests.conversations.clients import BlipClient, Closing, Ended, FlexiClient, IdentityClient, MiniClient, Stream
from tests.wire.flexi_frames import frame

MEBIBYTE = 1 << 20
BUDGET = 8 * MEBIBYTE
#: What the broker may take besides: what one turn reads and writes, and new pages of the interpreter.
ALLOWANCE = 3 * MEBIBYTE
SIZE = 4096
#: Messages that are sent before the healthy reader is waited for.
BURST = 64
MANY = 160 * BURST
TOPIC = "flood"
SLOW, DROPPED, QUEUE_FULL = "left: slow consumer", "dropped: slow consumer", "dropped: queue full"


def status(pid: int, name: str) -> int:
    """Return a figure of a process in bytes: VmRSS, or VmHWM."""
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def forgetPeak(pid: int) -> None:
    """Let VmHWM begin anew."""
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")


class Slow(Closing):
    """Somebody who asks for everything and reads nothing until told to.

    ``budgets`` is how many times the budget what waits for it may take.
    """

    budgets = 1

    def __init__(self, address: tuple[str, int]) -> None:
        raise NotImplementedError

    def socketOf(self) -> socket.socket:
        """Return its socket."""
        raise NotImplementedError

    def ask(self) -> None:
        """Ask for a burst, where that has to be done."""

    def read(self) -> int:
        """Read all there is, and return how many messages that was.

        :raises Ended: if the broker cut it off, or ConnectionError.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the socket."""
        self.socketOf().close()


class SlowFlexi(Slow):
    """FlexiMQ."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.client = FlexiClient(Stream(address)).join().subscribe(TOPIC)
        self.client.barrier()

    def socketOf(self) -> socket.socket:
        """Return its socket."""
        carrier: Any = self.client.carrier
        return carrier.socket  # type: ignore[no-any-return]

    def read(self) -> int:
        """Read up to the answer of a PING."""
        return sum(heard.kind == "PUB" for heard in self.client.barrier())


class SlowIdentity(Slow):
    """Identity."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.client = IdentityClient(address).subscribe(TOPIC)

    def socketOf(self) -> socket.socket:
        """Return its socket."""
        return self.client.webSocket._socket

    def read(self) -> int:
        """Read up to the answer of an UNSUBSCRIBE."""
        return len(self.client.barrier())


class SlowBlip(Slow):
    """BlipMQ: polls for everything; what is polled until nothing is left is counted."""

    budgets = 2

    def __init__(self, address: tuple[str, int]) -> None:
        self.client = BlipClient(address).login()
        self.id = struct.pack(">Q", self.client.subscribe(TOPIC, qos=0))

    def socketOf(self) -> socket.socket:
        """Return its socket."""
        return self.client.socket

    def ask(self) -> None:
        """POLL."""
        self.client.say(self._poll() * BURST)

    def _poll(self) -> bytes:
        return struct.pack(">IBQ", 9 + len(self.id), BlipClient.POLL, 7) + self.id

    def read(self) -> int:
        """Read and POLL."""
        count = len(self.client.barrier())
        self.client.say(self._poll() * MANY)
        return count + len(self.client.barrier())


class SlowMini(Slow):
    """MiniMQ: consumes everything."""

    budgets = 2

    def __init__(self, address: tuple[str, int]) -> None:
        self.client = MiniClient(address)
        assert self.client.consume(TOPIC) == "NO_MSG"

    def socketOf(self) -> socket.socket:
        """Return its socket."""
        return self.client.socket

    def ask(self) -> None:
        """CONSUME."""
        self.client.say(f"CONSUME:{TOPIC}\n".encode() * BURST)

    def read(self) -> int:
        """Read and CONSUME."""
        heard = self.client.barrier()
        self.client.say(f"CONSUME:{TOPIC}\n".encode() * MANY)
        return sum(line != "NO_MSG" for line in heard + self.client.barrier())


class Flood:
    """A broker with a small budget, a publisher, a healthy reader and a slow one."""

    def __init__(self, case: SynchronousTestCase, slow: type[Slow], policy: str) -> None:
        options = ("--outbox-bytes", str(BUDGET), "--queue-bytes", str(BUDGET), "--slow-consumer", policy)
        self.broker = BrokerProcess(*options)
        self.broker.__enter__()
        case.addCleanup(self.broker.stop)
        address = self.broker.address
        self.publisher = FlexiClient(Stream(address)).join()
        self.healthy = FlexiClient(Stream(address)).join().subscribe(TOPIC)
        self.healthy.barrier()
        case.addCleanup(self.publisher.close)
        case.addCleanup(self.healthy.close)
        payload = msgpack.packb("x" * SIZE)
        self.burst = frame("PUB", self.publisher.id, {"topic": TOPIC}, payload) * BURST
        self.slow: Any = None
        self.pour(BURST)
        self.slow = slow(address)
        case.addCleanup(self.slow.close)
        self.slow.socketOf().setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        forgetPeak(self.broker.pid)
        self._before = status(self.broker.pid, "VmRSS")

    @property
    def growth(self) -> int:
        """By how many bytes resident memory grew at most since the slow one came."""
        return status(self.broker.pid, "VmHWM") - self._before

    def pour(self, messages: int) -> None:
        """Publish, in step with the healthy reader, who gets everything."""
        for _ in range(messages // BURST):
            self.publisher.say(self.burst)
            self.hear(len(self.burst))
            if self.slow is not None:
                self.slow.ask()

    def hear(self, size: int) -> None:
        """Read so many bytes at the healthy reader."""
        while size:
            data = self.healthy.carrier.read()
            if not data:
                raise Ended("the healthy reader was cut off")
            size -= len(data)
        assert size == 0

    def counts(self) -> dict[str, int]:
        """Return what the broker has counted."""
        counts: dict[str, int] = self.publisher.ask("/broker/about")["counts"]
        return counts


class SlowTests(SocketCase):
    """A flood that one reader does not read."""

    def assertBounded(self, flood: Flood) -> None:
        """Check that the broker's memory stayed within the budget."""
        self.assertLess(flood.growth, flood.slow.budgets * BUDGET + ALLOWANCE)

    def assertDisconnected(self, slow: type[Slow]) -> None:
        """The slow one is cut off, and counted; the healthy one loses nothing."""
        flood = Flood(self, slow, "disconnect")
        flood.pour(MANY)
        self.assertBounded(flood)
        self.eventually(lambda: flood.counts().get(SLOW) == 1, "the slow one to be cut off")
        self.assertRaises((Ended, ConnectionError), flood.slow.read)

    def assertDropped(self, slow: type[Slow]) -> None:
        """What the slow one did not get is counted exactly, and it goes on where it reads again."""
        flood = Flood(self, slow, "drop")
        flood.pour(MANY)
        self.assertBounded(flood)
        got, dropped = flood.slow.read(), flood.counts()[DROPPED]
        self.assertEqual(got + dropped, MANY)
        self.assertGreater(got * SIZE, BUDGET)
        flood.pour(BURST)
        self.assertEqual((flood.slow.read(), flood.counts()[DROPPED]), (BURST, dropped))
        self.assertNotIn(SLOW, flood.counts())

    def assertBlocked(self, slow: type[Slow]) -> None:
        """The publisher waits for the slow one, and nothing is lost when that reads again."""
        flood = Flood(self, slow, "block")
        got: list[int] = []
        sending = threading.Thread(target=lambda: flood.publisher.say(flood.burst * (MANY // BURST)))
        hearing = threading.Thread(target=lambda: flood.hear(len(flood.burst) * (MANY // BURST)))
        for thread in (sending, hearing):
            thread.start()
        sending.join(0.5)
        self.assertTrue(sending.is_alive())
        self.assertBounded(flood)
        while sum(got) < MANY:
            got.append(flood.slow.read())
        sending.join()
        hearing.join()
        self.assertEqual(sum(got), MANY)
        self.assertTrue({SLOW, DROPPED}.isdisjoint(flood.counts()))

    def assertPolled(self, slow: type[Slow], policy: str) -> None:
        """Who is sent only what it asks for is never cut off for it at once; its queue drops, and counts exactly."""
        flood = Flood(self, slow, policy)
        flood.pour(MANY)
        self.assertBounded(flood)
        self.assertEqual(flood.slow.read() + flood.counts()[QUEUE_FULL], MANY)
        self.assertTrue({SLOW, DROPPED}.isdisjoint(flood.counts()))

    def test_fleximqDisconnect(self) -> None:
        """FlexiMQ, ``disconnect``."""
        self.assertDisconnected(SlowFlexi)

    def test_fleximqDrop(self) -> None:
        """FlexiMQ, ``drop``."""
        self.assertDropped(SlowFlexi)

    def test_fleximqBlock(self) -> None:
        """FlexiMQ, ``block``."""
        self.assertBlocked(SlowFlexi)

    def test_identityDisconnect(self) -> None:
        """Identity, ``disconnect``."""
        self.assertDisconnected(SlowIdentity)

    def test_identityDrop(self) -> None:
        """Identity, ``drop``."""
        self.assertDropped(SlowIdentity)

    def test_identityBlock(self) -> None:
        """Identity, ``block``."""
        self.assertBlocked(SlowIdentity)

    def test_blipMQByAllPolicies(self) -> None:
        """BlipMQ, by all policies."""
        for policy in ("disconnect", "drop", "block"):
            self.assertPolled(SlowBlip, policy)

    def test_miniMQByAllPolicies(self) -> None:
        """MiniMQ, by all policies."""
        for policy in ("disconnect", "drop", "block"):
            self.assertPolled(SlowMini, policy)
