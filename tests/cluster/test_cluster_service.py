"""fleximq.services.cluster_service: nodes as services, and two brokers on a real server, one of which is killed."""

import io
import json
import signal
import socket
import ssl
import tempfile
import time
from contextlib import redirect_stdout
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.cli.main import main
from fleximq.cluster.interfaces import AHEAD
from fleximq.cluster.node_state import NodeState
from fleximq.cluster.owner_journal import OwnerJournal
from fleximq.cluster.stream_log import FENCE
from fleximq.cluster.stream_replica import StreamReplica
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.journal.journal_folder import JournalFolder
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.services.journal_service import restore
from fleximq.services.network.forwarding import OwnerAddress
from fleximq.services.network.node_ports import NodePorts
from fleximq.values.message import Content, Message
from tests.broker.parts import makeBroker
from tests.broker_process import BrokerProcess
from tests.certificates import Made, makeCertificate
from tests.cluster.memory import MemoryCluster, MemoryServers
from tests.cluster.nats.servers import MISSING, Servers
from tests.cluster.node_clock import NodeClock
from tests.journal.at_once import ReaderAtOnce, contextAtOnce
from tests.journal.recorder import Recorder

if not MISSING:
    from fleximq.services.cluster_service import ClusterService, OwnersTurn

#: In the log of an owner.
OWNS = "this node owns shard 0"


class MemoryStore(MemoryCluster):
    """A connection that is there at once."""

    def start(self) -> "Deferred[None]":
        """Connect."""
        return succeed(None)

    def stop(self) -> "Deferred[None]":
        """Disconnect."""
        return succeed(None)


class NoWakeup:
    """Calls at once."""

    def start(self) -> None:
        """Do nothing; so with the next."""

    def stop(self) -> None:
        pass


class Node:
    """A node with a broker; ``served`` are its services, ``ended`` why its process had to end."""

    durable = "t q"

    def __init__(self, servers: MemoryServers, clock: Clock, name: str, disk: Recorder | None = None) -> None:
        if disk is None:
            disk = Recorder()
            disk.makeFolder("/disk")
            disk.syncFolder("/")
        self.disk = disk
        self.clock = NodeClock(clock)
        copy = StreamReplica(disk, "/disk/journal", 0)
        self.journal = journal = OwnerJournal(
            copy,
            JournalFolder(
                contextAtOnce(disk, "/disk/journal", lambda: round(clock.seconds() * 1e6) + 10**15),
                makeReader=ReaderAtOnce,
            ),
            trimmed=lambda position: self.service.trim(position),
        )
        self.broker = makeBroker(clock, journal, durable=("t", "q"))
        journal.queues = self.broker.checkpointer
        self.served = MultiService()
        self.inner = Service()
        self.inner.setServiceParent(self.served)
        self.program = Service()
        self.ended: list[str] = []
        self.ports = NodePorts(MemoryReactorClock(), name, 10)

        self.service = ClusterService(
            self.clock,
            MemoryStore(servers, name, self.clock),
            name,
            copy,
            journal,
            self.ports,
            self.served,
            NoWakeup(),  # type: ignore[arg-type]
            partial(restore, self.broker),
            _abort,
            self.end,
            settings={"durable": self.durable},
            stop=lambda: self.service.stopService(),
        )
        self.program.setServiceParent(self.service.owned)

    def end(self, sentence: str) -> None:
        """End the process."""
        self.ended.append(sentence)
        self.clock.ended = True

    def produce(self, name: str) -> list[str | None]:
        """Publish a message that is kept; return a list that gets the result."""
        told: list[str | None] = []
        me = self.broker.join("minimq")
        envelope = Envelope(self.broker.topicFor(me, "q"), me, MessageSource(), 1, durable=True)
        body = [Message(name.encode(), Content.TEXT, 1, name)]
        self.broker.produce(envelope, body, 1, lambda reason, indexes: told.append(reason))
        return told

    def consume(self) -> list[bytes]:
        """Take all messages."""
        return [each.message.payload for each in self.broker.consumeMany(self.broker.join("minimq"), "q", 100)]


