"""Three real servers and three brokers, which are started again when they have lost the journal."""

import asyncio
import contextlib
import io
import json
import re
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
from tests.broker_process import BrokerProcess
from tests.cluster.nats.servers import MISSING, Servers

#: The exit code of a node that lost the journal; its service manager starts it again.
LOST = 75
_LEADS = re.compile(r"] (\S+ \S+) \[INF\] Self is new JetStream cluster metadata leader")


class ClusterCase(SynchronousTestCase):
    """``options`` are those of all nodes, ``sync`` when the servers do so; ``brokers`` are those that run, by name."""

    if MISSING:
        skip = MISSING

    options: tuple[str, ...] = ("--allow-anonymous", "--cluster-bytes", "64MiB", "--durable", "#")
    sync = "always"

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=".")).absolute()
        self.servers = Servers(str(self.folder / "nats"), 3, sync=self.sync)
        self.addCleanup(self.servers.end)
        self.servers.wait()
        self.urls = [word for url in self.servers.urls for word in ("--cluster", url)]
        self.brokers: dict[str, BrokerProcess] = {}
        self.addCleanup(self.stop, signal.SIGKILL)

    def start(self, *names: str) -> None:
        """Start nodes, or start them again when their processes have ended."""
        for name in names:
            words = (*self.urls, *self.options, "--node", name, "--journal", str(self.folder / name))
            broker = self.brokers[name] = BrokerProcess(*words)
            broker.start()

    def stop(self, number: int, *names: str) -> None:
        """Stop some nodes, or all of them."""
        for name in names or tuple(self.brokers):
            self.brokers.pop(name).stop(number)

    def serve(self) -> None:
        """Start the servers again."""
        for index in range(3):
            self.servers.restart(index)
        self.servers.wait()

    def tend(self) -> None:
        """Start the nodes again that have ended because they lost the journal, as a service manager does."""
        for name, broker in list(self.brokers.items()):
            if broker.hasEnded(0):
                self.assertEqual(broker.wait(), LOST, broker.output[-2000:])
                broker.stop()
                self.start(name)

    def url(self, name: str) -> str:
        """Return the address of a node."""
        broker = self.brokers[name]
        broker.waitFor(lambda: broker.listeners, "its listener")
        return f"tcp://127.0.0.1:{broker.port()}"

    def command(self, *words: str) -> str:
        """Run a command of a cluster; return what it prints, or why it fails."""
        with contextlib.redirect_stdout(io.StringIO()) as written, contextlib.redirect_stderr(written):
            try:
                main(["cluster", *words, *self.urls])
            except SystemExit as error:
                return f"{written.getvalue()}{error}"
        return written.getvalue()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the nodes, as ``status`` has them; none if it cannot tell."""
        try:
            found: list[dict[str, Any]] = json.loads(self.command("status", "--json").splitlines()[0])["nodes"]
        except (ValueError, IndexError):
            return []
        return found

    def nodes(self) -> dict[str, str]:
        """Return the states of the nodes."""
        return {row["node"]: row["state"] for row in self.rows()}

    def until(self, holds: Callable[[], object], seconds: float = 90.0) -> None:
        """Wait until a function returns something true."""
        end = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), end, [each.output[-2000:] for each in self.brokers.values()])
            self.tend()
            time.sleep(0.2)

    def owner(self) -> str:
        """Return the node that owns the shard, when one does."""
        found: list[str] = []

        def owns() -> list[str]:
            found[:] = [name for name, state in self.nodes().items() if state == "owning" and name in self.brokers]
            return found

        self.until(owns)
        return found[0]

    def isSettled(self) -> bool:
        """Whether one node owns the shard, and all others that run follow it, and have all of it but a little."""
        rows = [row for row in self.rows() if row["node"] in self.brokers]
        isClose = all(row.get("behind", 0) in range(100) for row in rows)  # None: unknown
        return isClose and sorted(row["state"] for row in rows) == [*["following"] * (len(self.brokers) - 1), "owning"]

    # -- leaders -----------------------------------------------------------------------------------

    def metaLeader(self) -> str:
        """Return the name of the server that leads the servers, by their logs; the last one that said so."""
        said = []
        for index in range(3):
            found = _LEADS.findall((self.folder / "nats" / f"s{index}.log").read_text())
            said += [(moment, f"s{index}") for moment in found[-1:]]
        return max(said)[1] if said else ""

    def leads(self, server: str) -> bool:
        """Ask for a server to lead the stream and the keys; return whether it does."""
        import nats

        async def ask() -> bool:
            client = await nats.connect(self.servers.urls, max_reconnect_attempts=1)
            try:
                leaders = []
                for stream in ("fleximq-0", "KV_fleximq"):
                    info: Any = await client.jetstream().stream_info(stream)
                    leaders.append(info.cluster.leader)
                    if leaders[-1] != server:
                        place = json.dumps({"placement": {"preferred": server}}).encode()
                        await client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", place, timeout=5)
                return leaders == [server] * 2
            finally:
                await client.close()

        with contextlib.suppress(nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError):
            return asyncio.run(ask())
        return False
