"""fleximq.cluster.nats on one real server; three of them and their faults are in a nightly campaign."""

import asyncio
import sys
from collections.abc import Callable
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.cluster.interfaces import (
    HEADROOM,
    ICluster,
    IWatcher,
    NodeRecord,
    Piece,
    Refused,
    Replicas,
    ShardOwner,
    Unknown,
)
from tests.cluster.nats.servers import MISSING, Servers
from tests.nightly import NIGHTLY, REASON

if not MISSING:
    from nats.js.api import ClusterInfo, StreamInfo

    from fleximq.cluster.nats import store
    from fleximq.cluster.nats.feed import StoredMessage
    from fleximq.cluster.nats.store import NatsCluster
    from tests.cluster.nats.power import Campaign


@implementer(IWatcher)
class Watcher:
    """Keeps everything that it learns."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def nodeChanged(self, node: str, record: NodeRecord) -> None:
        """See :class:`IWatcher`."""
        self.seen.append((node, record))

    def nodeForgotten(self, node: str) -> None:
        """See :class:`IWatcher`."""
        self.seen.append((node, None))

    def ownerChanged(self, shard: int, owner: ShardOwner) -> None:
        """See :class:`IWatcher`."""
        self.seen.append((shard, owner))


class FollowTests(TestCase):
    """What a reader of a stream does where a consumer passes over messages."""

    if MISSING:
        skip = MISSING

    def test_gap(self) -> None:
        """Each such consumer is replaced, also one whose first message is too late; only after many of them, which
        cannot all be on a server with damaged files, the gap is passed on.
        """
        replaced, received, calls = [], list[int](), SimpleQueue[Any]()

        async def gap(client: Any, context: Any, stream: str, subject: str, begin: Any, take: Any) -> None:
            replaced.append([not await take([message(1), message(2)])])
            replaced.append([not await take([message(5), message(6)]) for _ in range(11)])
            replaced.append([not await take([message(3)]), not await take([message(3), message(4), message(6)])])
            replaced.append([not await take([message(7)]) for _ in range(11)])
            calls.put(None)

        async def info(stream: str, subjects_filter: object = None) -> Any:
            return SimpleNamespace(cluster=None, state=SimpleNamespace(first_seq=1))

        def message(sequence: int) -> StoredMessage:
            return StoredMessage("s", sequence, b"Fx-Place: 1 1 0\r\n", b"")

        self.patch(store, "feed", gap)
        self.patch(store, "RETRY", 0)
        cluster = NatsCluster(["nats://localhost"], "c", lambda *call: calls.put(call), room=1)
        cluster._context = SimpleNamespace(stream_info=info)  # type: ignore[assignment]
        cluster._loop.start()
        self.addCleanup(cluster._loop.stop)
        cluster.follow(0, 1, lambda pieces: received.extend(number for number, _ in pieces))
        while (call := calls.get(timeout=60)) is not None:
            call[0](*call[1:])
        self.assertEqual(replaced, [[False], [True] * 11, [False, True], [True] * 10 + [False]])
        self.assertEqual(received, [1, 2, 3, 4, 7])


def frame(data: bytes, left: int = 0) -> Piece:
    """Return a message."""
    return Piece(data, 8, 1, left)


class NatsClusterTests(TestCase):
    """NatsCluster, on a server that all tests share; each has a cluster of its own."""

    skip = MISSING or None
    servers: "Servers | None" = None
    _number = 0

    async def setUp(self) -> None:  # type: ignore[override]  # trial waits for coroutines too
        from twisted.internet import reactor

        self.reactor: Any = reactor
        if NatsClusterTests.servers is None:
            NatsClusterTests.servers = servers = Servers(self.mktemp())
            servers.wait()
            reactor.addSystemEventTrigger("after", "shutdown", servers.end)
        NatsClusterTests._number += 1
        # The disk of a busy machine may be slow.
        self.patch(sys.modules[NatsCluster.__module__], "TIMEOUT", 15.0)
        self.cluster = await self.connected()

    async def connected(self, room: int = 1 << 20) -> "NatsCluster":
        """Return a connection."""
        assert self.servers is not None
        name = f"test-{self._number}"
        cluster = NatsCluster(self.servers.urls, name, self.reactor.callFromThread, room=room, replicas=1)
        self.addCleanup(cluster.stop)
        await cluster.start()
        return cluster

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        while not holds():
            await deferLater(self.reactor, 0.01)

    async def test_ask(self) -> None:
        """A node answers; one that is not there does not."""
        other = await self.connected()
        other.answer("b", lambda question: {"doubled": 2 * question["number"]})
        await other.bounds(0)  # so that the servers know it
        self.assertEqual(await self.cluster.ask("b", {"number": 4}), {"doubled": 8})
        await self.assertFailure(self.cluster.ask("c", {}), Unknown)

    async def test_forget(self) -> None:
        """The key of a node is removed, which all watchers learn, also those that come later."""
        watcher = Watcher()
        self.addCleanup(self.cluster.watch(watcher))
        await self.cluster.beat("a", NodeRecord({}))
        await self.until(lambda: watcher.seen)
        self.assertEqual(await self.cluster.nodes(), 1)
        await self.cluster.forget("a")
        await self.until(lambda: ("a", None) in watcher.seen)
        later = Watcher()
        self.addCleanup(self.cluster.watch(later))
        await self.until(lambda: later.seen)
        self.assertEqual(later.seen, [("a", None)])

    async def test_lastKnown(self) -> None:
        """A server gives its copy of the keys, also of a bucket that an older version made, without removed nodes."""
        await self.cluster.beat("a", NodeRecord({0: 7}, {"state": "owning"}))
        await self.cluster.beat("b", NodeRecord({}))
        await self.cluster.claim(0, ShardOwner("a", 3, 0))
        await self.cluster.forget("b")
        stream = f"KV_test-{self._number}"

        async def older() -> None:
            context = self.cluster._context
            await context.update_stream((await context.stream_info(stream)).config.evolve(allow_direct=False))

        await self.cluster._ask(older())
        await self.assertFailure(self.cluster.lastKnown(Watcher()), Unknown)
        await self.connected()
        watcher = Watcher()
        await self.cluster.lastKnown(watcher)
        self.assertEqual(watcher.seen, [("a", NodeRecord({0: 7}, {"state": "owning"})), (0, ShardOwner("a", 3, 3))])

    async def test_leaderless(self) -> None:
        """What a server without a leader says of a stream is not believed: it may be old, or say that it is empty."""
        context = self.cluster._context
        asked = context.stream_info

        async def leaderless(name: str, subjects_filter: str | None = None) -> StreamInfo:
            found = await asked(name, subjects_filter)
            found.cluster = ClusterInfo(leader=None, name="test")
            return found

        self.patch(context, "stream_info", leaderless)
        asking: list[Deferred[Any]] = [self.cluster.nodes(), self.cluster.bounds(0), self.cluster.replicas([0])]
        for answer in asking:
            self.assertIn("has no leader", str(await self.assertFailure(answer, Unknown)))

    async def test_names(self) -> None:
        """Names are asked for again while the servers elect; an error does not mean that there is no cluster."""
        errors = [b'{"error": {"code": 503, "err_code": 10008, "description": "no leader"}}']
        client = self.cluster._client
        asked = client.request

        async def request(subject: str, payload: bytes = b"", timeout: float = 1, **more: Any) -> Any:
            return SimpleNamespace(data=errors.pop()) if errors else await asked(subject, payload, timeout, **more)

        self.patch(client, "request", request)
        self.patch(self.cluster._loop, "start", lambda: None)  # it runs
        self.assertIn(f"test-{self._number}", await self.cluster.names())
        self.assertEqual(errors, [])

    async def test_enlarged(self) -> None:
        """A node that is set to more bytes enlarges the stream; one that is set to fewer leaves it."""
        for room, most in ((1 << 21, 1 << 21), (1 << 20, 1 << 21)):
            await self.connected(room)
            self.assertEqual((await self.cluster.bounds(0)).limit, most)
        self.assertEqual(set((await self.cluster.replicas([0])).values()), {Replicas(1, 1, 1)})

    async def test_chained(self) -> None:
        """Several appends may be under way, each with the sequence that the one before will have, in pieces or not."""
        parts = [[frame(b"1")], [frame(b"2", 1), frame(b"3")], [frame(b"4")], [frame(b"5", 1), frame(b"6")]]
        expected, asked = 0, []
        for part in parts:
            asked.append(self.cluster.append(0, expected, part))
            expected += len(part)
        self.assertEqual(await gatherResults(asked), [1, 3, 4, 6])
        late = [self.cluster.append(0, number, [frame(b"late")]) for number in range(6)]
        for each in late:
            await self.assertFailure(each, Unknown)

    async def test_append(self) -> None:
        """Appends need the last sequence; a wrong one leaves the outcome unknown."""
        verifyObject(ICluster, self.cluster)
        self.assertEqual(await self.cluster.append(0, 0, [frame(b"one")]), 1)
        await self.assertFailure(self.cluster.append(0, 0, [frame(b"two")]), Unknown)
        self.assertEqual(await self.cluster.append(0, 1, [Piece(b"two", 16, 9)]), 2)
        self.assertEqual(await self.cluster.slot(0, 2), Piece(b"two", 16, 9))
        self.assertIsNone(await self.cluster.slot(0, 3))
        bounds = await self.cluster.bounds(0)
        self.assertEqual((bounds[1:3], bounds.limit), ((1, 2), 1 << 20))
        self.assertGreater(bounds.bytes, 2 * len(b"one"))
        self.assertGreater(bounds.created, 1_700_000_000_000_000)

    async def test_pieces(self) -> None:
        """Pieces are stored together or not at all."""
        pieces = [frame(b"a", 2), frame(b"b", 1), frame(b"c")]
        self.assertEqual(await self.cluster.append(0, 0, pieces), 3)
        await self.assertFailure(self.cluster.append(0, 0, pieces), Unknown)
        self.assertEqual([await self.cluster.slot(0, each) for each in (1, 2, 3, 4)], [*pieces, None])

    async def test_betweenPieces(self) -> None:
        """A message of another owner between the pieces of a commit refuses all of them."""
        other = await self.connected()
        client = self.cluster._client
        publish = client.publish

        async def between(*arguments: Any, **also: Any) -> None:
            first.restore()
            await publish(*arguments, **also)
            await client.flush()
            await asyncio.wrap_future(other._loop.run(other._append(0, 0, [frame(b"other")], 2)))

        first = self.patch(client, "publish", between)
        await self.assertFailure(self.cluster.append(0, 0, [frame(b"a", 1), frame(b"b")]), Unknown)
        self.assertEqual((await self.cluster.bounds(0)).last, 1)
        self.assertEqual(await self.cluster.slot(0, 1), frame(b"other"))

    async def test_slow(self) -> None:
        """A large commit has more time than a small one."""
        self.patch(sys.modules[NatsCluster.__module__], "TIMEOUT", 0.001)
        self.patch(sys.modules[NatsCluster.__module__], "_SLOWEST", 100)
        self.assertEqual(await self.cluster.append(0, 0, [frame(bytes(1000))]), 1)

    async def test_largest(self) -> None:
        """A message may have the size that the store names, less what is left for its headers."""
        data = bytes(self.cluster.maxPayload - HEADROOM)
        self.assertEqual(await (await self.connected()).append(0, 0, [frame(data, 1), frame(b"rest")]), 2)

    async def test_full(self) -> None:
        """A stream without room refuses."""
        size = self.cluster.maxPayload - HEADROOM
        await self.cluster.append(0, 0, [frame(bytes(size))])
        await self.assertFailure(self.cluster.append(0, 1, [frame(bytes(size))]), Refused)

    async def test_tooLarge(self) -> None:
        """A stream that no server has room for is refused, with the option that says so."""
        assert self.servers is not None
        cluster = NatsCluster(self.servers.urls, "large", self.reactor.callFromThread, room=1 << 60, replicas=1)
        self.addCleanup(cluster.stop)
        with self.assertRaisesRegex(Refused, "no room for the 1,152,921,504,606,846,976 bytes of cluster-bytes"):
            await cluster.reach(create=True)

    async def test_follow(self) -> None:
        """All messages from a sequence on arrive in order, also new ones, until the end; removed ones do not."""
        for number in range(5):
            await self.cluster.append(0, number, [frame(b"%d" % number)])
        received: list[tuple[int, bytes]] = []
        stop = self.cluster.follow(
            0, 2, lambda messages: received.extend((sequence, piece.data) for sequence, piece in messages)
        )
        await self.until(lambda: len(received) == 4)
        await self.cluster.append(0, 5, [frame(b"5")])
        await self.until(lambda: len(received) == 5)
        self.assertEqual(received, [(number + 1, b"%d" % number) for number in range(1, 6)])
        stop()
        await self.cluster.purge(0, 5)
        self.assertEqual((await self.cluster.bounds(0))[1:3], (5, 6))
        received.clear()
        self.cluster.follow(
            0, 2, lambda messages: received.extend((sequence, piece.data) for sequence, piece in messages)
        )
        await self.until(lambda: len(received) == 2)
        self.assertEqual(received, [(5, b"4"), (6, b"5")])

    async def test_keys(self) -> None:
        """A watcher learns of beats and owners, present and later ones; a record needs its revision."""
        watcher = Watcher()
        record = NodeRecord({0: 17}, {"port": 7890})
        await self.cluster.beat("east-1", record)
        stop = self.cluster.watch(watcher)
        await self.until(lambda: watcher.seen == [("east-1", record)])
        await self.cluster.claim(0, ShardOwner("east-1", 1))
        await self.assertFailure(self.cluster.claim(0, ShardOwner("west", 1)), Refused)
        await self.until(lambda: len(watcher.seen) == 2)
        shard, owner = watcher.seen[1]
        self.assertEqual((shard, owner[:2]), (0, ("east-1", 1)))
        await self.cluster.claim(0, owner._replace(node="west", term=2))
        await self.until(lambda: len(watcher.seen) == 3)
        self.assertEqual(watcher.seen[2][1][:2], ("west", 2))
        stop()

    async def test_blocks(self) -> None:
        """Blocks are numbered from 0, and no two requests get the same, also at the same time."""
        self.assertEqual(await self.cluster.nextBlock(), 0)
        found = await gatherResults([self.cluster.nextBlock() for _ in range(5)])
        self.assertEqual(sorted(found), [1, 2, 3, 4, 5])

    async def test_unanswered(self) -> None:
        """Without an answer in time a request is unknown."""
        self.patch(sys.modules[NatsCluster.__module__], "TIMEOUT", 0.05)
        self.patch(self.cluster._context, "publish", lambda *ignored, **also: asyncio.sleep(9))
        await self.assertFailure(self.cluster.append(0, 0, [frame(b"one")]), Unknown)

    async def test_again(self) -> None:
        """Another connection finds what the first has made."""
        await self.cluster.append(0, 0, [frame(b"one")])
        other = await self.connected(room=5)
        self.assertEqual(await other.bounds(0), await self.cluster.bounds(0))


class ConnectingTests(TestCase):
    """NatsCluster without servers."""

    skip = MISSING or None

    async def test_later(self) -> None:
        """Until the servers answer, it tries again."""
        from twisted.internet import reactor

        servers = Servers(self.mktemp())
        self.addCleanup(servers.end)
        servers.kill(0)
        cluster = NatsCluster(servers.urls, "test", reactor.callFromThread, room=1 << 20, replicas=1)  # type: ignore[attr-defined]
        self.addCleanup(cluster.stop)
        started = cluster.start()
        await self.assertFailure(Deferred.fromCoroutine(_keysOf(cluster)), Unknown)
        servers.restart(0)
        await started
        self.assertEqual((await cluster.bounds(0))[1:3], (1, 0))


async def _keysOf(cluster: "NatsCluster") -> None:
    await cluster.beat("a", NodeRecord({}))


class CampaignTests(TestCase):
    """Three servers and three nodes."""

    skip = MISSING or (None if NIGHTLY else REASON)
    timeout = 900

    async def test_campaign(self) -> None:
        """Servers and nodes are killed and stopped for ten minutes, and no promise is broken."""
        from twisted.internet import reactor

        servers = Servers(self.mktemp(), 3)
        self.addCleanup(servers.end)
        servers.wait()
        campaign = Campaign(reactor, servers)
        self.addCleanup(lambda: Deferred.fromCoroutine(campaign.end()))
        await campaign.run(600)
        self.assertGreater(campaign.counts["confirmed"], 1000)
        self.assertGreater(campaign.counts["takeover"], 5)
