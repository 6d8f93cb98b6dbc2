"""Three hosts in network namespaces, each with a nats-server and a broker of its own address: their network is cut, and
their processes are stopped and killed, while clients publish to the brokers and consume from their queues.

``python -m tests.cluster.nats.namespaces SECONDS [SEED]`` prints what happened, as JSON, and ends with 1 if a promise
was broken. It needs the rights to make namespaces (:func:`missing`), and leaves nothing outside of them.

Clients reach every broker at any time: an owner that is cut off from the others can still be asked. A cut drops packets
in silence: the sender's neighbour table gets an address that no interface has.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

from tests.cluster.nats.servers import MISSING, PROGRAM

HOSTS = ("a", "b", "c")
NOWHERE = "02:00:00:00:00:01"
_CONFIG = """
server_name: {name}
listen: "{address}:4222"
http: "{address}:8222"
jetstream {{ store_dir: "{folder}", sync_interval: always }}
cluster {{ name: test, listen: "{address}:6222", routes: [{routes}], ping_interval: "1s", ping_max: 2 }}
"""
#: Seconds that a client waits for an answer.
_PATIENCE = 5.0


def missing() -> str:
    """Return why the campaign cannot run here; "" if it can."""
    if MISSING:
        return MISSING
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "needs unshare and ip"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "ip", "link", "add", "try", "type", "bridge"], capture_output=True
    )
    return "" if tried.returncode == 0 else "network namespaces are not permitted here"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """A bridge with a namespace for each server ("na", "nb", "nc") and each broker ("ba", "bb", "bc")."""

    def __init__(self) -> None:
        os.makedirs("/run/netns", exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
        self.addresses = {f"n{host}": f"10.0.0.{10 + index}" for index, host in enumerate(HOSTS)}
        self.addresses |= {f"b{host}": f"10.0.0.{20 + index}" for index, host in enumerate(HOSTS)}
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "bridge", "type", "bridge")
        _ip("addr", "add", "10.0.0.1/24", "dev", "bridge")
        _ip("link", "set", "bridge", "up")
        for place, address in self.addresses.items():
            _ip("netns", "add", place)
            _ip("link", "add", place, "type", "veth", "peer", "name", "eth0", "netns", place)
            _ip("link", "set", place, "master", "bridge", "up")
            _ip("-n", place, "addr", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                _ip("-n", place, "link", "set", interface, "up")

    def cut(self, senders: list[str], receivers: list[str]) -> None:
        """Drop all packets from some places to others, not those in the other direction."""
        for sender in senders:
            for receiver in receivers:
                address = self.addresses[receiver]
                _ip("-n", sender, "neigh", "replace", address, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")

    def heal(self) -> None:
        """End all cuts."""
        for place in self.addresses:
            _ip("-n", place, "neigh", "flush", "dev", "eth0", "nud", "permanent")


class Process:
    """A program in a namespace, which is started again when it ends, as a service manager does it.

    ``said`` is called with each line of its output, which goes to a file as well.
    """

    def __init__(self, place: str, command: list[str], log: Path, said: Callable[[str], None]) -> None:
        self._command = ["ip", "netns", "exec", place, *command]
        self._log = log
        self._said = said
        self.ends: Counter[int] = Counter()
        self.held = False
        self._ending = False
        self._start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
        )

    def _run(self) -> None:
        with self._log.open("a") as log:
            while True:
                for line in self._process.stdout or ():
                    log.write(line)
                    log.flush()
                    self._said(line)
                self.ends[self._process.wait()] += 1
                while self.held:
                    time.sleep(0.05)
                if self._ending:
                    return
                time.sleep(0.5)
                self._start()

    def send(self, number: int) -> None:
        """Send a signal."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it for good."""
        self._ending, self.held = True, False
        self.send(signal.SIGCONT)
        self.send(number)
        self._thread.join(20)
        self.send(signal.SIGKILL)
        self._thread.join(5)


