"""The copies that three real NATS servers have of the stream and of the keys, as operators see them."""

import asyncio
import contextlib
import io
import json
import signal
import tempfile
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
from fleximq.client.blocking import connect
from tests.broker_process import BrokerProcess
from tests.cluster.nats.servers import MISSING, Servers
from tests.nightly import nightly

_PATIENCE = 300.0


@nightly
class CopiesTests(SynchronousTestCase):
    """Two nodes, at first with the URL of one server."""

    if MISSING:
        skip = MISSING

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=".")).absolute()
        self.servers = Servers(str(self.folder / "nats"), 3)
        self.addCleanup(self.servers.end)
        self.servers.wait()
        self.brokers: dict[str, BrokerProcess] = {}

    def start(self, name: str, servers: int, room: str) -> None:
        """Start a node, which names so many servers."""
        words = ["--node", name, "--journal", f"{self.folder}/{name}", "--durable", "#", "--allow-anonymous"]
        words += [
            "--cluster-bytes",
            room,
            "--listen",
            "tcp:0:interface=127.0.0.1",
            "--http",
            "tcp:0:interface=127.0.0.1",
        ]
        broker = self.brokers[name] = BrokerProcess(*words, *self.options(servers))
        broker.start()
        self.addCleanup(broker.stop)

    def options(self, servers: int = 3) -> list[str]:
        """Return the options for so many servers."""
        return [word for url in self.servers.urls[:servers] for word in ("--cluster", url)]

    def command(self, *words: str) -> tuple[int, str]:
        """Run a command of the cluster; return its exit code and what it prints."""
        with contextlib.redirect_stdout(io.StringIO()) as written, contextlib.redirect_stderr(written):
            try:
                code = main(["cluster", *words, *self.options()])
            except SystemExit as error:
                return 1, str(error)
        return code or 0, written.getvalue()

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + _PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), end, self.command("status"))
            time.sleep(0.2)

    def isWell(self) -> bool:
        """Whether status ends without a warning, and there is an owner."""
        code, written = self.command("status")
        return code == 0 and "owning" in written

    def page(self, name: str, path: str) -> tuple[int, str]:
        """Return what a node answers over HTTP."""
        connection = HTTPConnection("127.0.0.1", self.brokers[name].port(1), timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def copies(self, name: str) -> str:
        """Return how many copies there are by the metrics of a node."""
        lines = self.page(name, "/metrics")[1].splitlines()
        return " ".join(line.split()[1] for line in lines if line.startswith("fleximq_cluster_replicas"))

    def test_copies(self) -> None:
        """Nodes that name more servers later, and a larger limit, change the stream; a server that fails is missed in
        status, metrics and the reasons of health, which say again that all is well when it is back.
        """
        self.start("a", 1, "64MiB")
        self.until(lambda: "owning" in self.command("status")[1])
        code, written = self.command("status")
        self.assertEqual(code, 2)
        self.assertIn("shard 0 has 1 of 3 copies on the NATS servers, since it was made with 1", written)
        with connect(f"127.0.0.1:{self.brokers['a'].port()}", timeout=60) as client:
            client.publish("t", 1)
        self.brokers["a"].stop()
        for name in "ab":
            self.start(name, 3, "128MiB")
        self.until(self.isWell)
        found = json.loads(self.command("status", "--json")[1])
        # A copy that was current may lag for a moment.
        self.assertEqual({(each["wanted"], each["made"]) for each in found["replicas"].values()}, {(3, 3)})
        self.assertEqual(found["shards"][0]["limit"], 128 << 20)
        for index in range(3):
            self.miss(index)

    def miss(self, index: int) -> None:
        """Kill a server, look, and start it again."""
        self.servers.kill(index)
        # Also while the servers elect, nothing that cannot be read is said to be missing.
        seen: list[tuple[int, str]] = []

        def look() -> bool:
            seen.append(self.command("status"))
            return self.isMissed(*seen[-1])

        self.until(look)
        for code, written in seen:
            self.assertIn(code, (0, 2), written)
            self.assertNotIn("no node has joined", written)
            self.assertRegex(written, "owned by|do not answer|cannot be read")
        self.until(lambda: [self.copies(name) for name in "ab"] == ["2.0 3.0"] * 2)
        for name in "ab":
            said = "shard 0 has 2 of 3 copies on the NATS servers, the others are missing or behind"
            # Each leader notices it at a time of its own.
            self.until(lambda name=name, said=said: said in self.page(name, "/readyz")[1])  # type: ignore[misc]
            self.assertEqual(self.page(name, "/readyz")[0], 200)
        self.servers.restart(index)
        self.until(self.isWell)
        self.until(lambda: [self.copies(name) for name in "ab"] == ["3.0 3.0"] * 2)

    def isMissed(self, code: int, written: str) -> bool:
        """Whether a status says all about the servers that are left."""
        return code == 2 and "shard 0 has 2 of 3" in written and "keys has 2 of 3" in written and "owning" in written

    def test_lastKnown(self) -> None:
        """While two servers of three are dead, status shows the last known states with their age, and those of nodes
        that answer; it never says that there are no nodes. Other commands say why they cannot work.
        """
        self.begin()
        for index in (0, 1):
            self.servers.kill(index)
        end, seen = time.monotonic() + 60, 0
        while time.monotonic() < end:
            code, written = self.command("status", "--json")
            self.assertEqual(code, 2, written)
            found = json.loads(written)
            self.assertNotIn("no node has joined", written)
            self.assertEqual([row["node"] for row in found["nodes"]], ["a", "b"], written)
            if found["isOld"]:
                seen += 1
                self.assertIn("the keys of the nodes cannot be read, the last are", written)
                self.assertEqual({row["last"] for row in found["nodes"]} - {"owning", "following", "fencing"}, set())
                self.assertTrue(any(row["silent"] for row in found["nodes"]), written)
            if seen == 2:
                break
        self.assertEqual(seen, 2)
        self.brokers["b"].stop(signal.SIGKILL)
        found = json.loads(self.command("status", "--json")[1])
        self.assertEqual(found["nodes"][1]["state"], "unknown")
        self.assertIn("they elect leaders, or too few of them run", self.command("forget", "b")[1])

    def test_election(self) -> None:
        """Right after the server that leads the keys stops answering, a node that runs is not forgotten, and a shard is
        moved.
        """
        self.begin()
        for attempt in range(3):
            owner, other = sorted("ab", key=lambda name: f" {name} " not in self.line("owning"))
            index = self.leader()
            self.servers.pause(index)
            said = self.command("forget", owner)
            self.assertEqual(said, (1, f"fleximq cluster forget: {owner} runs; stop its broker first"), attempt)
            self.servers.resume(index)
            self.until(self.isWell)
            self.servers.pause(index := self.leader())
            code, written = self.command("move", "0", other)
            self.assertEqual((code, written.split(",")[0]), (0, f"{other} owns shard 0 in term {attempt + 2}"), written)
            self.brokers[owner].wait()
            self.start(owner, 3, "64MiB")
            self.servers.resume(index)
            self.until(self.isWell)

    def begin(self) -> None:
        """Start two nodes. As many as servers would begin by themselves."""
        for name in "ab":
            self.start(name, 3, "64MiB")
        self.until(lambda: self.command("refill", "0", "--new")[0] == 0)
        self.until(self.isWell)

    def line(self, state: str) -> str:
        """Return the line of the node in a state."""
        return next(line for line in self.command("status")[1].splitlines() if f" {state} " in line)

    def leader(self) -> int:
        """Return the number of the server that leads the keys."""

        async def ask() -> str:
            import nats

            client = await nats.connect(self.servers.urls)
            try:
                found: Any = await client.jetstream().stream_info("KV_fleximq")
                return str(found.cluster.leader)
            finally:
                await client.close()

        return int(asyncio.run(ask()).removeprefix("s"))

    def test_forget(self) -> None:
        """A node that was stopped is warned of until it is forgotten; one that runs is not forgotten."""
        self.begin()
        self.assertIn("b runs; stop its broker first", self.command("forget", "b")[1])
        self.brokers["b"].stop()
        self.until(lambda: "b is silent for" in self.command("status")[1])
        self.assertEqual(self.command("forget", "b"), (0, "b is forgotten\n"))
        self.until(self.isWell)
        self.assertNotIn(" b ", self.command("status")[1])
