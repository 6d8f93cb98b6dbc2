"""fleximq.cluster.owner_journal: brokers that take the journal of a shard from each other, with queues and offsets."""

from functools import partial
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.replay.feed import DeferredForm
from fleximq.broker.replay.replay import Start
from fleximq.cluster.follower import Follower
from fleximq.cluster.interfaces import Deposed
from fleximq.cluster.owner_journal import OwnerJournal
from fleximq.cluster.stream_log import StreamLog, StreamWorker
from fleximq.cluster.stream_replica import StreamReplica
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.errors import NotKept
from fleximq.journal.journal_folder import JournalFolder
from fleximq.journal.opened_journal import JournalLimits
from fleximq.journal.recovery.recovery import recover
from fleximq.services.journal_service import restore
from fleximq.services.mesh_node import Membership
from fleximq.services.meshed_broker import MeshedBroker
from fleximq.values.message import Content, Message
from fleximq.values.records import PublishedRun, Run
from tests.broker.parts import makeBroker
from tests.broker.replay.test_feed import Reader, WithOffsets
from tests.cluster.memory import MemoryCluster, MemoryLink, MemoryServers
from tests.cluster.node_clock import NodeClock
from tests.journal.at_once import ReaderAtOnce, contextAtOnce
from tests.journal.recorder import Recorder

FOLDER = "/disk/journal"


class Node:
    """A node with a copy; ``broker`` works from :meth:`take` on. ``told`` has the result of each commit."""

    def __init__(self, servers: MemoryServers, clock: Clock, name: str, term: int, **rules: Any) -> None:
        self.term = term
        self.name = name
        self.servers = servers
        self.disk = Recorder()
        self.disk.makeFolder("/disk")
        self.disk.syncFolder("/")
        self.clock = NodeClock(clock)
        self.cluster = MemoryCluster(servers, name, self.clock)
        self.copy = StreamReplica(self.disk, FOLDER, 0)
        self.copy.open()
        self.follower = Follower(self.cluster, 0, self.copy, self.clock)
        self.follower.start()
        self.told: list[object] = []
        self.ended: list[Exception] = []
        self.trims: list[int] = []
        self.readers: list[Reader] = []
        self.journal = OwnerJournal(
            self.copy,
            JournalFolder(
                contextAtOnce(self.disk, FOLDER, self.now), limits=JournalLimits(segmentBytes=2000),
                makeReader=ReaderAtOnce,
            ),
            trimmed=self.trims.append,
        )  # fmt: skip
        self.makeBroker = partial(makeBroker, clock, self.journal, durable=("t", "q"), **rules)
        self.broker = self.makeBroker()
        self.me = self.broker.join("minimq")

    def now(self) -> int:
        """Return the time, which is behind on the second node."""
        return round(self.clock.seconds() * 1e6) + 10**15 - self.term * 3_600_000_000

    def take(self) -> "Deferred[Any]":
        """Take the shard."""
        self.follower.stop()
        self.log = StreamLog(
            self.cluster,
            0,
            self.copy,
            node=self.name,
            term=self.term,
            journal="00112233445566778899aabbccddeeff",
            clock=self.clock,
            now=self.now,
            randomId=lambda: self.term,
        )
        self.journal.queues = self.broker.checkpointer
        worker = StreamWorker(self.clock, self.ended.append)
        return Deferred.fromCoroutine(self.journal.take(self.log, worker, partial(restore, self.broker), self.clock))

    def read(self) -> None:
        """Serve clients from the copy, as a node in a mesh does."""
        self.copy.load(self.told.append)
        self.journal.follow()
        link, turn = MemoryLink(self.servers, self.name), WriteTurn(self.clock)
        member = Membership(turn, link, self.name, "1", self.clock, self.cluster.nextBlock, lambda: "")
        broker: Any = self.makeBroker(make=partial(MeshedBroker, member))
        self.broker = broker
        self.copy.added = broker.node.stored
        self.owns = broker.node.own
        broker.node.start()

    def subscribe(self, topic: str, start: Start | None = None) -> Reader:
        """Return what a new client receives of a topic."""
        reader = Reader()
        reader.form = DeferredForm(WithOffsets())
        client = self.broker.join("fleximq", None)
        if start is None:
            reader.form = WithOffsets()
            self.broker.subscribe(client, reader, topic)
            self.broker.recall(client, reader, topic)
        else:
            self.broker.follow(client, reader, topic, start)
        self.readers.append(reader)
        return reader

    def produce(self, topic: str, *names: str) -> None:
        """Publish messages that are kept."""
        envelope = Envelope(self.broker.topicFor(self.me, topic), self.me, MessageSource(), 1, durable=True)
        body = [Message(name.encode(), Content.TEXT, 1, name) for name in names]
        self.broker.produce(envelope, body, len(body), lambda reason, indexes: self.told.append(reason))

    def consume(self, number: int, topic: str = "q") -> list[str]:
        """Take messages from a queue."""
        return [each.message.payload.decode() for each in self.broker.consumeMany(self.me, topic, number)]


