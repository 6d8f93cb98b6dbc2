"""Operators change a cluster, and clients come early, or many at once."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from fleximq.client.blocking import connect
from fleximq.client.errors import ConnectionLost
from tests.cluster.nats.faults import FaultyHosts, fault
from tests.cluster.nats.hosts import MESH_PORT
from tests.cluster.nats.namespaces import HOSTS
from tests.conversations.clients import Ended, FlexiClient, Stream

#: Clients that come at once, at each node; and those that come early.
_MANY, _EARLY = 300, 50


class OperatorFaults(FaultyHosts):
    """Changes that operators make, and clients in unusual numbers or at unusual times."""

    @fault
    def enlarge(self) -> None:
        """The nodes are started again with a larger ``--cluster-bytes``."""
        self.room += 64 << 20
        for host in HOSTS:
            self.brokers[host].command = self.command(host)
            self.brokers[host].down(signal.SIGTERM)
            self.brokers[host].held = False
            self.wait(self.isSettled, 30)
        if not self.wait(lambda: self._made()[1] == self.room, 30):
            self.broken.append(f"the stream was not enlarged: {self._made()[1]} bytes, not {self.room}")

    @fault
    def oneCopy(self) -> None:
        """Stream and keys have one copy each, as with a single server; a node that is started again makes three."""

        async def change(client: object) -> None:
            context = client.jetstream()  # type: ignore[attr-defined]
            for stream in ("fleximq-0", "KV_fleximq"):
                found = await context.stream_info(stream)
                await context.update_stream(found.config.evolve(num_replicas=1))

        self.wait(self.isSettled, 60)
        self.jetStream(change)
        time.sleep(3)
        self.brokers[self.standby()].send(signal.SIGTERM)
        if not self.wait(lambda: self._made()[0] == 3, 60):
            self.broken.append(f"the stream has {self._made()[0]} copies, not 3")

    def _made(self) -> tuple[int, int]:
        """Return how many copies and bytes the stream has."""

        async def ask(client: object) -> tuple[int, int]:
            config = (await client.jetstream().stream_info("fleximq-0")).config  # type: ignore[attr-defined]
            return config.num_replicas, config.max_bytes

        return self.jetStream(ask) or (0, 0)

    @fault
    def refillFrom(self) -> None:
        """An operator has the stream written again from the copy of a standby."""
        self.wait(self.isSettled, 60)
        self.operate("refill", "0", "--from", self.standby())
        self.wait(self.isSettled, 60)

    @fault
    def refillTo(self) -> None:
        """An operator gives up the copy of a standby."""
        self.wait(self.isSettled, 60)
        self.operate("refill", "0", "--to", self.standby())
        self.wait(self.isSettled, 60)

    @fault
    def earlyClients(self) -> None:
        """Clients come to the listener of a mesh while its node starts, and its owner dies when it is ready: they wait
        until the node itself serves them, and then stay.
        """
        host = self.standby()
        self.brokers[host].down()
        self.brokers[host].held = False
        address, clients = (self.network.addresses["b" + host], MESH_PORT), list[FlexiClient]()
        with ExitStack() as ending:

            def come() -> bool:
                with suppress(OSError):
                    while len(clients) < _EARLY:
                        clients.append(ending.enter_context(FlexiClient(Stream(address))))
                return len(clients) == _EARLY

            self.wait(come, 30)
            self.wait(lambda: self.isReady(host), 60)
            served = [client for client in clients if _holds(client.join)]
            self.brokers[self.owner].send(signal.SIGKILL)
            self.sleep(2, 8)
            lost = sum(not _holds(client.barrier) for client in served)
            self.notes["early clients"] += len(served)
            self.notes["early clients that waited too long"] += len(clients) - len(served)
        if lost:
            self.broken.append(f"{lost} of {len(served)} early clients of {host} were lost with the owner")

    @fault
    def manyClients(self) -> None:
        """Many clients of the mesh come at once, after the owner died."""
        self.brokers[self.owner].send(signal.SIGKILL)
        time.sleep(2)
        self.notes["clients at once"] += 3 * _MANY
        for host in HOSTS:
            refused = 0
            with ExitStack() as ending:
                for _ in range(_MANY):
                    try:
                        ending.enter_context(connect(self.url(MESH_PORT, host), timeout=20))
                    except (ConnectionLost, TimeoutError, OSError):
                        self.notes["clients lost while the owner died"] += 1
                    except Exception:
                        refused += 1
            if refused:
                self.broken.append(f"{refused} of {_MANY} clients were refused at {host}")

    @fault
    def flood(self) -> None:
        """Volatile messages for a subscriber of a standby that is stopped."""
        host, owner = self.standby(), self.owner
        with suppress(ConnectionLost, TimeoutError, OSError):
            with connect(self.url(MESH_PORT, owner), timeout=30) as publisher:
                with connect(self.url(MESH_PORT, host), timeout=30) as subscriber:
                    subscriber.subscribe("flood")
                    subscriber.flush()
                    self.brokers[host].send(signal.SIGSTOP)
                    for _ in range(20):
                        publisher.publish_many("flood", [bytes(10_000)] * 100)
                    time.sleep(6)
                    self.brokers[host].send(signal.SIGCONT)


def _holds(act: Callable[[], object]) -> bool:
    """Return whether a connection is open after an action."""
    try:
        act()
    except (Ended, OSError):
        return False
    return True
