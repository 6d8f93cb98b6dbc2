"""The store in memory, for several nodes in one process on one clock (/explanation/cluster, Store).

Its faults are as bad as those of a real store: a request may be carried out long after its sender gave up, even by a
sender that has died; answers may be lost; reads may show an earlier state; a node may be cut off in one direction or in
both; the streams or the keys may be unavailable for some time, and a node may hear nothing of changed keys meanwhile.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from fleximq.cluster.interfaces import (
    ClusterError,
    ICluster,
    IMeshLink,
    IWatcher,
    NodeRecord,
    Piece,
    Refused,
    Replicas,
    ShardOwner,
    StreamBounds,
    Unknown,
)

#: Seconds until a request without an answer fails.
TIMEOUT = 2.0
#: A late request is carried out within so many seconds.
LATEST = 20.0
#: Seconds of a way to the store or back.
_DELAY = 0.001, 0.005
#: The largest number of messages that an old read does not see.
_UNSEEN = 5

T = TypeVar("T")


@dataclass
class Faults:
    """The share of requests that are late, and of those without an answer, and of reads that show an old state.

    ``unavailable`` has ``streams`` or ``keys`` while the store does not answer for them.
    """

    late: float = 0.0
    lost: float = 0.0
    old: float = 0.0
    unavailable: set[str] = field(default_factory=set)


@dataclass
class MemoryStream:
    """A stream; ``pieces`` has all that were ever stored, from sequence 1 on."""

    created: int = 1
    first: int = 1
    pieces: list[Piece] = field(default_factory=list)
    #: Sequences of messages that the store has lost.
    lost: set[int] = field(default_factory=set)

    @property
    def size(self) -> int:
        """The bytes of the messages that were not removed."""
        return sum(len(piece.data) for piece in self.pieces[self.first - 1 :])


class MemoryServers:
    """The store's side, shared by all nodes.

    :param clock: the time of the store; a node may have a clock of its own, which does not run while it is paused.
    :param room: the largest number of bytes in a stream; 0: unlimited.
    """

    def __init__(self, clock: IReactorTime, random: Random, maxPayload: int = 1 << 20, room: int = 0) -> None:
        self.clock = clock
        self.random = random
        self.maxPayload = maxPayload
        self.room = room
        self.faults = Faults()
        self.streams: dict[int, MemoryStream] = {}
        self.nodes: dict[str, tuple[int, NodeRecord]] = {}
        self.owners: dict[int, ShardOwner] = {}
        self.revision = 0
        self.cutOut: set[str] = set()
        self.cutIn: set[str] = set()
        #: The nodes to which changes of keys are not told.
        self.deaf: set[str] = set()
        self.feeds: list[Feed] = []
        self.answers: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {}
        self.blocks = 0
        self.replicas: dict[str, Replicas] = {}
        self.forgotten: dict[str, int] = {}
        self.links: dict[str, MemoryLink] = {}

    def stream(self, shard: int) -> MemoryStream:
        """Return a shard's stream."""
        return self.streams.setdefault(shard, MemoryStream())

    def heal(self) -> None:
        """End all cuts and faults."""
        self.cutOut.clear()
        self.cutIn.clear()
        self.deaf.clear()
        self.faults = Faults()
        self.wake()

    def wake(self) -> None:
        """Deliver news."""
        for feed in self.feeds:
            feed.wake()

    def delay(self) -> float:
        """Return the seconds of one way."""
        return self.random.uniform(*_DELAY)


