"""Two brokers on three real servers: an owner that is stopped while it is asked, large records and checkpoints, a dead
letter while an owner is killed, and Spark over both copies."""

import contextlib
import os
import signal
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.reader import JournalError, bounds
from tests.broker_process import BrokerProcess
from tests.cluster.nats.servers import MISSING, Servers
from tests.dialects.blipmq.case import auth, hello, poll, publish, subscribe
from tests.nightly import nightly
from tests.pipeline.installed import missing as withoutSpark

if not withoutSpark:
    from tests.pipeline.end_to_end import Ingest

#: Remembered ids of 40 bytes: their checkpoint has more than 40 MB.
_IDS = 800_000
#: Seconds that an ingest may take.
_PATIENCE = 300.0


@nightly
class EdgesTests(SynchronousTestCase):
    """Two nodes; the one that serves is ``owner``."""

    if MISSING:
        skip = MISSING

    def setUp(self) -> None:
        self.servers = Servers(self.mktemp(), 3)
        self.addCleanup(self.servers.end)
        self.servers.wait()
        self.folders: list[Path] = []

    def nodes(self, *words: str) -> None:
        """Start two nodes."""
        urls = [word for url in self.servers.urls for word in ("--cluster", url)]
        self.brokers: list[BrokerProcess] = []
        for name in "ab":
            folder = Path(self.mktemp()).absolute()
            self.folders.append(folder)
            broker = BrokerProcess(*urls, "--node", name, "--durable", "#", "--journal", str(folder), *words)
            broker.start()
            self.addCleanup(broker.stop, signal.SIGKILL)
            self.brokers.append(broker)

    def owner(self, *but: BrokerProcess) -> BrokerProcess:
        """Return the broker that serves, when one does."""
        limit = time.monotonic() + 300
        while time.monotonic() < limit:
            for each in self.brokers:
                if each not in but and "this node owns shard" in each.output and each.listeners:
                    return each
            time.sleep(0.05)
        raise AssertionError([each.output for each in self.brokers])

    def standby(self) -> BrokerProcess:
        """Return the broker that does not serve, when its listeners are open."""
        owner = self.owner()
        other = next(each for each in self.brokers if each is not owner)
        other.waitFor(lambda: other.listeners, "its listeners")
        return other

    def connection(self, broker: BrokerProcess) -> socket.socket:
        """Connect."""
        connection = socket.create_connection(broker.address, 120)
        self.addCleanup(connection.close)
        return connection

    def say(self, broker: BrokerProcess, data: bytes, lines: int) -> list[bytes]:
        """Send MiniMQ lines to a broker and return so many that it sends."""
        connection = self.connection(broker)
        connection.sendall(data)
        with connection.makefile("rb") as answers:
            return [answers.readline().strip() for _ in range(lines)]

    def test_stopped(self) -> None:
        """An owner that was stopped while it was asked hands out nothing, and confirms nothing, when it goes on."""
        self.nodes("--redelivery", "300")
        owner = self.owner()
        self.assertEqual(self.say(owner, b"PRODUCE:m1:::q:::one\n", 1), [b"m1"])
        mini, blip = self.connection(owner), self.connection(owner)
        mini.sendall(b"CONSUME:other\n")
        self.assertEqual(mini.recv(99), b"NO_MSG\n")
        blip.sendall(hello() + auth() + subscribe("t") + publish("t", b"one"))
        said = b""
        while len(said) < 3 * 21:
            said += blip.recv(999)
        subscription = int.from_bytes(said[-8:], "big")
        os.kill(owner.pid, signal.SIGSTOP)
        mini.sendall(b"CONSUME:q\nPRODUCE:m2:::q:::two\n")
        blip.sendall(poll(subscription))
        other = self.owner(owner)
        time.sleep(10)
        os.kill(owner.pid, signal.SIGCONT)
        self.assertEqual((_rest(mini), _rest(blip)), (b"", b""))
        self.assertEqual(owner.wait(), 75)
        lines = self.say(other, b"CONSUME:q\nCONSUME:q\n", 2)
        self.assertEqual([line.split(b":")[0] for line in lines], [b"m1", b"NO_MSG"])

    def test_large(self) -> None:
        """A record of 15 MiB, and a checkpoint of 40 MB, are there at the next owner."""
        self.nodes("--minimq-idempotent", "--idempotence-window", "3600", "--redelivery", "300")
        owner = self.owner()
        large = b"x" * (15 << 20)
        self.assertEqual(self.say(owner, b"PRODUCE:large:::big:::" + large + b"\n", 1), [b"large"])
        names = [b"%040d" % number for number in range(_IDS)]
        connection = self.connection(owner)
        answers = connection.makefile("rb")
        for start in range(0, _IDS, 5000):
            some = names[start : start + 5000]
            connection.sendall(b"".join(b"PRODUCE:%b:::q:::%b\n" % (name, name) for name in some))
            self.assertEqual([answers.readline().strip() for _ in some], some)
        owner.stop(signal.SIGKILL)
        next = self.owner(owner)
        self.assertEqual(self.say(next, b"PRODUCE:%b:::q:::again\n" % names[0], 1), [names[0]])
        found = self.say(next, b"CONSUME:big\n", 1)[0]
        self.assertEqual((found[:14], len(found)), (b"large:::big:::", 14 + len(large) + 6))
        self.again(owner)
        self._equal(_IDS)

    def again(self, broker: BrokerProcess) -> None:
        """Start a broker that was killed."""
        self.brokers.remove(broker)
        self.brokers.append(BrokerProcess(*broker.arguments))
        self.brokers[-1].start()
        self.addCleanup(self.brokers[-1].stop, signal.SIGKILL)

    def _equal(self, least: int) -> None:
        """Wait until both folders end with the same record."""
        limit = time.monotonic() + 300
        while time.monotonic() < limit:
            with contextlib.suppress(JournalError):
                ends = {bounds(folder).next for folder in self.folders}
                if len(ends) == 1:
                    self.assertGreater(ends.pop(), least)
                    return
            time.sleep(0.2)
        raise AssertionError(f"the folders do not become equal: {[bounds(folder) for folder in self.folders]}")

    def test_spark(self) -> None:
        """Each copy has the same rows, and the checkpoint of one goes on with the other, also while that one lags."""
        if withoutSpark:
            self.skipTest(str(withoutSpark))
        self.nodes("--allow-anonymous")
        owner, other = self.owner(), self.standby()
        folders = self.folders if owner is self.brokers[0] else self.folders[::-1]
        lakes = [Path(self.mktemp()).absolute() for _ in range(2)]

        def produce(first: int) -> None:
            lines = b"".join(b"PRODUCE:m%d:::q:::%d\n" % (number, number) for number in range(first, first + 500))
            self.say(owner, lines, 500)

        def ingest(lake: int, folder: int) -> "Ingest":
            lakes[lake].mkdir(exist_ok=True)
            return Ingest(lakes[lake], "--journal", str(folders[folder]), "--once")

        produce(0)
        self._equal(500)
        os.kill(other.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, other.pid, signal.SIGCONT)
        produce(500)
        ingest(0, 0).wait(_PATIENCE)
        self.assertLess(bounds(folders[1]).next, bounds(folders[0]).next)
        lagging = ingest(0, 1)
        time.sleep(20)
        os.kill(other.pid, signal.SIGCONT)
        lagging.wait(_PATIENCE)
        produce(1000)
        self._equal(1500)
        ingest(0, 1).wait(_PATIENCE)
        ingest(1, 0).wait(_PATIENCE)
        found = [_rows(lake / "lake" / "messages") for lake in lakes]
        self.assertEqual([row[2] for row in found[0]], [b"%d" % number for number in range(1500)])
        self.assertEqual(found[0], found[1])

    def test_deadLetters(self) -> None:
        """Dead letters are there once, or the message still is, if an owner dies while it moves them."""
        self.nodes("--redelivery", "0.2", "--max-deliveries", "2")
        ids = [b"d%d" % number for number in range(40)]
        produces = b"".join(b"PRODUCE:%b:::q:::%b\n" % (id, id) for id in ids)
        self.assertEqual(self.say(self.owner(), produces, len(ids)), ids)
        for _ in range(4):
            owner = self.owner()
            self.say(owner, b"CONSUME:q\n" * 15, 15)
            time.sleep(0.3)
            owner.stop(signal.SIGKILL)
            self.again(owner)
        owner = self.owner()
        found: Counter[bytes] = Counter()
        limit = time.monotonic() + 300
        while found.keys() != set(ids) and time.monotonic() < limit:
            lines = self.say(owner, b"CONSUME:q\n" * 40 + b"CONSUME:$dead/q\n" * 40, 80)
            got = [line.split(b":")[0] for line in lines if line != b"NO_MSG"]
            found.update(got)
            self.say(owner, b"".join(b"ACK:%b\n" % id for id in got) + b"CONSUME:none\n", 1)
            time.sleep(0.2)
        self.assertEqual(found, Counter(ids))

    def test_sameId(self) -> None:
        """Of two messages with the same id, handed out by two nodes, an ACK removes one, also for the next owner."""
        self.nodes("--redelivery", "2", "--allow-anonymous")
        owner = self.owner()
        other = self.standby()
        self.assertEqual(self.say(owner, b"PRODUCE:x:::q:::1\nPRODUCE:x:::r:::2\n", 2), [b"x", b"x"])
        self.assertTrue(self.say(owner, b"CONSUME:q\n", 1)[0].startswith(b"x:::q"))
        self.assertTrue(self.say(other, b"CONSUME:r\n", 1)[0].startswith(b"x:::r"))
        self.assertEqual(self.say(other, b"ACK:x\nCONSUME:none\n", 1), [b"NO_MSG"])
        time.sleep(3)
        both = b"CONSUME:q\nCONSUME:r\n"
        self.assertEqual(self.say(other, both, 2).count(b"NO_MSG"), 1)
        owner.stop(signal.SIGKILL)
        self.owner(owner)
        time.sleep(3)
        self.assertEqual(self.say(other, both, 2).count(b"NO_MSG"), 1)


def _rows(lake: Path) -> list[tuple[Any, ...]]:
    """Return the rows of a lake, by offset."""
    import pyarrow.dataset as ds

    table = ds.dataset(str(lake), format="parquet").to_table(columns=["offset", "topic", "value", "timestamp"])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def _rest(connection: socket.socket) -> bytes:
    """Return all that arrives until the connection ends."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(4096):
            said += more
    return said
