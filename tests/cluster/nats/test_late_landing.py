"""Servers that do not answer, and appends that arrive late: a proxy before a real server holds them back, or the
server, the stream's leader, stops, until the owner has repeated them or another node has taken over.
"""

import sys
import time
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.protocols.portforward import ProxyFactory, ProxyServer
from twisted.trial.unittest import TestCase

from fleximq.cluster.interfaces import Deposed, Piece
from fleximq.cluster.stream_log import StreamLog
from fleximq.cluster.stream_replica import StreamReplica
from fleximq.journal.format.frame import FrameKind
from fleximq.journal.writing.commit import Commit, RecordsPart
from tests.cluster.nats.servers import MISSING, Servers
from tests.cluster.simulation import recordsOf
from tests.cluster.store_case import FOLDER, emptyDisk, headersOf
from tests.journal.frames import JOURNAL, appended
from tests.nightly import nightly

if not MISSING:
    from fleximq.cluster.nats.store import NatsCluster


class Proxy(ProxyFactory):
    """Forwards connections to a port; after :meth:`hold` the bytes of clients wait until :meth:`release`."""

    noisy = False

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)
        self._connections: list[Any] = []

    def buildProtocol(self, address: Any) -> ProxyServer:
        """Make the protocol of one connection."""
        connection = super().buildProtocol(address)
        assert isinstance(connection, ProxyServer)
        self._connections.append(connection)
        return connection

    def hold(self) -> None:
        """Read nothing more of clients."""
        for connection in self._connections:
            connection.transport.pauseProducing()

    def release(self) -> None:
        """Let everything go on."""
        for connection in self._connections:
            connection.transport.resumeProducing()


class SilentServerTests(TestCase):
    """A server that was cut off: its connections stay, but nothing arrives."""

    skip = MISSING or None

    async def test_left(self) -> None:
        """A node leaves it for another one, although its connection was not closed."""
        from twisted.internet import reactor

        clock = cast(Any, reactor)
        servers = Servers(self.mktemp())
        self.addCleanup(servers.end)
        servers.wait()
        ways = [Proxy(int(servers.urls[0].rpartition(":")[2])) for _ in range(2)]
        ports = [clock.listenTCP(0, way, interface="127.0.0.1") for way in ways]
        for port in ports:
            self.addCleanup(port.stopListening)
        module = sys.modules[NatsCluster.__module__]
        self.patch(module, "_RECONNECTING", {**module._RECONNECTING, "ping_interval": 0.1})
        urls = [f"nats://127.0.0.1:{port.getHost().port}" for port in ports]
        cluster = NatsCluster(urls, "test", clock.callFromThread, room=1 << 20, replicas=1)
        self.addCleanup(cluster.stop)
        await cluster.start()
        for way in ways:
            way.hold()
        while not cluster.reconnects:
            await deferLater(clock, 0.05)
        self.assertEqual((await cluster.bounds(0))[1:3], (1, 0))


class OwnersCase(TestCase):
    """Owners of one shard on real servers."""

    skip = MISSING or None
    #: How many servers, and seconds until they have answered.
    number, patience = 1, 0.3

    async def setUp(self) -> None:  # type: ignore[override]  # trial waits for coroutines too
        from twisted.internet import reactor

        self.reactor = cast(Any, reactor)
        self.servers = Servers(self.mktemp(), self.number)
        self.addCleanup(self.servers.end)
        self.servers.wait()
        self.hurry = self.patch(sys.modules[NatsCluster.__module__], "TIMEOUT", self.patience)

    async def owner(self, url: str, term: int) -> StreamLog:
        """Return the log of an owner that has fenced the stream."""
        cluster = NatsCluster([url], "test", self.reactor.callFromThread, room=1 << 20, replicas=self.number)
        self.addCleanup(cluster.stop)
        await cluster.start()
        self.copy = StreamReplica(emptyDisk(), FOLDER, 0)
        self.copy.open()
        log = StreamLog(
            cluster,
            0,
            self.copy,
            node=f"n{term}",
            term=term,
            journal=JOURNAL,
            clock=self.reactor,
            now=lambda: round(time.time() * 1e6),
            randomId=lambda: term,
        )
        await log.fence()
        self.cluster = cluster
        return log

    def commit(self, log: StreamLog, payload: bytes) -> "Deferred[None]":
        """Begin a commit of one record."""
        offset = log._copy.next
        made = Commit(last=1, next=offset + 1, time=1, parts=[RecordsPart(offset, [appended(payload)])])
        return Deferred.fromCoroutine(log.carryOut(made))

    async def pieces(self) -> list[Piece]:
        """Return all messages of the stream."""
        self.hurry.restore()
        last = (await self.cluster.bounds(0)).last
        pieces = [await self.cluster.slot(0, sequence) for sequence in range(1, last + 1)]
        return [piece for piece in pieces if piece is not None]