@implementer(ICluster)
class MemoryCluster:
    """The connection of one node.

    :param clock: the node's time.
    """

    def __init__(self, servers: MemoryServers, node: str, clock: IReactorTime) -> None:
        self.servers = servers
        self.node = node
        self.clock = clock
        self.maxPayload = servers.maxPayload
        self.reconnects = 0
        self.host = "127.0.0.1"

    def append(self, shard: int, expected: int, pieces: Sequence[Piece]) -> Deferred[int]:
        """See :class:`ICluster`; so with all below."""

        def land() -> int:
            stream, servers = self.servers.stream(shard), self.servers
            if servers.room and stream.size + sum(len(piece.data) for piece in pieces) > servers.room:
                raise Refused("the stream is full")
            if expected != len(stream.pieces):
                raise Unknown(f"the last sequence is {len(stream.pieces)}, not {expected}")
            stream.pieces += pieces
            servers.wake()
            return len(stream.pieces)

        return self._request("streams", land)

    def slot(self, shard: int, sequence: int) -> Deferred[Piece | None]:
        def land() -> Piece | None:
            bounds = self._seen(shard)
            stream = self.servers.stream(shard)
            isThere = bounds.first <= sequence <= bounds.last and sequence not in stream.lost
            return stream.pieces[sequence - 1] if isThere else None

        return self._request("streams", land)

    def bounds(self, shard: int) -> Deferred[StreamBounds]:
        return self._request("streams", lambda: self._seen(shard))

    def replicas(self, shards: Iterable[int]) -> Deferred[Mapping[str, Replicas]]:
        return self._request("streams", lambda: dict(self.servers.replicas))

    def _seen(self, shard: int) -> StreamBounds:
        """Return the bounds of a stream as one of the store's servers sees them."""
        stream, servers = self.servers.stream(shard), self.servers
        last = len(stream.pieces)
        if servers.random.random() < servers.faults.old:
            last = max(0, last - servers.random.randint(1, _UNSEEN))
        return StreamBounds(stream.created, stream.first, last, stream.size, servers.room)

    def purge(self, shard: int, first: int) -> Deferred[None]:
        def land() -> None:
            stream = self.servers.stream(shard)
            stream.first = max(stream.first, min(first, len(stream.pieces) + 1))

        return self._request("streams", land)

    def beat(self, node: str, record: NodeRecord) -> Deferred[None]:
        def land() -> None:
            servers = self.servers
            servers.revision += 1
            servers.nodes[node] = servers.revision, record
            servers.wake()

        return self._request("keys", land)

    def forget(self, node: str) -> Deferred[None]:
        def land() -> None:
            servers = self.servers
            if servers.nodes.pop(node, None) is not None:
                servers.revision += 1
                servers.forgotten[node] = servers.revision
                servers.wake()

        return self._request("keys", land)

    def claim(self, shard: int, owner: ShardOwner) -> Deferred[None]:
        def land() -> None:
            servers = self.servers
            if owner.revision != servers.owners.get(shard, ShardOwner()).revision:
                raise Refused("the owner has changed")
            servers.revision += 1
            servers.owners[shard] = owner._replace(revision=servers.revision)
            servers.wake()

        return self._request("keys", land)

    def follow(
        self, shard: int, sequence: int, received: Callable[[Sequence[tuple[int, Piece]]], None]
    ) -> Callable[[], None]:
        next = sequence

        def deliver() -> bool:
            nonlocal next
            stream = self.servers.stream(shard)
            next = max(next, stream.first)
            if next > len(stream.pieces):
                return False
            number = self.servers.random.randint(1, 4)
            messages = [
                (each + 1, stream.pieces[each]) for each in range(next - 1, min(len(stream.pieces), next - 1 + number))
            ]
            next += len(messages)
            received(messages)
            return True

        return Feed(self, deliver).stop

    def ask(self, node: str, question: Mapping[str, Any]) -> Deferred[Mapping[str, Any]]:
        def land() -> Mapping[str, Any]:
            if node not in self.servers.answers:
                raise Unknown(f"{node} does not answer")
            return self.servers.answers[node](question)

        return self._request("questions", land)

    def answer(self, node: str, answered: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self.servers.answers[node] = answered

    def nextBlock(self) -> Deferred[int]:
        def land() -> int:
            self.servers.blocks += 1
            return self.servers.blocks - 1

        return self._request("keys", land)

    def watch(self, watcher: IWatcher) -> Callable[[], None]:
        told = 0

        def deliver() -> bool:
            nonlocal told
            servers = self.servers
            if self.node in servers.deaf:
                return False
            later, told = told, servers.revision
            changes: list[tuple[int, Callable[[], None]]] = [
                (revision, partial(watcher.nodeChanged, node, record))
                for node, (revision, record) in servers.nodes.items()
            ]
            changes += [
                (revision, partial(watcher.nodeForgotten, node)) for node, revision in servers.forgotten.items()
            ]
            changes += [
                (owner.revision, partial(watcher.ownerChanged, shard, owner)) for shard, owner in servers.owners.items()
            ]
            for revision, tell in sorted(changes, key=lambda each: each[0]):
                if revision > later:
                    tell()
            return False

        return Feed(self, deliver).stop

    def _request(self, what: str, land: Callable[[], T]) -> Deferred[T]:
        """Carry out a request at the store, after some time and perhaps without an answer."""
        servers, random, faults = self.servers, self.servers.random, self.servers.faults
        answer: Deferred[T] = Deferred()

        def timeout() -> None:
            answer.errback(Unknown("no answer"))

        timer = self.clock.callLater(TIMEOUT, timeout)

        def fire(result: T | ClusterError) -> None:
            if not timer.active():
                return
            timer.cancel()
            if isinstance(result, ClusterError):
                answer.errback(result)
            else:
                answer.callback(result)

        def arrive() -> None:
            if what in servers.faults.unavailable:
                return
            result: T | ClusterError
            try:
                result = land()
            except ClusterError as error:
                result = error
            if self.node not in servers.cutIn and random.random() >= servers.faults.lost:
                self.clock.callLater(servers.delay(), fire, result)

        late = random.random() < faults.late
        if self.node not in servers.cutOut or late:
            servers.clock.callLater(random.uniform(0, LATEST) if late else servers.delay(), arrive)
        return answer


class Feed:
    """Deliveries to one node, while it is not cut off; ``deliver`` delivers once and says whether there may be more."""

    def __init__(self, cluster: MemoryCluster, deliver: Callable[[], bool]) -> None:
        self.cluster = cluster
        self._deliver = deliver
        self._due = False
        cluster.servers.feeds.append(self)
        self.wake()

    def wake(self) -> None:
        """Deliver soon."""
        if not self._due:
            self._due = True
            self.cluster.clock.callLater(self.cluster.servers.delay(), self._go)

    def _go(self) -> None:
        self._due = False
        servers = self.cluster.servers
        if self not in servers.feeds or self.cluster.node in servers.cutIn:
            return
        for _ in range(servers.random.randint(1, 16)):
            if not self._deliver():
                return
            if self not in servers.feeds:
                return
        self.wake()

    def stop(self) -> None:
        """End the deliveries."""
        if self in self.cluster.servers.feeds:
            self.cluster.servers.feeds.remove(self)


@implementer(IMeshLink)
class MemoryLink:
    """The connection of one node to the mesh; what it sends while one side is cut off is lost."""

    maxPayload = 1 << 16

    def __init__(self, servers: MemoryServers, node: str) -> None:
        self._servers = servers
        self._node = node

    def start(self, received: Callable[[bytes], None], connected: Callable[[], None]) -> None:
        """See :class:`IMeshLink`; so with all below."""
        self.received = received
        self._servers.links[self._node] = self
        self._servers.clock.callLater(0, connected)

    def send(self, node: str, data: bytes) -> None:
        servers = self._servers
        if self._node not in servers.cutOut:
            for each in [node] if node else [other for other in servers.links if other != self._node]:
                servers.clock.callLater(_DELAY[1], self._arrive, each, data)

    def _arrive(self, node: str, data: bytes) -> None:
        link = self._servers.links.get(node)
        if link is not None and node not in self._servers.cutIn:
            link.received(data)

    def stop(self) -> None:
        self._servers.links.pop(self._node, None)
