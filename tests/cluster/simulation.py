"""A cluster of three nodes in memory, with all its faults, and a checker of what it promises.

``python -m tests.cluster.simulation SEED`` runs one seed and says what happened in it. A seed is some time in which
nodes are cut off, paused, killed (with or without the power), requests land late, answers get lost, reads are old and
the store is unavailable; then all of that ends, and :func:`check` compares the stream with what every node
was told, and with every copy.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from fleximq.cluster.follower import Follower
from fleximq.cluster.interfaces import HEADROOM, ClusterError
from fleximq.cluster.ownership import Ownership, State
from fleximq.cluster.stream_log import StreamLog, StreamWorker
from fleximq.cluster.stream_replica import StreamReplica
from fleximq.cluster.trim import trimCopy, trimStream
from fleximq.journal.files.file_system import readFile
from fleximq.journal.files.folder_files import ASIDE
from fleximq.journal.files.segment_table import SegmentTable, segmentName
from fleximq.journal.format.body import readBody
from fleximq.journal.format.frame import FrameKind, completeFrame
from fleximq.journal.format.record_columns import decodeRecords
from fleximq.journal.recovery.recovery import recover
from fleximq.journal.writing.commit import Commit, SegmentOpening, Snapshot
from fleximq.journal.writing.group_commit import GroupCommit
from tests.cluster.memory import MemoryCluster, MemoryServers
from tests.cluster.node_clock import NodeClock
from tests.journal.at_once import published
from tests.journal.recorder import Crash, Recorder

SHARD = 0
FOLDER = "/disk/journal"
JOURNAL = "00112233445566778899aabbccddeeff"
#: A segment is sealed when it has so many bytes.
SEGMENT_BYTES = 3000
#: Messages are so small that larger commits need several.
PAYLOAD = HEADROOM + 600


class Broken(Exception):
    """A promise was not kept; the text says which."""


class World(Protocol):
    """The surroundings of nodes; ``told`` has the offset of each confirmed payload, 0 for a refused one."""

    random: Random
    counts: Counter[str]
    told: dict[bytes, int]
    clock: Any
    #: The number of nodes with which a cluster begins.
    needed: int

    def connect(self, name: str, clock: NodeClock) -> Any:
        """Return a connection to the store."""

    def disconnect(self, cluster: Any) -> None:
        """End a connection, as the end of its process does."""

    def failed(self, error: BaseException) -> None:
        """Note an error of a callback."""


class Node:
    """One node, from its start to its end, and again: ``disk`` stays."""

    def __init__(self, simulation: World, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.wipe()
        self.alive = False
        # Clocks of nodes differ, and are set back now and then.
        self.skew = simulation.random.randint(-3_600_000_000, 3_600_000_000)

    def wipe(self) -> None:
        """Get a new disk."""
        self.disk = Recorder()
        self.disk.makeFolder("/disk")
        self.disk.syncFolder("/")

    def start(self) -> None:
        """Open the copy and take part."""
        simulation = self.simulation
        self.alive = True
        self.group: GroupCommit | None = None
        self.clock = NodeClock(simulation.clock)
        self.cluster = simulation.connect(self.name, self.clock)
        self.copy = StreamReplica(self.disk, FOLDER, SHARD)
        self.copy.open()
        self.copy.load(lambda sentence: self.simulation.failed(AssertionError(sentence)))
        self.ownership = Ownership(
            self.cluster,
            self.name,
            SHARD,
            self.clock,
            applied=lambda: self.follower.applied,
            takeOver=self.takeOver,
            lose=self.lose,
            probe=self.probe,
            end=lambda: self.copy.end,
            nodes=self.simulation.needed,
        )
        self.follower = Follower(self.cluster, SHARD, self.copy, self.clock, heard=self.ownership.heard)
        self.follower.start()
        self.ownership.start()
        self.clock.callLater(1, self.look)

    def look(self) -> None:
        """Look at the stream once a second, as the service of a node does."""
        owning = self.ownership.state is State.OWNING
        looked = Deferred.fromCoroutine(self.log.look() if owning else self.follower.look())
        looked.addErrback(lambda failure: self.ownership.deposed(failure.getErrorMessage()))
        looked.addBoth(lambda _: self.clock.callLater(1, self.look))

    async def takeOver(self, term: int) -> None:
        """Fence the stream, and begin with a checkpoint, as a journal does."""
        self.simulation.counts["takeover"] += 1
        self.follower.stop()
        self.log = log = StreamLog(
            self.cluster,
            SHARD,
            self.copy,
            node=self.name,
            term=term,
            journal=JOURNAL,
            clock=self.clock,
            now=lambda: round(self.clock.seconds() * 1e6) + self.skew + 10**15,
            randomId=lambda: self.simulation.random.getrandbits(64),
            confirmed=self.ownership.confirmed,
            heard=self.ownership.heard,
        )
        await log.fence()
        self.length = 0
        self.group = group = GroupCommit(
            now=log.now,
            next=self.copy.next,
            overloadedAt=1 << 20,
            settled=self.settled,
            failed=self.refused,
            rollDue=lambda: self.length > SEGMENT_BYTES,
            open=self.opening,
            onError=self.simulation.failed,
        )
        group.begin(log, StreamWorker(self.clock, self.ended))
        opened: Deferred[str | None] = Deferred()
        group.openSegment(self.opening(), opened.callback)
        reason = await opened
        if reason is not None:
            raise ClusterError(reason)

    def opening(self) -> SegmentOpening:
        """Return the beginning of a segment."""
        offset = self.copy.next
        return SegmentOpening(JOURNAL, Snapshot({}, (), 0, offset, self.log.now()), offset)

    def settled(self, commit: Commit) -> None:
        """Note the length of the segment."""
        self.length = commit.length

    def ended(self, error: Exception) -> None:
        """End the ownership, which an append showed to be over."""
        self.ownership.deposed(str(error))

    def refused(self, commit: Commit) -> None:
        """Give the shard to another node, once the refusal was told."""
        self.clock.callLater(0, self.ownership.deposed, str(commit.reason))

    def lose(self, reason: str) -> None:
        """Close everything without an answer, and follow."""
        self.simulation.counts["lost"] += 1
        self.log.stop()
        self.group = None
        self.follower.start()

    def probe(self) -> None:
        """Make an empty commit."""
        if self.group is not None and self.group.readOnly is None and self.group.idle:
            self.simulation.counts["probe"] += 1
            self.group.roll()

    def publish(self, payload: bytes) -> bool:
        """Publish a message; False if this node does not serve."""
        group = self.group
        if not (self.alive and not self.clock.paused and self.ownership.serving and group and group.readOnly is None):
            return False

        def told(offset: int, reason: str | None) -> None:
            if not self.alive:
                return  # an answer of real servers was on its way when the process was killed
            if self.group is not group:
                raise Broken(f"{self.name} answered after it had lost the shard")
            self.simulation.told[payload] = offset if reason is None else 0

        group.append(*published([payload]), told)
        return True

    def kill(self, power: bool) -> None:
        """End the process at once, and perhaps the power."""
        self.alive = False
        self.clock.ended = True
        self.simulation.disconnect(self.cluster)
        state = self.disk.now()
        if power:
            crash = Crash(self.disk)
            while crash.done < len(self.disk.changes):
                crash.step()
            state = crash.left(self.simulation.random, "torn")
        self.disk = Recorder(state)


class Simulation:
    """Three nodes for one seed."""

    needed = 3

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.clock = Clock()
        self.servers = MemoryServers(self.clock, random, PAYLOAD)
        self.told: dict[bytes, int] = {}
        self.counts: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self.nodes = [Node(self, name) for name in ("a", "b", "c")]
        self._number = 0
        for node in self.nodes:
            node.start()

    def failed(self, error: BaseException) -> None:
        """See :class:`World`; so with the next two."""
        self.errors.append(error)

    def connect(self, name: str, clock: NodeClock) -> MemoryCluster:
        return MemoryCluster(self.servers, name, clock)

    def disconnect(self, cluster: MemoryCluster) -> None:
        # A dead process hears nothing, but its late requests land.
        for feed in [each for each in self.servers.feeds if each.cluster is cluster]:
            feed.stop()

    def run(self, seconds: float = 50.0) -> None:
        """Let things go wrong for some time, then end all faults and check."""
        self.pass_(8)
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end:
            self.disturb()
            for _ in range(self.random.randint(1, 6)):
                self.publish()
                self.pass_(self.random.choice((0.0, 0.003, 0.02, 0.3, 1.0)))
        self.heal()
        for _ in range(120):
            self.pass_(1)
            if self.settled() and self.publish():
                break
        else:
            raise Broken("there is no service although all faults ended")
        for _ in range(120):
            self.pass_(0.5)
            if self.settled():
                break
        check(self, self.nodes, b"".join(piece.data for piece in self.servers.stream(SHARD).pieces))

    def pass_(self, seconds: float) -> None:
        """Let time pass, event by event."""
        end = self.clock.seconds() + seconds
        while self.clock.calls and self.clock.calls[0].getTime() <= end:
            self.clock.advance(max(0.0, self.clock.calls[0].getTime() - self.clock.rightNow))
            self._checkServing()
        self.clock.rightNow = end

    def _checkServing(self) -> None:
        if self.errors:
            raise self.errors[0]
        serving = [node.name for node in self.nodes if node.alive and not node.clock.paused and node.ownership.serving]
        if len(serving) > 1:
            raise Broken(f"{serving} serve at the same time")

    def publish(self) -> bool:
        """Publish a message at the node that serves; False if none does."""
        self._number += 1
        size = self.random.choice((1, 10, 100, 700))
        payload = b"%d " % self._number * size
        return any(node.publish(payload) for node in self.nodes)

    def disturb(self) -> None:
        """Begin or end one fault."""
        random, servers = self.random, self.servers
        node = random.choice(self.nodes)
        what = random.choices(
            (
                "faults",
                "cut",
                "pause",
                "kill",
                "wipe",
                "unavailable",
                "heal",
                "move",
                "trim",
                "full",
                "deaf",
                "nothing",
            ),
            (3, 3, 2, 2, 1, 1, 3, 1, 2, 1, 1, 9),
        )[0]
        self.counts[what] += 1
        if what == "faults":
            servers.faults.late = random.choice((0.0, 0.1, 0.4))
            servers.faults.lost = random.choice((0.0, 0.1, 0.4))
            servers.faults.old = random.choice((0.0, 0.3, 0.9))
        elif what == "cut":
            random.choice((servers.cutIn, servers.cutOut)).add(node.name)
            if random.random() < 0.5:
                servers.cutIn.add(node.name)
        elif what == "pause" and node.alive:
            node.clock.paused = True
        elif what == "kill" and node.alive:
            node.kill(random.random() < 0.5)
        elif what == "wipe" and node.alive:
            node.kill(True)
            node.wipe()
        elif what == "unavailable":
            servers.faults.unavailable ^= {random.choice(("streams", "keys"))}
        elif what == "full":
            servers.room = 0 if servers.room else max(1, servers.stream(SHARD).size + random.randint(0, 3000))
        elif what == "deaf":
            servers.deaf ^= {node.name}
        elif what == "heal":
            self.heal(random.random() < 0.5)
        elif what == "move" and node.alive and not node.clock.paused and node.ownership.state is State.OWNING:
            Deferred.fromCoroutine(node.ownership.move(random.choice(self.nodes).name)).addErrback(
                lambda failure: failure.trap(ClusterError)
            )
        elif what == "trim":
            self.trim(node)

    def trim(self, node: Node) -> None:
        """Let a node remove the beginning of the stream, and of its copy."""
        bases = [int(name[:20]) for name in node.disk.names(FOLDER) if name.endswith(".fxj")]
        if not node.alive or node.clock.paused or len(bases) < 3:
            return

        async def trim() -> None:
            self.counts["trimmed"] += await trimStream(node.cluster, SHARD, self.random.choice(bases[:-1]))
            if node.group is None:
                await trimCopy(node.cluster, SHARD, node.copy)

        Deferred.fromCoroutine(trim()).addErrback(lambda failure: failure.trap(ClusterError))

    def heal(self, all: bool = True) -> None:
        """End the faults of the store, or of the nodes too."""
        self.servers.heal()
        self.servers.room = 0
        if all:
            for node in self.nodes:
                if not node.alive:
                    node.start()
                elif node.clock.paused:
                    node.clock.resume(self.random)

    def settled(self) -> bool:
        """Whether every copy has all that the stream has."""
        last = len(self.servers.stream(SHARD).pieces)
        return all(node.alive and node.copy.usable and node.copy.sequence == last for node in self.nodes)


def check(world: World, nodes: Sequence[Node], stream: bytes) -> None:
    """Compare all bytes of the stream with what was told, and with every copy.

    :raises Broken: a promise was not kept.
    """
    found = recordsOf(stream)
    for payload, offset in world.told.items():
        if offset and found.get(payload) != offset:
            raise Broken(f"{payload[:10]!r} was confirmed with offset {offset}, but has {found.get(payload)}")
        if not offset and payload in found:
            raise Broken(f"{payload[:10]!r} was refused, but has offset {found[payload]}")
    numbers = [int(payload.split()[0]) for payload in found]
    if numbers != sorted(numbers):
        raise Broken("the order of the stream is not that of publishing")
    for node in nodes:
        compare(node, stream)
        world.counts["aside"] += any(name.endswith(ASIDE) for name in node.disk.names(FOLDER))
    confirmed = sum(map(bool, world.told.values()))
    world.counts["confirmed"] += confirmed
    world.counts["refused"] += len(world.told) - confirmed
    world.counts["unconfirmed"] += len(found) - confirmed


def recordsOf(stream: bytes) -> dict[bytes, int]:
    """Return the offset of each payload; check the chain of frames, offsets, times and terms."""
    found: dict[bytes, int] = {}
    position, offset, time, last, previous = 0, 1, 0, 0, 0
    segment = None
    while position < len(stream):
        header, frame = completeFrame(stream, position)
        if header.kind == FrameKind.SEGMENT:
            term = readBody(header, frame, FrameKind.SEGMENT)["term"]
            if term < last or header.segment == segment:
                raise Broken(f"term {term} comes behind {last}")
            last, segment, previous = term, header.segment, 0
        if (header.position, header.previous, header.segment, header.flags) != (position, previous, segment, 0):
            raise Broken(f"the frame at {position} is not chained")
        if header.baseOffset != offset:
            raise Broken(f"the frame at {position} has offset {header.baseOffset}, not {offset}")
        if header.kind == FrameKind.RECORDS:
            if header.firstTime < time:
                raise Broken(f"the frame at {position} is older than the one before")
            time = header.lastTime
            for payload in decodeRecords(header, frame).payloads:
                if bytes(payload) in found:
                    raise Broken(f"{bytes(payload[:10])!r} is there twice")
                found[bytes(payload)] = offset
                offset += 1
        previous, position = header.crc, position + header.length
    return found


def compare(node: Node, stream: bytes) -> None:
    """Compare a copy with the stream."""
    names = [name for name in node.disk.names(FOLDER) if name.endswith(".fxj")]
    position = int(names[0][:20])
    for name in names:
        if name != segmentName(position):
            raise Broken(f"{node.name} has {names}")
        content = readFile(node.disk, f"{FOLDER}/{name}")
        if content != stream[position : position + len(content)]:
            raise Broken(f"{name} of {node.name} differs from the stream")
        position += len(content)
    if position != len(stream):
        raise Broken(f"the copy of {node.name} ends at {position}, the stream at {len(stream)}")
    known, read = (dict(each.bounds()) for each in tables(node.disk, node.copy))
    if known != read:
        raise Broken(f"{node.name} knows {known} in its copy, which has {read}")


def tables(disk: Recorder, copy: StreamReplica) -> tuple[SegmentTable, SegmentTable]:
    """Return what a copy knows of its segments, and what a recovery reads in them."""
    assert copy.segments is not None
    return copy.segments, recover(Recorder(disk.now()), FOLDER, copy.journal).segments


def main(arguments: list[str]) -> None:
    """Run the seeds from one number to another, and print what happened."""
    first, last = int(arguments[0]), int(arguments[-1])
    counts: Counter[Any] = Counter()
    for seed in range(first, last + 1):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Exception as error:
            raise Broken(f"seed {seed}: {error}") from error
        counts += simulation.counts
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1:])