def _abort(sentence: str) -> NoReturn:
    raise AssertionError(sentence)


class ClusterServiceTests(SynchronousTestCase):
    """Two nodes on a store in memory; the first one owns the shard."""

    if MISSING:
        skip = MISSING

    def setUp(self) -> None:
        self.clock = Clock()
        self.servers = MemoryServers(self.clock, Random(1))
        self.patch(ReaderThread, "begin", lambda reader: None)
        self.first, self.second = (Node(self.servers, self.clock, name) for name in "ab")
        self.first.service.startService()
        self.pass_(3)
        self.second.service.startService()
        self.pass_(2)

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)

    def test_serves(self) -> None:
        """The owner's broker runs, that of the other node only in a mesh, and there without programs."""
        self.assertTrue(self.first.inner.running and self.first.program.running)
        self.assertFalse(self.second.inner.running)
        self.second.service._beginServing()
        self.assertEqual((self.second.inner.running, self.second.program.running), (True, False))
        self.first.clock.ended = True
        self.pass_(10)
        self.assertTrue(self.second.program.running)

    def test_forwards(self) -> None:
        """The other node learns from the owner's key where to forward, and serves itself when it takes over."""
        own = self.first.ports.about["forward"]
        self.assertEqual(self.second.ports.forwarding.place, OwnerAddress(**own))
        self.assertEqual((own["host"], len(own["secret"])), ("127.0.0.1", 32))
        self.assertIsNone(self.first.ports.forwarding.place)
        self.first.clock.ended = True
        self.pass_(10)
        self.assertIsNone(self.second.ports.forwarding.place)
        self.assertEqual([each.ports.isServing for each in (self.first, self.second)], [True, True])

    def test_overview(self) -> None:
        """Each node shows the owner, and all living nodes with how far their copies lag behind."""
        self.first.produce("one")
        self.pass_(2)
        for node, state in ((self.first, "owning"), (self.second, "following")):
            found = node.service.operator.overview()
            self.assertEqual((found["owner"], found["state"], found["changes"]), ("a", state, 0))
            rows = [(row["node"], row["state"], row["behind"], row["differs"]) for row in found["nodes"]]
            self.assertEqual(rows, [("a", "owning", None, []), ("b", "following", 0, [])])
        self.first.clock.ended = True
        self.pass_(10)
        found = self.second.service.operator.overview()
        self.assertEqual((found["owner"], found["changes"]), ("b", 1))
        self.assertEqual([row["node"] for row in found["nodes"]], ["b"])

    def test_killed(self) -> None:
        """The other node takes over, with all that was confirmed."""
        told = self.first.produce("one")
        self.pass_(1)
        self.assertEqual(told, [None])
        self.first.clock.ended = True
        self.pass_(10)
        self.assertTrue(self.second.inner.running)
        self.assertEqual(self.second.consume(), [b"one"])

    def test_stopped(self) -> None:
        """A node that stops in order hands the shard on, so that the other one serves at once."""
        self.first.produce("one")
        stopped = self.first.service.stopService()
        self.pass_(0.4)
        self.successResultOf(stopped)
        self.assertEqual((self.first.ended, self.first.inner.running), ([], False))
        self.assertTrue(self.second.inner.running)
        self.assertEqual(self.second.consume(), [b"one"])

    def ask(self, do: str, to: str, late: float = 0.0) -> Any:
        """Give the owner a command; return the answer."""
        question = {"do": do, "to": to, "at": NodeState.of(self.servers.nodes["a"][1]).at - late}
        answer = self.second.service._cluster.ask("a", question)
        self.pass_(0.1)
        return self.successResultOf(answer)["error"]

    def test_moved(self) -> None:
        """A command moves the shard within a second; the process of the former owner ends."""
        told = self.first.produce("one")
        self.assertEqual(self.ask("move", "b"), "")
        self.pass_(1)
        self.assertEqual((told, self.second.inner.running), ([None], True))
        self.assertEqual(self.first.ended, ["shard 0 was handed to b"])
        self.assertEqual(self.second.consume(), [b"one"])

    def test_notMoved(self) -> None:
        """A command that is old, unknown, or for a node that cannot own the shard, changes nothing."""
        self.assertEqual(self.ask("move", "b", 6), "the command is older than 5 seconds")
        self.assertEqual(self.ask("move", "c"), "there is no living node named c; these are: a, b")
        self.assertEqual(self.ask("drop", "b"), "a does not know the command drop")
        answer = self.second.service._cluster.ask("a", {"do": "state"})
        self.pass_(0.1)
        found = self.successResultOf(answer)
        self.assertEqual((found["about"]["state"], found["applied"]), ("owning", self.servers.nodes["a"][1].applied))
        self.second.service.follower.reason = "it is damaged"
        self.pass_(1.5)
        self.assertEqual(self.ask("move", "b"), "the copy of b cannot be used: it is damaged")
        self.pass_(3)
        self.assertEqual((self.first.inner.running, self.second.inner.running), (True, False))

    def ready(self, node: Node) -> tuple[bool, str]:
        """Return whether a node is ready, and why, as a request for it does."""
        done = Deferred.fromCoroutine(node.service.operator.freshen(node.journal.probe))
        self.pass_(3)
        self.successResultOf(done)
        return node.service.operator.ready()

    def test_ready(self) -> None:
        """An owner is ready if the stream accepts something now, a follower if its copy could be used."""
        self.pass_(20)
        owner, follower = self.first.service.operator, self.second.service.operator
        self.assertFalse(owner.ready()[0])  # nothing was appended in a while
        good, words = self.ready(self.first)
        self.assertTrue(good)
        self.assertIn("owns shard 0 in term 1; the stream accepted the last append", words)
        self.assertEqual(follower.ready(), (True, "follows a"))
        lag = {"cluster_lag_messages": 0, "cluster_lag_seconds": 0}
        self.assertEqual(follower.values(), {"cluster_owner": 0, "cluster_term": 1, "cluster_owner_changes": 0, **lag})
        self.assertEqual(owner.values(), {"cluster_owner": 1, "cluster_term": 1, "cluster_owner_changes": 0})
        self.servers.faults.unavailable = {"streams"}
        self.pass_(6)
        good, words = self.ready(self.first)
        self.assertFalse(good)
        self.assertIn("seconds ago, at most 5 are good", words)

    def test_ownerChanged(self) -> None:
        """A change of the owner is logged and counted by each node; without a living owner none is ready."""
        self.second.service.follower.reason = "it is damaged"
        self.pass_(2)
        self.assertEqual(self.second.service.operator.ready(), (False, "the copy of b cannot be used: it is damaged"))
        self.first.clock.ended = True
        self.pass_(6)
        self.assertEqual(self.second.service.operator.ready(), (False, "shard 0 has no living owner"))
        self.second.service.follower.reason = ""
        with capturedLogs() as logged:
            self.pass_(4)
        said = [event["term"] for event in logged if event.get("log_format", "").startswith("{node} owns shard")]
        self.assertEqual((said, self.second.service.operator.values()["cluster_owner_changes"]), ([2], 1))

    def test_notRefilled(self) -> None:
        """A stream with an owner gets nothing from a copy that has more."""
        self.second.service.follower._isBehind = True
        answer = self.first.service._cluster.ask("b", {"do": "refill", "at": self.second.clock.seconds()})
        self.pass_(0.1)
        self.assertIn("a owns shard 0 and appends to its stream; --from b", self.successResultOf(answer)["error"])

    def test_differs(self) -> None:
        """A node with other settings than the owner is logged once, by each node."""
        self.patch(Node, "durable", "t")
        third = Node(self.servers, self.clock, "c")
        with capturedLogs() as logged:
            third.service.startService()
            self.pass_(3)
        said = [event["names"] for event in logged if "other settings" in (event.get("log_format") or "")]
        self.assertEqual(said, ["durable"] * 3)

    def test_lost(self) -> None:
        """A node that was cut off ends its process when it learns that another one owns the shard."""
        self.servers.cutOut.add("a")
        self.servers.cutIn.add("a")
        told = self.first.produce("one")
        self.pass_(10)
        self.assertTrue(self.second.inner.running)
        self.servers.heal()
        self.pass_(5)
        self.assertEqual((told, len(self.first.ended)), ([], 1))
        self.assertIn("does not own shard 0 any more", self.first.ended[0])
        self.assertEqual(self.second.consume(), [])

    def test_unusable(self) -> None:
        """A node whose folder has more than the stream says that it cannot own the shard, and no other node does."""
        third = Node(MemoryServers(self.clock, Random(1)), self.clock, "c")
        third.disk.makeFolder("/disk/journal")
        for name in self.first.disk.names("/disk/journal"):
            copied = self.first.disk.open(f"/disk/journal/{name}")
            descriptor = third.disk.create(f"/disk/journal/{name}")
            third.disk.write(descriptor, [self.first.disk.read(copied, 1 << 20, 0)], 0)
        third.disk.remove("/disk/journal/lock")
        with capturedLogs() as logged:
            third.service.startService()
            self.pass_(20)
        self.assertFalse(third.inner.running)
        said = [event["reason"] for event in logged if "cannot own" in (event.get("log_format") or "")]
        self.assertEqual(said, ["the stream ends with message 0, but this copy has 16"])

    def test_setBack(self) -> None:
        """Where an older stream was put in place, all nodes stop and keep their copies; a command fills the stream from
        the longest of them, and one serves again, with everything.
        """
        stream = self.servers.stream(0)
        told = [self.first.produce("early")]
        self.pass_(1)
        older = list(stream.pieces)
        told.append(self.first.produce("late"))
        self.pass_(1)
        for created, pieces in ((1, older), (2, []), (3, older[:FENCE])):
            for each in (self.first, self.second):
                each.clock.ended = True
            self.servers.answers.clear()
            stream.created, stream.pieces = created, list(pieces)
            self.first, self.second = self.again(self.first), self.again(self.second)
            self.pass_(20)
            self.assertEqual((self.first.inner.running, self.second.inner.running), (False, False))
            self.assertEqual(self.first.service.follower.applied, AHEAD)
            self.assertEqual(self.ask("refill", ""), "")
            self.pass_(20)
            self.assertEqual((self.first.inner.running, self.second.inner.running), (True, False))
            self.assertEqual(self.second.service.follower.reason, "")
            self.assertEqual(self.ask("refill", ""), "the stream has all of the copy of a")
        self.assertEqual((told, self.first.consume()), ([[None], [None]], [b"early", b"late"]))
        contents = [
            b"".join(state.files[state.names[name]] for name in sorted(state.names) if name.endswith(".fxj"))
            for state in (self.first.disk.now(), self.second.disk.now())
        ]
        self.assertEqual(*contents)

    def test_otherStream(self) -> None:
        """Where another stream was begun and used in place of the one of a copy, a command replaces its content by that
        copy, and another lets a node with the wrong copy begin a new one.
        """
        self.first.produce("one")
        self.pass_(1)
        for each in (self.first, self.second):
            each.clock.ended = True
        self.servers.answers.clear()
        self.servers.streams.clear()
        self.servers.nodes.clear()
        self.servers.owners.clear()
        stream = self.servers.stream(0)
        stream.created = 2
        new = Node(self.servers, self.clock, "new")
        new.service.startService()
        self.pass_(5)
        self.assertEqual(new.produce("wrong"), [])
        self.first, self.second = self.again(self.first), self.again(self.second)
        self.pass_(10)
        self.assertTrue(new.inner.running)
        self.assertIn("this copy has another frame; --from a", self.ask("refill", ""))
        self.assertEqual(self.ask("replace", ""), "")
        self.pass_(1)
        self.assertIn("this node does not own shard 0 any more: a owns", new.ended[0])
        new = self.again(new)
        self.pass_(20)
        self.assertIn("new", self.servers.nodes)
        answer = self.first.service._cluster.ask("new", {"do": "discard", "at": self.clock.seconds()})
        self.pass_(1)
        self.assertEqual(self.successResultOf(answer), {"error": ""})
        self.assertIn("*.aside", new.ended[0])
        new = self.again(new)
        self.pass_(20)
        self.assertEqual([each.inner.running for each in (self.first, self.second)].count(True), 1)
        owner = self.first if self.first.inner.running else self.second
        self.assertEqual(owner.consume(), [b"one"])
        for each in (self.first, self.second, new):
            self.assertTrue(each.service.follower.copy.usable)
            self.assertEqual(each.service.follower.copy.end, owner.service.follower.copy.end)

    def test_damagedStream(self) -> None:
        """An owner finds messages that the stream has lost, and says so; a follower writes all messages again, with
        those that it had not received yet.
        """
        stream = self.servers.stream(0)
        told = self.first.produce("one")
        self.pass_(1)
        stream.lost.add(2)
        with capturedLogs() as logged:
            self.pass_(30)
        said = [event["number"] for event in logged if "has lost {number}" in (event.get("log_format") or "")]
        self.assertEqual((said, self.first.service.values()["cluster_stream_lost_messages"]), ([1], 1))
        self.pass_(1)
        self.assertEqual(NodeState.of(self.servers.nodes["a"][1]).lost, 1)
        self.assertEqual(self.ask("replace", ""), "a owns shard 0; name a node that follows")
        self.servers.cutIn.add("b")
        later = self.first.produce("two")
        self.pass_(0.1)
        self.servers.heal()
        service = self.second.service
        service._copy.added = lambda frames: None  # its clients read the copy
        answer = self.first.service._cluster.ask("b", {"do": "replace", "at": self.clock.seconds()})
        for _ in range(100):
            self.pass_(0.05)
            service._measure()
        self.assertEqual(self.second.ended, [])
        self.assertEqual(self.successResultOf(answer), {"error": ""})
        service._copy.added = None
        self.pass_(10)
        self.assertEqual((told, later, len(self.first.ended)), ([None], [None], 1))
        self.assertGreater(stream.first, 2)
        self.assertEqual(self.second.consume(), [b"one", b"two"])
        self.first = self.again(self.first)
        self.pass_(5)
        self.assertTrue(self.first.service.follower.copy.usable)

    def test_streamReplaced(self) -> None:
        """A follower notices by itself that its stream was created again, which would never continue its copy."""
        self.first.produce("one")
        self.pass_(1)
        self.first.clock.ended = True
        self.servers.streams.clear()
        self.servers.stream(0).created = 2
        self.pass_(8)
        self.assertEqual(self.second.service.follower.applied, AHEAD)
        self.assertEqual((self.second.inner.running, self.second.ended), (False, []))

    def again(self, node: Node) -> Node:
        """Start a node again that was killed."""
        disk = node.disk
        disk.remove("/disk/journal/lock")
        node = Node(self.servers, self.clock, node.service._node, disk)
        node.service.startService()
        return node

    def test_diskFull(self) -> None:
        """An owner whose disk is full hands the shard on and ends, and another node serves at once with what was
        stored; until its disk has room, it is not ready, and says why.
        """
        told = self.first.produce("one")
        self.pass_(1)
        self.first.disk.failing = "write"
        left: list[bool] = []
        self.first.service.mesh = SimpleNamespace(stop=lambda: left.append(True))  # type: ignore[assignment]
        told += self.first.produce("two")
        self.pass_(0.2)
        (ended,) = self.first.ended
        self.assertEqual(left, [True])
        self.assertTrue(ended.startswith("shard 0 was handed to b: "), ended)
        self.assertIn("cannot be written: no space left on device", ended)
        self.assertTrue(self.second.inner.running)
        self.first = self.again(self.first)
        self.first.disk.failing = "write"
        self.pass_(10)
        self.assertTrue(self.second.inner.running)
        self.assertEqual((told, self.second.consume()), ([None], [b"one", b"two"]))
        ready, words = self.first.service.operator.ready()
        self.assertFalse(ready)
        self.assertIn("cannot be written: no space left on device", words)

    def test_diskFullAlone(self) -> None:
        """Without a node that could take the shard, the process of an owner whose disk is full ends too."""
        self.second.service.follower.reason = "it is damaged"
        self.pass_(1.5)
        self.first.disk.failing = "write"
        self.first.produce("one")
        self.pass_(0.2)
        self.assertIn("this node does not own shard 0 any more: ", self.first.ended[0])

    def test_unavailable(self) -> None:
        """While the store does not answer nothing is confirmed, and the owner goes on when it does in time."""
        self.servers.faults.unavailable = {"streams", "keys"}
        told = self.first.produce("one")
        self.pass_(12)
        self.assertEqual((told, self.first.service.ownership.serving), ([], False))
        self.servers.heal()
        self.pass_(5)
        self.assertEqual((told, self.first.ended), ([None], []))
        self.assertTrue(self.first.service.ownership.serving)