class Clients:
    """Publishers and consumers of MiniMQ; ``confirmed`` has the ids of stored messages, ``taken`` of delivered ones."""

    def __init__(self, addresses: list[tuple[str, int]], seed: int) -> None:
        self._addresses = addresses
        self._random = Random(seed)
        self._stop = threading.Event()
        self._stopConsuming = threading.Event()
        self.confirmed: list[str] = []
        self.taken: Counter[str] = Counter()
        self.last = time.monotonic()
        self.gaps: list[float] = []
        self._lock = threading.Lock()
        self._publishers = [threading.Thread(target=self._publish, args=(number,)) for number in range(3)]
        self._consumers = [threading.Thread(target=self._consume, args=(number,)) for number in range(3)]
        for each in (*self._publishers, *self._consumers):
            each.start()

    @contextmanager
    def _connection(self) -> Iterator[socket.socket]:
        with socket.create_connection(self._random.choice(self._addresses), 2) as connection:
            connection.settimeout(_PATIENCE)
            yield connection

    def _publish(self, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            with suppress(OSError), self._connection() as connection:
                answers = connection.makefile("rb")
                while not self._stop.is_set():
                    ids = [f"p{number}-{count + index}" for index in range(5)]
                    count += len(ids)
                    lines = "".join(f"PRODUCE:{id}:::q{number}:::{id}\n" for id in ids)
                    connection.sendall(lines.encode())
                    for id in ids:
                        if answers.readline().decode().strip() != id:
                            raise OSError("closed, or refused")
                        self._confirm(id)
                    time.sleep(0.02)
            time.sleep(0.05)

    def _confirm(self, id: str) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self.last > 1:
                self.gaps.append(round(now - self.last, 2))
            self.last = now
            self.confirmed.append(id)

    def _consume(self, number: int) -> None:
        while not self._stopConsuming.is_set():
            with suppress(OSError), self._connection() as connection:
                answers = connection.makefile("rb")
                while not self._stopConsuming.is_set():
                    connection.sendall(f"CONSUME:q{number}\n".encode() * 50)
                    lines = [answers.readline().decode().strip() for _ in range(50)]
                    if any(line == "" or line.startswith("ERROR") for line in lines):
                        raise OSError("closed, or refused")
                    ids = [line.split(":::")[0] for line in lines if line != "NO_MSG"]
                    with self._lock:
                        self.taken.update(ids)
                    connection.sendall("".join(f"ACK:{id}\n" for id in ids).encode())
                    time.sleep(0.05)
            time.sleep(0.05)

    def stop(self, seconds: float) -> None:
        """End the publishers, and the consumers when they have taken everything, or after some seconds."""
        self._stop.set()
        for each in self._publishers:
            each.join(2 * _PATIENCE)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.taken.keys() >= set(self.confirmed):
            time.sleep(0.2)
        self._stopConsuming.set()
        for each in self._consumers:
            each.join(2 * _PATIENCE)


class Campaign:
    """Three hosts; ``counts`` has the faults, ``outages`` by fault the seconds without a confirmation."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = Random(seed)
        self.network = Network()
        self.counts: Counter[str] = Counter()
        self.outages: dict[str, list[float]] = {}
        self._terms = dict.fromkeys(HOSTS, 0)
        self._leader = "a"
        routes = ", ".join(f'"nats://{self.network.addresses["n" + host]}:6222"' for host in HOSTS)
        urls = [f"nats://{self.network.addresses['n' + host]}:4222" for host in HOSTS]
        words = [word for url in urls for word in ("--cluster", url)]
        self.servers: dict[str, Process] = {}
        self.brokers: dict[str, Process] = {}
        for host in HOSTS:
            address = self.network.addresses["n" + host]
            config = folder / f"n{host}.conf"
            config.write_text(_CONFIG.format(name=host, address=address, folder=folder / f"n{host}", routes=routes))
            command = [str(PROGRAM), "-c", str(config)]
            self.servers[host] = Process("n" + host, command, folder / f"n{host}.log", lambda line: None)
        for host in HOSTS:
            address = self.network.addresses["b" + host]
            command = [sys.executable, "-m", "fleximq", "broker", "--node", host, "--durable", "#", *words]
            command += ["--journal", str(folder / host), "--listen", f"tcp:7890:interface={address}"]
            command += ["--allow-anonymous", "--redelivery", "10", "--cluster-bytes", "2GiB"]
            self.brokers[host] = Process("b" + host, command, folder / f"b{host}.log", self._listener(host))
        self.clients = Clients([(self.network.addresses["b" + host], 7890) for host in HOSTS], seed)

    def _listener(self, host: str) -> Callable[[str], None]:
        def said(line: str) -> None:
            _, found, term = line.partition("this node owns shard 0 in term ")
            if found:
                self._terms[host] = int(term)

        return said

    @property
    def owner(self) -> str:
        """The host whose broker has owned the shard last."""
        return max(HOSTS, key=lambda host: self._terms[host])

    def run(self, seconds: float) -> None:
        """Disturb for some time."""
        self.flows(120)
        self.clients.gaps.clear()
        end = time.monotonic() + seconds
        faults: list[Callable[[], None]] = []
        while time.monotonic() < end:
            if not faults:
                faults = [
                    self.killBroker, self.killBroker, self.killHost, self.stopBroker, self.stopServer, self.cutOwner,
                    self.cutStandby, self.cutAll, self.oneWayOut, self.oneWayIn, self.cutBroker, self.cutServer,
                ]  # fmt: skip
                self.random.shuffle(faults)
            fault = faults.pop()
            self.counts[fault.__name__] += 1
            confirmed = len(self.clients.gaps)
            fault()
            self.heal()
            self.flows(90)
            time.sleep(self.random.uniform(1, 4))
            longest = max(self.clients.gaps[confirmed:], default=0.0)
            self.outages.setdefault(fault.__name__, []).append(longest)

    def flows(self, seconds: float) -> None:
        """Wait until messages are confirmed.

        :raises AssertionError: none is, in this time.
        """
        before, end = len(self.clients.confirmed), time.monotonic() + seconds
        while len(self.clients.confirmed) <= before:
            if time.monotonic() > end:
                raise AssertionError(f"nothing was confirmed for {seconds} s; the logs are in {self.folder}")
            time.sleep(0.05)

    def heal(self) -> None:
        """End all faults."""
        self.network.heal()
        for process in (*self.servers.values(), *self.brokers.values()):
            process.held = False
            process.send(signal.SIGCONT)

    # -- faults ------------------------------------------------------------------------------------

    def killBroker(self) -> None:
        """The owner dies."""
        self.brokers[self.owner].send(signal.SIGKILL)
        time.sleep(1)

    def killHost(self) -> None:
        """The owner's machine dies."""
        host = self.owner
        for process in (self.brokers[host], self.servers[host]):
            process.held = True
            process.send(signal.SIGKILL)
        time.sleep(self.random.uniform(5, 15))

    def stopBroker(self) -> None:
        """The owner's process is stopped, and goes on."""
        self.brokers[self.owner].send(signal.SIGSTOP)
        time.sleep(self.random.uniform(10, 30))

    def stopServer(self) -> None:
        """A nats-server is stopped, and goes on."""
        self.servers[self.random.choice(HOSTS)].send(signal.SIGSTOP)
        time.sleep(self.random.uniform(5, 20))

    def _others(self, *hosts: str) -> list[str]:
        return [place for place in self.network.addresses if place[1] not in hosts]

    def _cutHost(self, host: str) -> None:
        own, others = ["n" + host, "b" + host], self._others(host)
        self.network.cut(own, others)
        self.network.cut(others, own)

    def cutOwner(self) -> None:
        """The owner's machine is cut off: a minority."""
        self._cutHost(self.owner)
        time.sleep(self.random.uniform(5, 20))

    def cutStandby(self) -> None:
        """Another machine is cut off: the owner is in the majority."""
        self._cutHost(self.random.choice([host for host in HOSTS if host != self.owner]))
        time.sleep(self.random.uniform(5, 20))

    def cutAll(self) -> None:
        """All machines are cut off from one another: nobody has the majority."""
        for host in HOSTS:
            self.network.cut(["n" + host, "b" + host], self._others(host))
        time.sleep(self.random.uniform(5, 15))

    def oneWayOut(self) -> None:
        """Nothing from the owner's machine arrives at the others."""
        host = self.owner
        self.network.cut(["n" + host, "b" + host], self._others(host))
        time.sleep(self.random.uniform(5, 20))

    def oneWayIn(self) -> None:
        """Nothing from the others arrives at the owner's machine."""
        host = self.owner
        self.network.cut(self._others(host), ["n" + host, "b" + host])
        time.sleep(self.random.uniform(5, 20))

    def cutBroker(self) -> None:
        """The owner is cut off from all nats-servers."""
        servers = ["n" + host for host in HOSTS]
        self.network.cut(["b" + self.owner], servers)
        self.network.cut(servers, ["b" + self.owner])
        time.sleep(self.random.uniform(5, 20))

    def cutServer(self) -> None:
        """A nats-server is cut off from everything."""
        own = "n" + self.random.choice(HOSTS)
        others = [place for place in self.network.addresses if place != own]
        self.network.cut([own], others)
        self.network.cut(others, [own])
        time.sleep(self.random.uniform(5, 20))

    # -- checking ----------------------------------------------------------------------------------

    def finish(self) -> list[str]:
        """Stop everything in order, and return the broken promises."""
        from fleximq import reader

        self.heal()
        self.clients.stop(120)
        end = time.monotonic() + 300
        while time.monotonic() < end and len({reader.bounds(self.folder / host).next for host in HOSTS}) > 1:
            time.sleep(0.5)
        time.sleep(2)
        self.end()
        broken = []
        confirmed = Counter(self.clients.confirmed)
        missed = confirmed.keys() - self.clients.taken.keys()
        if missed:
            broken.append(f"{len(missed)} confirmed messages were never delivered: {sorted(missed)[:5]}")
        copies = []
        for host in HOSTS:
            rows = [
                (row["offset"], row["topic"], bytes(row["value"]), row["timestamp"])
                for batch in reader.read(self.folder / host, columns=["offset", "topic", "value", "timestamp"])
                for row in batch.to_pylist()
            ]
            stored = Counter(value.decode() for _, _, value, _ in rows)
            lost = confirmed.keys() - stored.keys()
            twice = [value for value, number in stored.items() if number > 1]
            offsets = [offset for offset, _, _, _ in rows]
            if lost:
                broken.append(f"{host} lacks {len(lost)} confirmed messages: {sorted(lost)[:5]}")
            if twice:
                broken.append(f"{host} has {len(twice)} messages twice: {sorted(twice)[:5]}")
            if offsets != sorted(set(offsets)):
                broken.append(f"{host} has an offset twice, or out of order")
            if [time for _, _, _, time in rows] != sorted(time for _, _, _, time in rows):
                broken.append(f"in {host} times go back")
            copies.append(rows)
        if any(copy != copies[0] for copy in copies):
            broken.append("the copies differ")
        return broken

    def end(self) -> None:
        """End all processes."""
        for process in (*self.brokers.values(), *self.servers.values()):
            process.end()

    def report(self) -> dict[str, object]:
        """Return what happened."""
        longest = sorted(each for outages in self.outages.values() for each in outages)
        return {
            "confirmed": len(self.clients.confirmed),
            "deliveries": self.clients.taken.total(),
            "faults": dict(self.counts),
            "outages": {name: sorted(outages) for name, outages in self.outages.items()},
            "p50": longest[len(longest) // 2] if longest else 0,
            "longest": longest[-1] if longest else 0,
            "ends": {host: dict(process.ends) for host, process in self.brokers.items()},
        }


def main(arguments: list[str]) -> int:
    """Run one campaign, in namespaces of its own."""
    if "inside" not in arguments:
        words = [sys.executable, "-m", __spec__.name, *arguments, "inside"]
        return subprocess.run(["unshare", "--net", "--mount", *words]).returncode
    folder = Path(tempfile.mkdtemp(prefix="namespaces-"))
    with ExitStack() as ending:
        campaign = Campaign(folder, int(arguments[1]) if len(arguments) > 2 else 0)
        ending.callback(campaign.end)
        try:
            campaign.run(float(arguments[0]))
            failure = []
        except AssertionError as error:
            failure = [str(error)]
        broken = failure + campaign.finish()
    print(json.dumps(campaign.report() | {"broken": broken}))
    if not broken:
        shutil.rmtree(folder)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