class OwnerJournalTests(SynchronousTestCase):
    """Two nodes on one store."""

    def setUp(self, **rules: Any) -> None:
        self.clock = Clock()
        self.servers = MemoryServers(self.clock, Random(1))
        self.first, self.second = (
            Node(self.servers, self.clock, name, term, **rules) for term, name in enumerate("ab", 1)
        )
        self.taken(self.first)

    def pass_(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 200)):
            self.clock.advance(0.005)

    def taken(self, node: Node) -> None:
        """Let a node take the shard."""
        done = node.take()
        self.pass_(3)
        self.successResultOf(done)

    def test_killed(self) -> None:
        """What was answered is there at the next owner: messages, queues and what is in flight; offsets go on."""
        self.first.produce("q", "one", "two", "three")
        self.pass_()
        self.assertEqual(self.first.told, [None])
        end = self.first.journal.end
        self.assertEqual(self.first.consume(1), ["one"])
        self.pass_()
        self.first.clock.ended = True
        self.taken(self.second)
        self.assertEqual(self.second.journal.end, end)
        self.assertEqual(self.second.consume(5), ["two", "three"])
        self.second.produce("q", "four")
        self.pass_()
        self.assertEqual(self.second.journal.end, end + 1)
        self.assertEqual(self.second.consume(5), ["four"])
        bounds = self.second.journal.bounds()["q"]
        self.assertEqual((bounds.first, bounds.last), (1, 4))

    def test_readByFollower(self) -> None:
        """A node that does not own the shard delivers what the owner stores, once and in order, from any start, also
        when it becomes the owner.
        """
        self.first.produce("t", "one", "two")
        self.pass_()
        node = self.second
        node.read()
        self.pass_(2)
        plain, first, last, later = (
            node.subscribe("t", start) for start in (None, Start("first"), Start("last"), Start("offset", 5))
        )
        pattern = node.subscribe("#", Start("offset", 2))
        self.first.produce("t", "three")
        self.first.produce("q", "four")
        self.stage("t", "five", "six")
        self.first.produce("t", "seven")
        self.pass_()
        self.settle(node)
        self.assertEqual(plain.messages, [3, 5, 6, 7])
        self.assertEqual([each.offsets for each in (first, last)], [[1, 2, 3, 5, 6, 7], [2, 3, 5, 6, 7]])
        self.assertEqual((later.offsets, pattern.offsets), ([5, 6, 7], [2, 3, 4, 5, 6, 7]))
        retained = node.subscribe("r")
        self.first.clock.ended = True
        self.taken(node)
        node.owns()
        node.produce("t", "eight")
        self.pass_()
        self.settle(node)
        again = node.subscribe("t", Start("offset", 9))
        self.settle(node)
        self.assertEqual([each.offsets[-2:] for each in (first, later, pattern)], [[7, 8]] * 3)
        self.assertEqual(plain.messages[-2:], [7, 8])
        self.assertEqual((len(first.offsets), retained.offsets, again.offsets), (7, [], []))

    def test_deliveriesBeforeTakeover(self) -> None:
        """A node that takes over first delivers to its subscribers what waits for a transaction that it reads: the
        queues, which it restores from the journal, would get these records a second time.
        """
        node = self.second
        node.read()
        self.pass_(2)
        subscriber = node.subscribe("#")
        reader: Any = node.journal._reader
        reader.patient = True
        self.stage("t", "one")
        self.first.produce("q", "two", "three")
        self.pass_()
        self.assertEqual(self.first.consume(1), ["two"])
        self.first.broker.acknowledgeMessages(["two"])
        self.pass_()
        self.first.clock.ended = True
        done = node.take()
        self.pass_(3)
        self.assertNoResult(done)
        self.assertEqual(subscriber.messages, [])
        reader.patient = False
        reader.answer()
        self.pass_(1)
        self.successResultOf(done)
        self.assertEqual(subscriber.messages, [1, 2, 3])
        node.owns()
        self.assertEqual(node.consume(5), ["three"])

    def stage(self, topic: str, *names: str) -> None:
        """Publish messages as a transaction."""
        self.first.broker.transactions.commit("query", 1, self.staged(topic, *names), lambda offset, reason: None)

    def staged(self, topic: str, *names: str) -> list[str]:
        """Return the tokens of a part of a transaction."""
        broker = self.first.broker
        tokens: list[str] = []
        run = Run([b""] * len(names), [name.encode() for name in names], [0] * len(names))
        me = self.first.me
        part = [PublishedRun(topic, me.id, me.name, me.dialect, run)]
        broker.journal.stage("query", 1, "part", part, lambda token, reason: tokens.append(str(token)))
        self.pass_()
        return tokens

    def settle(self, node: Node) -> None:
        """Let the readers of a node do what they do later."""
        for _ in range(5):
            for reader in node.readers:
                reader.settle()

    def cut(self, milliseconds: int) -> int:
        """Kill the owner after some time, and let the other node take over; return what the stream had before."""
        for _ in range(milliseconds):
            self.clock.advance(0.001)
        self.first.clock.ended = True
        stored = len(self.servers.stream(0).pieces)
        self.taken(self.second)
        return stored

    def test_transactionCut(self) -> None:
        """Whenever an owner is killed in a commit of staged records, the repeat at the next one stores them once."""
        seen = set()
        told: list[str | None] = []
        for milliseconds in range(16):
            self.setUp()
            told.clear()
            tokens = self.staged("t", "one", "two")
            for node in (self.first, self.second):
                node.broker.transactions.commit("query", 1, tokens, lambda offset, reason: told.append(reason))
                if node is self.first:
                    stored = self.cut(milliseconds)
                    seen.add((stored, len(told)))
            self.pass_()
            self.assertEqual(told[-1:], [None])
            self.assertEqual(self.second.journal.bounds()["t"][:2], (1, 2))
        self.assertEqual(len(seen), 3)

    def test_deadLetterCut(self) -> None:
        """Whenever an owner is killed while it moves a dead letter, the next one has it, as such or in its queue."""
        seen = set()
        for milliseconds in range(490, 520):
            self.setUp(redelivery=0.5, maxDeliveries=1)
            self.first.produce("q", "one")
            self.pass_(0.1)
            self.assertEqual(self.first.consume(1), ["one"])
            seen.add(self.cut(milliseconds))
            found = self.second.consume(5) + self.second.consume(5, "$dead/q")
            self.assertEqual(set(found), {"one"})
        self.assertEqual(len(seen), 3)  # before it is stored, before the note that it was moved, and after that

    def test_handedOn(self) -> None:
        """An owner that stops in order writes all that waits, and a last checkpoint."""
        self.first.produce("q", *(f"m{number}" for number in range(40)))
        done = Deferred.fromCoroutine(self.first.journal.hand(self.first.clock))
        self.pass_()
        self.successResultOf(done)
        self.assertEqual(self.first.told, [None])
        self.first.journal.close()
        self.assertTrue(recover(self.first.disk, FOLDER, self.first.copy.journal).clean)
        self.taken(self.second)
        self.assertEqual(len(self.second.consume(100)), 40)

    def test_deposed(self) -> None:
        """A node that was cut off while another took the shard answers nothing, and learns that its time is over."""
        self.servers.cutOut.add("a")
        self.first.produce("q", "late")
        self.taken(self.second)
        self.servers.heal()
        self.pass_(5)
        self.assertEqual(self.first.told, [])
        self.assertIsInstance(self.first.ended[0], Deposed)
        self.assertEqual(self.second.consume(5), [])

    def test_full(self) -> None:
        """Publications leave a reserve in a full stream, so that others can take over and acknowledge; when messages
        have expired, they are stored again.
        """
        self.servers.room = 24_000
        self.looked(self.first)
        for number in range(60):
            try:
                self.first.produce("q", f"{number}-" + "x" * 500)
            except NotKept as error:
                self.assertEqual(error.reason, "the stream of the cluster is full")
                break
            self.looked(self.first)
        stored = len(self.first.told)
        self.assertEqual(set(self.first.told), {None})
        self.assertIn(self.servers.stream(0).size, range(18_000, 22_000))
        for term, former in ((2, self.first), (3, self.second)):
            former.clock.ended = True
            self.second = Node(self.servers, self.clock, f"n{term}", term)
            self.pass_()
            self.taken(self.second)
            self.assertRaises(NotKept, self.second.produce, "q", "late")
        self.assertEqual(len(self.second.consume(100)), stored)
        self.pass_()
        self.second.cluster.purge(0, len(self.servers.stream(0).pieces) - 3)
        self.pass_()
        self.looked(self.second)
        self.second.produce("q", "again")
        self.pass_()
        self.assertEqual((self.second.told, self.second.consume(5)), ([None], ["again"]))

    def test_freed(self) -> None:
        """Whenever the folder has been shortened, also because the stream was full, the stream is shortened as well."""
        self.first.trims.clear()
        owned = self.first.journal._owned
        assert owned is not None
        owned.cleaner.passed()
        self.assertEqual(self.first.trims, [0])

    def looked(self, node: Node) -> None:
        """Let a node look at the room in the stream."""
        done = Deferred.fromCoroutine(node.log.look())
        self.pass_(0.1)
        self.successResultOf(done)

    def test_times(self) -> None:
        """Times do not go back at an owner whose clock is an hour behind."""
        self.first.produce("t", "early")
        self.pass_()
        self.first.clock.ended = True
        self.taken(self.second)
        self.second.produce("t", "late")
        self.pass_()
        found: list[Any] = []
        self.second.journal.read(1, lambda topic: True, 1 << 20, lambda batches, next: found.extend(batches))
        times = [time for each in found for time in each.timestamps]
        self.assertEqual(len(times), 2)
        self.assertEqual(times, sorted(times))

    def test_segments(self) -> None:
        """Both folders have the same segments, as the owner divides them."""
        for number in range(60):
            self.first.produce("t", f"{number}" * 40)
            self.pass_(0.1)
        self.pass_()
        names = [name for name in self.first.disk.names(FOLDER) if name.endswith(".fxj")]
        self.assertGreater(len(names), 2)
        self.assertEqual([name for name in self.second.disk.names(FOLDER) if name.endswith(".fxj")], names)

    def test_faults(self) -> None:
        """There is no reopening after a fault: another node takes the shard."""
        found: list[str | None] = []
        self.first.journal.reopen(found.append)
        self.assertEqual(found, ["a node of a cluster hands its journal on after a fault"])
