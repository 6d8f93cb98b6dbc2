"""Three nodes on three real nats-servers which are killed and stopped, and the checker of the simulation.

``python -m tests.cluster.nats.power SECONDS [SEED]`` prints what happened. The nodes are in this process; their
disks are in memory, so that some of their ends take the power.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from fleximq.cluster.interfaces import ClusterError, Piece
from fleximq.cluster.nats.store import NatsCluster
from fleximq.cluster.ownership import State
from fleximq.cluster.steady_clock import SteadyClock
from tests.cluster.nats.servers import Servers
from tests.cluster.node_clock import NodeClock
from tests.cluster.simulation import SHARD, Broken, Node, check


class Campaign:
    """The world of the nodes; ``pauses`` are the seconds between two confirmations, the longest first."""

    needed = 3

    def __init__(self, reactor: Any, servers: Servers, seed: int = 0) -> None:
        self.random = Random(seed)
        self.counts: Counter[str] = Counter()
        self.told: dict[bytes, int] = {}
        self.reactor = reactor
        self.clock = SteadyClock(reactor)
        self.servers = servers
        self.nodes = [Node(self, name) for name in ("a", "b", "c")]
        self._clusters: dict[str, NatsCluster] = {}
        self._errors: list[BaseException] = []
        self._number = 0
        self._down: int | None = None
        self._disturbed = False
        self.pauses: list[float] = []

    def connect(self, name: str, clock: NodeClock) -> NatsCluster:
        """See :class:`tests.cluster.simulation.World`; so with the next two."""
        return self._clusters[name]

    def disconnect(self, cluster: NatsCluster) -> None:
        cluster.stop()

    def failed(self, error: BaseException) -> None:
        self._errors.append(error)

    async def start(self, node: Node) -> None:
        """Connect and start a node."""
        cluster = NatsCluster(self.servers.urls, "test", self.reactor.callFromThread, room=1 << 30)
        await cluster.start()
        self._clusters[node.name] = cluster
        node.start()

    async def run(self, seconds: float) -> None:
        """Publish and disturb for some time, then heal and check."""
        for node in self.nodes:
            await self.start(node)
        await self.until(self.publish, 60)
        end = self.clock.seconds() + seconds
        disturb = self.clock.seconds() + 5
        last, confirmed = self.clock.seconds(), 0
        while self.clock.seconds() < end:
            self.publish()
            await deferLater(self.clock, self.random.choice((0.0, 0.001, 0.02)))
            now = self.clock.seconds()
            if len(self.told) > confirmed:
                self.pauses.append(now - last)
                last, confirmed = now, len(self.told)
            if now > disturb:
                disturb = now + self.random.uniform(3, 15)
                await self.disturb()
        await self.heal()
        await self.until(self.publish, 60)
        await self.until(lambda: self._settled(len(self.told)), 60)
        await deferLater(self.clock, 3)
        stream = await self._everything()
        await self.until(lambda: all(node.copy.usable and node.copy.end == len(stream) for node in self.nodes), 30)
        check(self, self.nodes, stream)
        self.pauses.sort(reverse=True)

    def publish(self) -> bool:
        """Publish a message at the node that serves; False if none does."""
        if self._errors:
            raise self._errors[0]
        self._number += 1
        payload = b"%d " % self._number * self.random.choice((1, 10, 100, 1000))
        return any(node.publish(payload) for node in self.nodes)

    async def disturb(self) -> None:
        """End the last faults, or begin one or two."""
        random, node = self.random, self.random.choice(self.nodes)
        if self._disturbed:
            self._disturbed = False
            await self.heal()
            return
        self._disturbed = True
        what = random.choice(("server killed", "server stopped", "kill", "pause", "both", "move"))
        self.counts[what] += 1
        if what in ("server killed", "both"):
            self._down = random.randrange(3)
            self.servers.kill(self._down)
        elif what == "server stopped":
            self._down = random.randrange(3)
            self.servers.pause(self._down)
        owner = next((node for node in self.nodes if node.alive and node.ownership.state is State.OWNING), node)
        if what in ("kill", "both"):
            random.choice((owner, node)).kill(random.random() < 0.5)
        elif what == "pause":
            random.choice((owner, node)).clock.paused = True
        elif what == "move" and owner.ownership.state is State.OWNING:
            Deferred.fromCoroutine(owner.ownership.move(node.name)).addErrback(
                lambda failure: failure.trap(ClusterError)
            )

    def _serverBack(self) -> None:
        if self._down is not None:
            if self.servers.processes[self._down].poll() is None:
                self.servers.resume(self._down)
            else:
                self.servers.restart(self._down)
            self._down = None

    async def _nodesBack(self) -> None:
        for node in self.nodes:
            if not node.alive:
                await self.start(node)
            elif node.clock.paused:
                node.clock.resume(self.random)

    async def heal(self) -> None:
        """End all faults."""
        self._serverBack()
        await self._nodesBack()

    def _settled(self, told: int) -> bool:
        return all(node.alive and node.copy.usable for node in self.nodes) and len(self.told) >= told

    async def _everything(self) -> bytes:
        """Return all bytes of the stream, read by a connection of its own."""
        cluster = NatsCluster(self.servers.urls, "test", self.reactor.callFromThread, room=1 << 30)
        await cluster.start()
        last = (await cluster.bounds(SHARD)).last
        pieces: list[Piece] = []
        stop = cluster.follow(SHARD, 1, lambda messages: pieces.extend(piece for _, piece in messages))
        await self.until(lambda: len(pieces) >= last, 60)
        stop()
        await cluster.stop()
        return b"".join(piece.data for piece in pieces)

    async def until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait until something holds.

        :raises Broken: it takes too long.
        """
        end = self.clock.seconds() + seconds
        while not holds():
            if self.clock.seconds() > end:
                raise Broken(f"not within {seconds} seconds: {[node.follower.reason for node in self.nodes]}")
            await deferLater(self.clock, 0.05)

    async def end(self) -> None:
        """Stop all nodes."""
        for node in self.nodes:
            if node.alive:
                node.kill(False)
        await deferLater(self.clock, 0.5)


def main(arguments: list[str]) -> None:
    """Run one campaign."""
    from twisted.internet import reactor
    from twisted.internet.task import react

    async def run(_: Any) -> None:
        servers = Servers(f"{tempfile.mkdtemp()}/servers", 3)
        try:
            servers.wait()
            campaign = Campaign(reactor, servers, int(arguments[1]) if len(arguments) > 1 else 0)
            try:
                await campaign.run(float(arguments[0]))
            finally:
                await campaign.end()
            print(dict(campaign.counts), [round(pause, 1) for pause in campaign.pauses[:8]])
        finally:
            servers.end()

    react(lambda each: Deferred.fromCoroutine(run(each)))


if __name__ == "__main__":
    main(sys.argv[1:])
