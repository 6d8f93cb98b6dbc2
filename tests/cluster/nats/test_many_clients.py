"""Thousands of clients come to the listeners of a mesh at once, also after a takeover: none is refused."""

import asyncio
import signal

from tests.cluster.nats.cluster_case import ClusterCase
from tests.nightly import nightly
from tests.wire.flexi_variants import MAPS

#: Clients of all nodes together, and connections that are opened at a time.
_CLIENTS, _OPENING = 4_000, 200


@nightly
class ManyClientsTests(ClusterCase):
    """Each node has a listener of the mesh."""

    options = (*ClusterCase.options, "--mesh", "--listen", "fleximq+tcp:0:interface=127.0.0.1")

    def join(self, *names: str) -> dict[int, int]:
        """Let the clients join at some nodes, all at once; return how many got each status. They stay until then."""
        ports = [self.brokers[name].port() for name in names]
        return asyncio.run(_joined(ports))

    def test_takeover(self) -> None:
        """Before it, while the next owner is chosen, and after it."""
        self.start("a", "b", "c")
        for broker in self.brokers.values():
            broker.waitForOutput("serves its clients itself")
        self.assertEqual(self.join(*"abc"), {200: _CLIENTS})
        owner = self.owner()
        self.stop(signal.SIGKILL, owner)
        others = tuple(self.brokers)
        self.assertEqual(self.join(*others), {200: _CLIENTS})
        self.until(lambda: "owning" in [self.nodes().get(name) for name in others])
        self.assertEqual(self.join(*others), {200: _CLIENTS})


async def _joined(ports: list[int]) -> dict[int, int]:
    opening = asyncio.Semaphore(_OPENING)
    writers = []

    async def client(port: int) -> int:
        async with opening:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        writer.write(MAPS.frame("JOIN", 0))
        data = b""
        while (taken := MAPS.take(data)) is None:
            if not (more := await reader.read(1 << 12)):
                return 0
            data += more
        return int(taken[0].header["status"])

    found = await asyncio.gather(*(client(ports[number % len(ports)]) for number in range(_CLIENTS)))
    for writer in writers:
        writer.close()
    return {status: found.count(status) for status in set(found)}
