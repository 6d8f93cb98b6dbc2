"""Three hosts of a cluster, each with a nats-server and a broker of its own address; what operators do there."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.cluster.nats.namespaces import FURTHER, HOSTS, Network, Process
from tests.cluster.nats.servers import PROGRAM

#: The ports of a broker: any dialect, forwarded by a standby; FlexiMQ, served in the mesh; its pages.
PORT, MESH_PORT, HTTP_PORT = 7890, 7893, 9090
#: The durable topics; what else is published travels in the mesh.
DURABLE = ("q0", "q1", "q2", "blipmq", "fleximq", "sink")
#: The bytes of a host's disk, and those of the stream at first.
_DISK, ROOM = 1 << 30, 1 << 30
#: Seconds of one look, after which this machine stood still.
_STILL = 3.0

_CONFIG = """
server_name: {name}
listen: "{address}:4222"
http: "{address}:8222"
jetstream {{ store_dir: "{folder}", sync_interval: always }}
accounts {{
  $SYS {{ users: [{{ user: "system", password: "system" }}] }}
  CLUSTER {{ jetstream: enabled, users: [{{ user: "cluster", password: "cluster" }}] }}
}}
no_auth_user: "cluster"
cluster {{ name: test, listen: "{address}:6222", routes: [{routes}], ping_interval: "1s", ping_max: 2 }}
"""


class Hosts:
    """The hosts; the journals are on disks in memory, so that one can be full."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = Random(seed)
        self.network = Network()
        self.room = ROOM
        self._terms = dict.fromkeys((*HOSTS, FURTHER), 0)
        address = self.network.addresses
        routes = ", ".join(f'"nats://{address["n" + host]}:6222"' for host in HOSTS)
        self.urls = [f"nats://{address['n' + host]}:4222" for host in HOSTS]
        self.servers: dict[str, Process] = {}
        self.brokers: dict[str, Process] = {}
        for host in HOSTS:
            config = folder / f"n{host}.conf"
            config.write_text(_CONFIG.format(
                name=host, address=address["n" + host], folder=self.store(host), routes=routes
            ))  # fmt: skip
            command = [str(PROGRAM), "-c", str(config)]
            self.servers[host] = Process("n" + host, command, folder / f"n{host}.log", lambda line: None)
        for host in (*HOSTS, FURTHER):
            (folder / host).mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "none", str(folder / host)], check=True)
        for host in HOSTS:
            self.join(host)

    def join(self, host: str) -> None:
        """Start a broker for the first time."""
        self.brokers[host] = Process(
            "b" + host, self.command(host), self.folder / f"b{host}.log", self._listener(host)
        )  # fmt: skip

    def store(self, host: str) -> Path:
        """The folder of a nats-server."""
        return self.folder / f"store-{host}"

    def journal(self, host: str) -> Path:
        """The folder of a broker's journal."""
        return self.folder / host / "journal"

    def command(self, host: str, urls: list[str] | None = None) -> list[str]:
        """Return what starts a broker."""
        at = f"interface={self.network.addresses['b' + host]}"
        words = ["--node", host, "--journal", str(self.journal(host)), "--mesh", "--allow-anonymous"]
        words += ["--listen", f"tcp:{PORT}:{at}", "--listen", f"fleximq+tcp:{MESH_PORT}:{at}"]
        words += ["--http", f"tcp:{HTTP_PORT}:{at}", "--redelivery", "10", "--cluster-bytes", str(self.room)]
        words += ["--minimq-idempotent", "--journal-segment", "16MiB"]
        words += [word for topic in DURABLE for word in ("--durable", topic)]
        words += [word for url in urls or self.urls for word in ("--cluster", url)]
        return [sys.executable, "-m", "fleximq", "broker", *words]

    def _listener(self, host: str) -> Callable[[str], None]:
        def said(line: str) -> None:
            _, found, term = line.partition("this node owns shard 0 in term ")
            if found:
                self._terms[host] = int(term)

        return said

    @property
    def owner(self) -> str:
        """The host whose broker has owned the shard last."""
        return max(self.brokers, key=lambda host: self._terms[host])

    @property
    def term(self) -> int:
        """The last term."""
        return max(self._terms.values())

    def standby(self) -> str:
        """A host of another broker than the owner."""
        return self.random.choice([host for host in HOSTS if host != self.owner])

    def url(self, port: int, *hosts: str) -> str:
        """Return the address of the brokers of some hosts, of all by default."""
        return "tcp://" + ",".join(f"{self.network.addresses['b' + host]}:{port}" for host in hosts or HOSTS)

    def wait(self, holds: Callable[[], object], seconds: float) -> bool:
        """Wait until something holds, for so many seconds; return whether it does. A machine that stands still for a
        while, with all hosts on it, takes no time.
        """
        left, last = seconds, time.monotonic()
        while not holds():
            if left < 0:
                return False
            time.sleep(0.1)
            now = time.monotonic()
            left, last = left - min(now - last, _STILL), now
        return True

    # -- asking ------------------------------------------------------------------------------------

    def operate(self, *words: str) -> str:
        """Run a command of a cluster; return what it says."""
        urls = [word for url in self.urls for word in ("--cluster", url)]
        command = [sys.executable, "-m", "fleximq.cli", "cluster", *words, *urls]
        with suppress(subprocess.TimeoutExpired):
            found = subprocess.run(command, capture_output=True, text=True, timeout=60)
            with (self.folder / "commands.log").open("a") as log:
                print(time.strftime("%H:%M:%S"), *words, found.stdout, found.stderr, file=log)
            return found.stdout + found.stderr
        return ""

    def states(self) -> dict[str, str]:
        """Return the states of the nodes, as ``status`` has them; none if it does not answer."""
        try:
            found = json.loads(self.operate("status", "--json").splitlines()[0])
        except (ValueError, IndexError):
            return {}
        return {row["node"]: row["state"] for row in found["nodes"]}

    def isSettled(self) -> bool:
        """Whether one node owns the shard, and all others follow with a small lag."""
        try:
            found = json.loads(self.operate("status", "--json").splitlines()[0])
        except (ValueError, IndexError):
            return False
        states = Counter(row["state"] for row in found["nodes"])
        isClose = all(row.get("behind", 0) in range(100) for row in found["nodes"])  # None: unknown
        return states == {"owning": 1, "following": 2} and isClose

    def isReady(self, host: str) -> bool:
        """Whether ``/readyz`` of a broker is 200."""
        with suppress(urllib.error.URLError, OSError):
            url = f"http://{self.network.addresses['b' + host]}:{HTTP_PORT}/readyz"
            return bool(urllib.request.urlopen(url, timeout=2).status == 200)
        return False

    def jetStream(self, ask: Callable[[Any], Coroutine[Any, Any, Any]], isSystem: bool = False) -> Any:
        """Run a coroutine with a connection of nats-py; return what it does, None if that failed."""
        import nats

        async def connected() -> Any:
            login = {"user": "system", "password": "system"} if isSystem else {}
            client = await nats.connect(self.urls, connect_timeout=2, max_reconnect_attempts=2, **login)
            try:
                return await ask(client)
            finally:
                await client.close()

        with suppress(nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError):
            return asyncio.run(asyncio.wait_for(connected(), 10))

    def leader(self, stream: str = "fleximq-0") -> str:
        """Return the host whose nats-server leads a stream; that of servers as a whole for ""; "" if none is known."""

        async def ask(client: Any) -> str:
            found = await client.jetstream().stream_info(stream)
            return found.cluster.leader if found.cluster else ""

        if stream:
            return self.jetStream(ask) or ""
        for host in HOSTS:
            with suppress(OSError, ValueError, KeyError):
                url = f"http://{self.network.addresses['n' + host]}:8222/jsz"
                found = json.load(urllib.request.urlopen(url, timeout=2))
                return str(found["meta_cluster"]["leader"])
        return ""

    def stepDown(self, stream: str = "fleximq-0", to: str = "") -> None:
        """Let another server lead a stream, or the servers as a whole for ""."""
        place = json.dumps({"placement": {"preferred": to}}).encode() if to else b""
        subject = f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}" if stream else "$JS.API.META.LEADER.STEPDOWN"

        async def ask(client: Any) -> None:
            await client.request(subject, place, timeout=5)

        self.jetStream(ask, isSystem=not stream)

    def gatherLeaders(self) -> str:
        """Let one server lead everything; return its host, "" if that does not succeed in time."""
        host = self.leader("")

        def gathered() -> bool:
            others = [each for each in ("fleximq-0", "KV_fleximq") if self.leader(each) != host]
            for each in others:
                self.stepDown(each, host)
            return not others and self.leader("") == host

        return host if host and self.wait(gathered, 30) else ""

    def sleep(self, least: float, most: float) -> None:
        """Sleep for a while."""
        time.sleep(self.random.uniform(least, most))

    # -- changing ----------------------------------------------------------------------------------

    def empty(self, host: str) -> None:
        """Remove the journal of a broker that is down."""
        shutil.rmtree(self.journal(host), ignore_errors=True)

    def heal(self) -> None:
        """End all cuts, and let all processes run."""
        self.network.heal()
        for process in (*self.servers.values(), *self.brokers.values()):
            process.held = False
            process.send(signal.SIGCONT)

    def end(self) -> None:
        """End all processes."""
        for process in (*self.brokers.values(), *self.servers.values()):
            process.end()
