"""The loop of kills over queues and schedules on three nodes: the owner is killed, and clients are at all nodes.

::

    python -m tests.cluster.nats.queue_loop --kills 20

Clients, jobs and checks are those of :mod:`tests.conversations.journal.queue_loop`. The clients of the other nodes lose
their connections with the owner, connect again, and go on at the next owner.
"""

import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.broker_process import BrokerProcess
from tests.cluster.nats.servers import Servers, freePorts
from tests.conversations.journal.queue_loop import OPTIONS, QueueLoop, main

#: Seconds until a node serves.
PATIENCE = 300.0


class Nodes:
    """Three nodes with their servers in an empty folder; those that are killed start again at the same port.

    :param options: further options of all nodes.
    :param dialect: the dialect of their listener, in a mesh; "" for all dialects.
    :param failpoints: let a node kill itself where :meth:`arm` says.
    """

    def __init__(
        self,
        folder: Path,
        held: ExitStack,
        options: Sequence[str] = (),
        dialect: str = "",
        failpoints: bool = False,
    ) -> None:
        servers = Servers(str(folder / "servers"), 3)
        held.callback(servers.end)
        servers.wait()
        words = [word for url in servers.urls for word in ("--cluster", url)]
        self.all: list[BrokerProcess] = []
        self.addresses = [("127.0.0.1", port) for port in freePorts(3)]
        self._point = folder / "failpoint" if failpoints else None
        held.callback(self._end)
        for name, (host, port) in zip("abc", self.addresses, strict=True):
            listen = f"{dialect and dialect + '+'}tcp:{port}:interface={host}"
            mesh = ("--mesh",) if dialect else ()
            own = "--allow-anonymous", "--node", name, "--journal", str(folder / name), "--listen", listen
            self._begin((*words, *mesh, *options, *own))

    def _begin(self, arguments: tuple[str, ...]) -> None:
        more: dict[str, Any] = {}
        if self._point is not None:
            launcher = sys.executable, "-m", "tests.cluster.nats.failpoints"
            more = {"environment": {"FLEXIMQ_FAILPOINT": str(self._point)}, "launcher": launcher}
        self.all.append(BrokerProcess(*arguments, **more))
        self.all[-1].start()

    def _end(self) -> None:
        for each in self.all:
            each.stop(signal.SIGKILL)

    def owner(self) -> BrokerProcess:
        """Return the node that owns the journal, when one does and all nodes take clients."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            owners = [each for each in self.all if "this node owns shard" in each.output]
            if owners and all(each.listeners for each in self.all):
                return owners[0]
            time.sleep(0.05)
        raise AssertionError([each.output for each in self.all])

    def arm(self, step: str) -> None:
        """Let the owner kill itself at a step, see :mod:`tests.cluster.nats.failpoints`."""
        assert self._point is not None
        self._point.with_suffix(".new").write_text(step)
        self._point.with_suffix(".new").rename(self._point)

    def killed(self, owner: BrokerProcess, seconds: float) -> bool:
        """Wait until a node has killed itself, and start it again; False if it does not within so many seconds."""
        assert self._point is not None
        hasEnded = owner.hasEnded(seconds)
        self._point.unlink()
        self.kill(owner)
        return hasEnded

    def kill(self, owner: BrokerProcess) -> None:
        """Kill a node, and start it again."""
        owner.stop(signal.SIGKILL)
        self.all.remove(owner)
        self._begin(owner.arguments)


class ClusterLoop(QueueLoop):
    """The loop with three nodes."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__("")
        self._nodes = nodes
        self._goesOn = True

    def run(self, kills: int) -> None:
        owner = self._nodes.owner()
        self.define(owner.address)
        for _ in range(kills // 2):
            others = [each.address for each in self._nodes.all if each is not owner]
            self._goesOn = True
            threads = self.start(others, lambda: self._goesOn)
            self.waitForJobs()
            self._nodes.kill(owner)
            owner = self._nodes.owner()
            self.waitForJobs()  # of clients that have followed to the next owner
            self._goesOn = False
            time.sleep(0.5)  # a client that connects now finds this owner
            self._nodes.kill(owner)
            self.join(threads)
            owner = self._nodes.owner()
        standby = next(each for each in self._nodes.all if each is not owner)
        self.check(standby.address)


def campaign(folder: str, kills: int) -> ClusterLoop:
    """Run a campaign with nodes in an empty folder and an even number of kills, and return it."""
    with ExitStack() as held:
        loop = ClusterLoop(Nodes(Path(folder), held, OPTIONS))
        loop.run(kills)
        return loop


if __name__ == "__main__":
    sys.exit(main("Kill the owners of a cluster, and compare its queues.", campaign))