class OwnersTurnTests(SynchronousTestCase):
    """What is written while it is not known who owns the shard."""

    if MISSING:
        skip = MISSING

    def test_held(self) -> None:
        """Nothing is written until the owner is sure again, then all of it, in order."""
        clock = Clock()
        turn: WriteTurn = OwnersTurn(clock)
        serving, written = [False], []

        class Outbox:
            """One connection."""

            pendingBytes = 0

            def __init__(self, name: str) -> None:
                self.name = name

            def flush(self) -> None:
                """Write."""
                written.append(self.name)

        turn.serving = lambda: serving[0]  # type: ignore[attr-defined]
        turn.open = True
        turn.add(Outbox("a"))
        turn.flush()
        self.assertEqual((written, turn.open), ([], False))
        clock.advance(1)
        turn.add(Outbox("b"))
        clock.advance(1)
        self.assertEqual(written, [])
        serving[0] = True
        clock.advance(1)
        self.assertEqual(written, ["a", "b"])
        self.assertEqual(clock.getDelayedCalls(), [])


class KilledBrokerTests(SynchronousTestCase):
    """Two brokers on one real server."""

    if MISSING:
        skip = MISSING

    def test_killed(self) -> None:
        """What was confirmed is there at the next owner after a kill, and after an orderly stop of that one.

        All clients connect to the third node, at first as a standby that forwards, and over TLS.
        """
        servers = Servers(self.mktemp())
        self.addCleanup(servers.end)
        servers.wait()
        made = makeCertificate(Path(tempfile.mkdtemp(dir=".")).absolute())
        brokers = [self.broker(servers, name, made) for name in "abc"]
        for each in brokers:
            each.start()
            self.addCleanup(each.stop)
        owner = self.owner(brokers)
        third = next(each for each in reversed(brokers) if each is not owner)
        third.waitFor(lambda: len(third.listeners) == 3, "its listeners")
        self.assertEqual(say(third, b"PRODUCE:m1:::q:::one\nPRODUCE:m2:::q:::two\n", 2, made), [b"m1", b"m2"])
        self.assertNotIn(OWNS, third.output)
        for each in brokers:
            each.waitFor(partial(isReady, each), "its readiness")
            asked = {path: ask(each, path) for path in ("/healthz", "/readyz", "/metrics", "/api/topics")}
            self.assertEqual([asked[path][0] for path in ("/healthz", "/readyz", "/metrics")], [200] * 3, asked)
            self.assertIn(f"fleximq_cluster_owner {float(each is owner)}".encode(), asked["/metrics"][1])
            forwards = f"fleximq_cluster_forwards_total {float(each is third)}"
            self.assertIn(forwards.encode(), asked["/metrics"][1])
            code, words = asked["/api/topics"]
            refusal = f"this node does not own the journal; {owner.arguments[3]} does"
            self.assertEqual((code, refusal.encode() in words), (200, False) if each is owner else (503, True))
        owner.stop(signal.SIGKILL)
        brokers.remove(owner)
        found = say(third, b"CONSUME:q\nACK:m1\nCONSUME:q\n", 2, made)
        self.assertEqual([line.split(b":")[0] for line in found], [b"m1", b"m2"])
        owner = self.owner(brokers)
        (other,) = (each for each in brokers if each is not owner)
        url = ("--cluster", servers.urls[0])
        with redirect_stdout(io.StringIO()) as written:
            # One of the nodes was killed, which is worth a warning.
            self.assertEqual(main(["cluster", "status", "--json", *url]), 2)
            self.assertEqual(main(["cluster", "move", "0", other.arguments[3], *url]), 0)
        status, moved = written.getvalue().splitlines()
        self.assertEqual(json.loads(status)["shards"][0]["owner"], owner.arguments[3])
        self.assertIn(f"{other.arguments[3]} owns shard 0 in term 3", moved)
        brokers.remove(owner)
        self.assertEqual(say(other, b"PRODUCE:m3:::r:::three\nCONSUME:r\n", 2)[1].split(b":")[0], b"m3")

    def broker(self, servers: Servers, name: str, made: Made) -> BrokerProcess:
        """Return a node that is not started yet."""
        folder = Path(tempfile.mkdtemp(dir=".")).absolute()
        words = ["--cluster", servers.urls[0], "--node", name, "--durable", "#", "--redelivery", "300"]
        words += ["--cluster-bytes", "64MiB", "--http", "tcp:0:interface=127.0.0.1"]
        words += ["--listen", "tcp:0:interface=127.0.0.1", "--listen", "tls://127.0.0.1:0", "--allow-anonymous"]
        words += ["--tls-certificate", str(made.certificate), "--tls-key", str(made.key), "--cluster-wait", "60"]
        return BrokerProcess(*words, "--journal", f"{folder}/journal")

    def owner(self, brokers: list[BrokerProcess]) -> BrokerProcess:
        """Return the broker that owns the shard, when one does."""
        limit = time.monotonic() + 300
        while time.monotonic() < limit:
            for each in brokers:
                if OWNS in each.output:
                    return each
            time.sleep(0.05)
        raise AssertionError([each.output for each in brokers])


def ask(broker: BrokerProcess, path: str) -> tuple[int, bytes]:
    """Return the status and the body of an answer over HTTP."""
    connection = HTTPConnection("127.0.0.1", broker.port(2), timeout=60)
    connection.request("GET", path)
    with connection.getresponse() as answer:
        return answer.status, answer.read()


def isReady(broker: BrokerProcess) -> bool:
    """Whether a broker's listeners are open, and it is ready."""
    return len(broker.listeners) == 3 and ask(broker, "/readyz")[0] == 200


def say(broker: BrokerProcess, data: bytes, lines: int, made: Made | None = None) -> list[bytes]:
    """Send MiniMQ lines to a broker, with a certificate over TLS, and return so many that it sends."""
    with socket.create_connection(("127.0.0.1", broker.port(made is not None)), 60) as connection:
        if made is not None:
            context = ssl.create_default_context(cafile=str(made.certificate))
            connection = context.wrap_socket(connection, server_hostname="localhost")
        connection.sendall(data)
        with connection.makefile("rb") as answers:
            return [answers.readline().strip() for _ in range(lines)]