class LateLandingTests(OwnersCase):
    """Two owners on one server, the first through a proxy."""

    async def setUp(self) -> None:  # type: ignore[override]  # trial waits for coroutines too
        await super().setUp()
        self.proxy = Proxy(int(self.servers.urls[0].rpartition(":")[2]))
        port = self.reactor.listenTCP(0, self.proxy, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.first = await self.owner(f"nats://127.0.0.1:{port.getHost().port}", 1)
        await self.commit(self.first, b"one")

    async def kinds(self) -> list[int]:
        """Return the kinds of all frames in the stream."""
        return [header.kind for header in headersOf(await self.pieces())]

    async def test_repeated(self) -> None:
        """An append that arrives several times is stored once, and confirmed."""
        self.proxy.hold()
        late = self.commit(self.first, b"two")
        await deferLater(self.reactor, 2.0)
        self.assertNoResult(late)
        self.proxy.release()
        await late
        await deferLater(self.reactor, 0.5)
        self.assertEqual(await self.kinds(), [FrameKind.SEGMENT, FrameKind.RECORDS, FrameKind.RECORDS])

    async def test_deposed(self) -> None:
        """If another node has taken over, it is stored never, and its sender learns that."""
        self.proxy.hold()
        late = self.commit(self.first, b"two")
        await deferLater(self.reactor, 1.0)
        second = await self.owner(self.servers.urls[0], 2)
        await self.commit(second, b"other")
        self.proxy.release()
        await self.assertFailure(late, Deposed)
        await deferLater(self.reactor, 0.5)
        segment, records = FrameKind.SEGMENT, FrameKind.RECORDS
        self.assertEqual(await self.kinds(), [segment, records, segment, records])

    def assertNoResult(self, deferred: "Deferred[Any]") -> None:
        """Check that something has not ended."""
        self.assertFalse(deferred.called)


@nightly
class StaleLeaderTests(OwnersCase):
    """An owner that is connected to the stream's leader, which is stopped and goes on."""

    number, patience, timeout = 3, 1.0, 600

    async def leader(self) -> int:
        """Return the place of the stream's leader among the servers."""
        info: Any = await self.cluster._loop.ask(self.cluster._context.stream_info("test-0"))
        return int(info.cluster.leader[1:])

    async def test_woken(self) -> None:
        """Each confirmed message is there once, and none that was refused, whether another node took over or not."""
        wanted: list[bytes] = []
        await self.owner(self.servers.urls[0], 1)
        for term in range(2, 14, 2):
            leader = await self.leader()
            first = await self.owner(self.servers.urls[leader], term)
            await self.commit(first, b"%d" % term)
            wanted.append(b"%d" % term)
            self.servers.pause(leader)
            late = self.commit(first, b"late %d" % term)
            if term % 4:
                await deferLater(self.reactor, 8.0)
                self.servers.resume(leader)
                await late
                wanted.append(b"late %d" % term)
            else:
                second = await self.owner(self.servers.urls[leader - 1], term + 1)
                await self.commit(second, b"%d" % (term + 1))
                wanted.append(b"%d" % (term + 1))
                self.servers.resume(leader)
                # Its node leaves a silent server after seconds, and may still be in time on a slow machine.
                if await late.addCallbacks(lambda ignored: True, lambda failure: not failure.trap(Deposed)):
                    wanted.insert(-1, b"late %d" % term)
        found = recordsOf(b"".join(piece.data for piece in await self.pieces()))
        self.assertEqual(list(found), wanted)
