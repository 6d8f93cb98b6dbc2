"""Three NATS servers lose their streams, or have flipped bits in their files; all is restored from copies."""

import asyncio
import contextlib
import io
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
from fleximq.client.blocking import connect
from tests.broker_process import BrokerProcess
from tests.cluster.nats.servers import MISSING, Servers
from tests.nightly import nightly

#: Messages and their bytes: two blocks of a stream.
_MESSAGES, _BYTES = 30_000, 400


@nightly
class LostStreamTests(SynchronousTestCase):
    """Three servers, and three brokers with all topics durable."""

    if MISSING:
        skip = MISSING

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=".")).absolute()
        self.servers = Servers(str(self.folder / "nats"), 3)
        self.addCleanup(self.servers.end)
        self.servers.wait()
        self.options = [word for url in self.servers.urls for word in ("--cluster", url)]
        self.brokers: dict[str, BrokerProcess] = {}
        self.addCleanup(self.stop, signal.SIGKILL)
        for name in "abc":
            self.start(name)
        with connect(self.url(self.owner()), timeout=60) as client:
            for begin in range(0, _MESSAGES, 500):
                payloads = [b"%d " % number + random.randbytes(_BYTES) for number in range(begin, begin + 500)]
                client.publish_many("t", payloads)
                client.flush()
        self.until(lambda: self.status().count("following") == 2)
        self.stop(signal.SIGTERM)
        self.servers.end()

    def start(self, name: str) -> None:
        """Start a node, or start it again when its process has ended."""
        words = ("--allow-anonymous", "--cluster-bytes", "64MiB", "--durable", "#", "--journal-segment", "1MiB")
        broker = BrokerProcess(*self.options, *words, "--node", name, "--journal", str(self.folder / name))
        broker.start()
        self.brokers[name] = broker

    def stop(self, number: int) -> None:
        """Stop all nodes."""
        for broker in self.brokers.values():
            broker.stop(number)
        self.brokers.clear()

    def url(self, name: str) -> str:
        """Return the address of a node."""
        return f"tcp://127.0.0.1:{self.brokers[name].port()}"

    def command(self, *words: str) -> str:
        """Run a command of a cluster; return what it prints, or why it fails."""
        with contextlib.redirect_stdout(io.StringIO()) as written, contextlib.redirect_stderr(written):
            try:
                main(["cluster", *words, *self.options])
            except SystemExit as error:
                return str(error)
        return written.getvalue()

    def status(self) -> str:
        """Return the cluster's status."""
        return self.command("status")

    def until(self, holds: Callable[[], object], seconds: float = 90.0) -> None:
        """Wait until a function returns something true."""
        end = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), end, [each.output[-2000:] for each in self.brokers.values()])
            time.sleep(0.2)

    def owner(self) -> str:
        """Return the node that owns the shard, when one does."""

        def found() -> list[str]:
            if "has less than the copy" in (status := self.status()):
                self.command("refill", "0")
            return [name for name in self.brokers if f" {name}      owning" in status]

        self.until(found)
        return found()[0]

    def serve(self) -> None:
        """Start the servers again."""
        for index in range(3):
            self.servers.restart(index)
        self.servers.wait()

    def check(self, node: str) -> None:
        """Check that a node delivers everything, once, in order."""
        with connect(self.url(node), timeout=60) as client, client.subscribe("t", from_="first") as got:
            for number in range(_MESSAGES):
                message = got.next(timeout=30)
                self.assertEqual(message and int(message.value.split()[0]), number)

    def test_lost(self) -> None:
        """Where all streams and keys are lost, a node with an empty folder that starts first waits for the others."""
        for index in range(3):
            shutil.rmtree(self.folder / "nats" / f"s{index}")
        shutil.rmtree(self.folder / "a")
        self.serve()
        self.start("a")
        self.brokers["a"].waitForOutput("does not take shard 0: a new cluster begins with 3")
        self.start("b")
        self.start("c")
        self.until(lambda: "has all of it" in self.command("refill", "0"))
        self.check(self.owner())
        self.until(lambda: self.status().count("following") == 2)

    def test_flippedBits(self) -> None:
        """Flipped bits in the files of a server that leads the stream later lose nothing: the owner says so, and the
        stream has everything again after a command.
        """
        for seed in range(2):
            chosen = random.Random(seed)
            for path in sorted((self.folder / "nats" / "s0").glob("jetstream/*/streams/fleximq-0/msgs/*.blk")):
                data = bytearray(path.read_bytes())
                for _ in range(5):
                    data[chosen.randrange(len(data) * 3 // 4)] ^= 1 << chosen.randrange(8)
                path.write_bytes(data)
            if seed % 2:
                for path in (self.folder / "nats" / "s0").glob("jetstream/*/streams/fleximq-0/msgs/index.db"):
                    path.unlink()
            self.serve()
            for name in "abc":
                self.start(name)
            self.check(self.owner())
            self.heal()
            self.check(self.owner())
            self.stop(signal.SIGTERM)
            self.servers.end()

    def heal(self) -> None:
        """Let the damaged server lead, and write the stream again if the owner notices a loss; NATS may restore it."""
        former = self.owner()
        broker = self.brokers[former]
        end = time.monotonic() + 300
        self.until(lambda: self.lead() and ("has lost" in broker.output or time.monotonic() > end))
        if "has lost" not in broker.output:
            return
        follower = next(name for name in "abc" if name != former)
        self.assertIn("has all of it", self.command("refill", "0", "--from", follower))
        self.assertEqual(broker.wait(), 75)
        self.start(former)
        self.until(lambda: self.status().count("following") == 2 and "lost" not in self.status())

    def lead(self) -> bool:
        """Ask the servers to let the first one lead the stream."""
        import nats

        async def ask() -> None:
            with contextlib.suppress(nats.errors.Error, OSError):
                client = await nats.connect(self.servers.urls)
                subject = "$JS.API.STREAM.LEADER.STEPDOWN.fleximq-0"
                info = await client.jetstream().stream_info("fleximq-0")
                if info.cluster and info.cluster.leader != "s0":
                    await client.request(subject, b'{"placement": {"preferred": "s0"}}', timeout=5)
                await client.close()

        asyncio.run(ask())
        return True
