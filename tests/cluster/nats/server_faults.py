"""NATS servers die, stand still, lead no more, and lose their stores or get older ones."""

import shutil
import signal
import time
from collections.abc import Callable

from tests.cluster.nats.faults import FaultyHosts, fault
from tests.cluster.nats.namespaces import HOSTS


class ServerFaults(FaultyHosts):
    """The faults of servers, and of their disks."""

    @fault
    def killServer(self) -> None:
        """A nats-server dies, and is away for a while."""
        server = self.servers[self.random.choice(HOSTS)]
        server.down()
        self.sleep(1, 20)

    @fault
    def killLeader(self) -> None:
        """The nats-server that leads stream, keys and servers dies: the owner stays the same."""
        self.wait(self.isSettled, 60)
        host, term = self.gatherLeaders(), self.term
        if not host:
            self.notes["leaders were not on one server"] += 1
            return
        self.servers[host].down()
        self.sleep(10, 20)
        self.notes["owner changed" if self.term > term else "owner unchanged"] += 1

    @fault
    def stopServer(self) -> None:
        """A nats-server is stopped, and goes on."""
        self.servers[self.random.choice(HOSTS)].send(signal.SIGSTOP)
        self.sleep(5, 20)

    @fault
    def stopLeader(self) -> None:
        """The nats-server that leads the stream is stopped, and goes on."""
        self.servers[self.leader() or "a"].send(signal.SIGSTOP)
        self.sleep(5, 20)

    @fault
    def killTwoServers(self) -> None:
        """Two nats-servers die: there is no majority."""
        for host in self.random.sample(HOSTS, 2):
            self.servers[host].down()
        self.sleep(2, 25)

    @fault
    def killServers(self) -> None:
        """All nats-servers die at once."""
        for server in self.servers.values():
            server.send(signal.SIGKILL)
        time.sleep(1)

    @fault
    def endServers(self) -> None:
        """One nats-server after the other is stopped in order, as for a new version."""
        for server in self.servers.values():
            server.down(signal.SIGTERM)
            server.held = False
            self.sleep(3, 8)

    @fault
    def emptyServer(self) -> None:
        """A nats-server returns with an empty disk."""
        host = self.random.choice(HOSTS)
        self.servers[host].down()
        shutil.rmtree(self.store(host))

    @fault
    def damagedServer(self) -> None:
        """A nats-server that does not lead the stream returns with flipped bits in its files."""
        host = self.random.choice([host for host in HOSTS if host != self.leader()])
        self.servers[host].down()
        for path in sorted(self.store(host).glob("jetstream/*/streams/fleximq-0/msgs/*.blk")):
            data = bytearray(path.read_bytes())
            for _ in range(3):
                data[self.random.randrange(len(data))] ^= 1
            path.write_bytes(data)

    @fault
    def changeLeaders(self) -> None:
        """Other servers lead the stream, the keys, and the servers."""
        for stream in ("fleximq-0", "KV_fleximq", ""):
            self.stepDown(stream)
            time.sleep(1)

    @fault
    def setBack(self) -> None:
        """The stores of all nats-servers are set back while the brokers run; an operator refills the stream."""
        self._store("kept")
        self.sleep(3, 10)
        self._store("put back")
        self._refilled()

    @fault
    def setBackAndTakeover(self) -> None:
        """The stores are set back, and the owner dies while the servers are away."""
        self._store("kept")
        self.sleep(3, 10)
        self._store("put back", lambda: self.brokers[self.owner].send(signal.SIGKILL))
        self._refilled()

    def _store(self, what: str, between: Callable[[], object] = lambda: None) -> None:
        """Keep all stores of the servers, or put them back, while these are down."""
        for server in self.servers.values():
            server.down()
        between()
        for host in HOSTS:
            kept = self.folder / f"kept-{host}"
            source, target = (self.store(host), kept) if what == "kept" else (kept, self.store(host))
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
        for server in self.servers.values():
            server.held = False

    def _refilled(self) -> None:
        """Refill the stream until all nodes serve again."""

        time.sleep(5)  # each node compares once a second
        if not self.wait(lambda: "no living node has more" in self.operate("refill", "0") and self.isSettled(), 120):
            self.broken.append(f"a stream that was set back is not refilled within 120 s: {self.states()}")
