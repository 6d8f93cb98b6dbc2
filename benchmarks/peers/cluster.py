"""Three brokers of ours with three NATS servers on this machine, as ``fleximq cluster try`` starts them."""

import re
import sys
import time
from collections.abc import Sequence

from benchmarks.peers.journal import Durable
from benchmarks.peers.program import find
from benchmarks.refused import Refused

_OWNS = re.compile(r"node-(\d): .*this node owns shard 0 in term")
_START_SECONDS = 60.0
_NODES = 3


class ClusterOwner(Durable):
    """The node that owns the journal. Everything is stored by three servers, and synced, before it is confirmed."""

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() or (None if find("nats-server") else "there is no nats-server")

    def command(self) -> Sequence[str]:
        words = ["cluster", "try", "--nodes", str(_NODES), "--folder", "cluster", "--port", str(self.port)]
        return [sys.executable, "-m", "fleximq", *words]

    def start(self) -> None:
        super().start()
        first, deadline = self.port, time.monotonic() + _START_SECONDS
        while not (found := _OWNS.findall((self.folder / "log").read_text())):
            if time.monotonic() > deadline:
                self.stop()
                raise Refused("no node owns the journal")
            time.sleep(0.1)
        self.port = first + self.place(int(found[-1]) - 1)

    def place(self, owner: int) -> int:
        """Return the position of the node that is used, for that of the owner."""
        return owner


class ClusterStandby(ClusterOwner):
    """Another node, which forwards connections to the owner."""

    broker = "standby"

    def place(self, owner: int) -> int:
        return (owner + 1) % _NODES
