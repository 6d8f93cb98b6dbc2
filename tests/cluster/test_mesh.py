"""fleximq.cluster.mesh: interest, its confirmation, and runs, between nodes on a mesh in memory."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.cluster import mesh
from fleximq.cluster.interfaces import IMeshLink
from fleximq.cluster.mesh import ALL, BARRIER, SILENCE, IMeshUser, Interest, Mesh
from tests.cluster.memory import MemoryLink, MemoryServers


@implementer(IMeshUser)
class Node:
    """A node without clients; ``wanted`` has the interest of the others, ``runs`` what it received."""

    def __init__(self, servers: MemoryServers, name: str, session: str = "1") -> None:
        self.wanted: dict[str, set[Interest]] = {}
        self.runs: list[Any] = []
        self.counts: list[tuple[str, int]] = []
        self.paused: set[object] = set()
        self.mesh = Mesh(
            MemoryLink(servers, name), name, session, servers.clock, self, partial(servers.clock.callLater, 0)
        )
        self.mesh.start()

    def interestChanged(self, node: str, added: Sequence[Interest], removed: Sequence[Interest]) -> None:
        """See :class:`fleximq.cluster.mesh.IMeshUser`; so with the next."""
        wanted = self.wanted.setdefault(node, set())
        assert wanted.isdisjoint(added) and wanted.issuperset(removed)
        self.wanted[node] = (wanted | set(added)) - set(removed)

    def received(self, node: str, runs: Sequence[Any]) -> None:
        self.runs += runs

    def counted(self, event: str, number: int) -> None:
        self.counts.append((event, number))

    def reading(self) -> "Node":
        return self

    def pause(self, reason: object) -> None:
        self.paused.add(reason)

    def resume(self, reason: object) -> None:
        self.paused.discard(reason)

    def asked(self, question: Any, answer: Callable[[Any], None]) -> None:
        if question != "nothing":
            answer([question, "answered"])

    def send(self, node: str, *runs: Any) -> None:
        """Send runs of one message each."""
        for run in runs:
            self.mesh.queue(self.mesh.peers[node], run, 1, len(run))

    def confirmed(self) -> list[None]:
        """Wait for the others; return a list that gets an item when they have confirmed."""
        done: list[None] = []
        self.mesh.whenConfirmed(lambda: done.append(None))
        return done


class MeshTests(SynchronousTestCase):
    """Three nodes."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.servers = MemoryServers(self.clock, Random(1))
        self.a, self.b, self.c = (Node(self.servers, name) for name in "abc")
        self.pass_(2)

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)

    def test_window(self) -> None:
        """Publishers are paused while a node does not confirm what it was sent, and nothing is lost."""
        self.b.mesh.hold("a")
        self.pass_(0.1)
        sent = 0
        while not self.a.paused:
            self.a.send("b", bytes(mesh.PACKET_BYTES))
            self.pass_(0.01)
            sent += 1
        self.assertEqual(sent, mesh.WINDOW // mesh.PACKET_BYTES + 1)
        self.pass_(2 * SILENCE)
        self.assertTrue(self.a.paused)
        self.a.send("c", b"x")
        self.b.mesh.release("a")
        self.pass_(0.1)
        self.assertEqual((self.a.paused, len(self.b.runs), self.b.counts), (set(), sent, []))

    def test_confirms(self) -> None:
        """A node that reads all confirms often enough that no publisher is paused."""
        for _ in range(100):
            self.a.send("b", bytes(mesh.PACKET_BYTES))
            self.pass_(0.02)
            self.assertEqual(self.a.paused, set())
        self.pass_(2)
        self.assertFalse(self.a.mesh.peers["b"].packets)

    def test_pausedForSilent(self) -> None:
        """Publishers continue when the node for which they wait counts as silent."""
        self.servers.cutOut.add("b")
        while not self.a.paused:
            self.a.send("b", bytes(mesh.PACKET_BYTES))
            self.pass_(0.01)
        self.pass_(SILENCE + 1)
        self.assertEqual((self.a.paused, "b" in self.a.mesh.peers), (set(), False))

    def test_lostAtEnd(self) -> None:
        """The last messages before a silence are counted too if they are lost."""
        self.a.send("b", b"1")
        self.pass_(0.1)
        self.servers.cutOut.add("a")
        self.a.send("b", b"2", b"3")
        self.pass_(0.1)
        self.servers.heal()
        self.pass_(1.5)
        self.assertEqual((self.b.runs, self.b.counts), ([b"1"], [("lost", 2)]))

    def test_interface(self) -> None:
        """The link in memory has the methods of its interface."""
        verifyObject(IMeshLink, self.servers.links["a"])

    def test_firstAndLast(self) -> None:
        """The others learn the first and the last subscription of a pattern, in one packet a turn."""
        before = self.a.mesh._version
        for pattern in ("x", "x", "y"):
            self.a.mesh.add(pattern)
        self.pass_(0.1)
        self.assertEqual(self.b.wanted["a"], {Interest("x"), Interest("y")})
        self.a.mesh.remove("x")
        self.a.mesh.add("z")
        self.a.mesh.remove("z")
        self.pass_(0.1)
        self.assertEqual((self.c.wanted["a"], self.a.mesh._version), ({Interest("x"), Interest("y")}, before + 1))
        self.a.mesh.remove("x")
        self.pass_(0.1)
        self.assertEqual(self.b.wanted["a"], {Interest("y")})

    def test_gap(self) -> None:
        """A node that missed a step gets the whole table, without another change."""
        self.a.mesh.add("x")
        self.pass_(0.1)
        self.servers.cutIn.add("b")
        self.a.mesh.add("y")
        self.a.mesh.remove("x")
        self.pass_(0.5)
        self.servers.cutIn.clear()
        self.assertEqual(self.b.wanted["a"], {Interest("x")})
        self.pass_(1.1)
        self.assertEqual(self.b.wanted["a"], {Interest("y")})

    def test_many(self) -> None:
        """A node with too many patterns wants all messages, until it has fewer; durable queues are always named."""
        self.patch(mesh, "MANY", 3)
        self.patch(mesh, "FEWER", 3)
        self.a.mesh.add("q", True)
        for number in range(4):
            self.a.mesh.add(f"t{number}")
            self.pass_(0.1)
        self.a.mesh.add("r", True)
        self.pass_(0.1)
        durable = {Interest("q", True), Interest("r", True)}
        self.assertEqual(self.b.wanted["a"], {*ALL, *durable})
        for number in range(4):
            self.a.mesh.remove(f"t{number}")
            self.pass_(0.1)
        self.assertEqual(self.b.wanted["a"], durable)

    def test_later(self) -> None:
        """A node that comes later learns all, and is waited for from then on."""
        self.a.mesh.add("x")
        fourth = Node(self.servers, "d")
        self.pass_(0.1)
        self.assertEqual(fourth.wanted["a"], {Interest("x")})
        self.assertEqual(set(self.a.mesh.peers), {"b", "c", "d"})

    def test_barrier(self) -> None:
        """A client waits until all nodes have confirmed; nothing has to be confirmed twice."""
        self.a.mesh.add("x")
        self.assertFalse(self.a.mesh.isConfirmed)
        done = self.a.confirmed()
        self.assertEqual(done, [])
        self.pass_(0.02)
        self.assertEqual((done, self.a.mesh.isConfirmed), ([None], True))
        self.assertEqual([each.wanted["a"] for each in (self.b, self.c)], [{Interest("x")}] * 2)
        self.assertEqual(self.a.confirmed(), [None])

    def test_unconfirmed(self) -> None:
        """A node that does not confirm is waited for once, and counted."""
        self.servers.cutIn.add("b")
        self.a.mesh.add("x")
        done = self.a.confirmed()
        self.pass_(BARRIER - 0.1)
        self.assertEqual(done, [])
        self.pass_(0.2)
        self.assertEqual((done, self.a.counts), ([None], [("unconfirmed", 1)]))
        self.a.mesh.add("y")
        done = self.a.confirmed()
        self.pass_(0.02)
        self.assertEqual(done, [None])
        self.servers.cutIn.clear()
        self.pass_(1.1)
        self.a.mesh.add("z")
        self.assertFalse(self.a.mesh.isConfirmed)

    def test_silent(self) -> None:
        """A silent node has no interest any more, one that stops at once, and one that starts again has a new table."""
        self.a.mesh.add("x")
        self.pass_(0.1)
        self.servers.cutOut.add("a")
        self.pass_(SILENCE - 0.5)
        self.assertEqual(self.b.wanted["a"], {Interest("x")})
        self.pass_(2)
        self.assertEqual((self.b.wanted["a"], set(self.b.mesh.peers)), (set(), {"c"}))
        self.servers.heal()
        self.pass_(1.1)
        self.assertEqual(self.b.wanted["a"], {Interest("x")})
        self.a.mesh.stop()
        self.pass_(0.1)
        self.assertEqual(self.b.wanted["a"], set())
        again = Node(self.servers, "a", "2")
        again.mesh.add("y")
        self.pass_(1)
        self.assertEqual(self.b.wanted["a"], {Interest("y")})

    def test_paused(self) -> None:
        """A node that was paused does not take the others for silent."""
        self.a.mesh.add("x")
        self.pass_(0.1)
        self.b.mesh._timer.reset(20)  # type: ignore[union-attr]
        for peer in self.b.mesh.peers.values():
            peer.seen -= 20
        self.b.mesh._ticked -= 20
        self.b.mesh._tick()
        self.assertEqual(self.b.wanted["a"], {Interest("x")})

    def test_runs(self) -> None:
        """Runs arrive in order; a packet larger than the servers permit arrives in pieces."""
        large = b"l" * (3 * self.servers.links["a"].maxPayload)
        self.a.send("b", b"one", b"two", large)
        self.a.send("b", b"three")
        self.pass_(0.1)
        self.assertEqual(self.b.runs, [b"one", b"two", large, b"three"])
        self.assertEqual((self.c.runs, self.b.counts), ([], []))

    def test_questions(self) -> None:
        """Each node answers a question until it is ended; answers to another life of the node are ignored."""
        answers: list[tuple[str, Any]] = []
        number = self.a.mesh.ask("what", lambda name, value: answers.append((name, value)))
        self.b.mesh._send("a", mesh.Kind.ANSWER, "other", number, "wrong")
        self.pass_(0.1)
        self.assertEqual(sorted(answers), [("b", ["what", "answered"]), ("c", ["what", "answered"])])
        self.a.mesh.endAsking(number)
        self.b.mesh._send("a", mesh.Kind.ANSWER, "1", number, "late")
        self.pass_(0.1)
        self.assertEqual(len(answers), 2)

    def test_clients(self) -> None:
        """Clients are told like patterns, but do not count as such; runs before a change arrive before it."""
        self.patch(mesh, "MANY", 3)
        for number in range(5):
            self.a.mesh.add("svc", client=1000 + number)
        self.pass_(0.1)
        self.assertEqual(self.b.wanted["a"], {Interest("svc", client=1000 + number) for number in range(5)})
        known: list[int] = []
        self.b.received = lambda node, runs: known.append(len(self.b.wanted["a"]))  # type: ignore[method-assign]
        peer = self.a.mesh.peers["b"]
        self.a.mesh.queueInOrder(peer, b"before", 1, 1)
        self.a.mesh.remove("svc", client=1000)
        self.a.mesh.queueInOrder(peer, b"after", 1, 1)
        self.pass_(0.1)
        self.assertEqual(known, [5, 4])

    def test_lost(self) -> None:
        """The receiver counts exactly what was lost on the way."""
        self.a.send("b", b"one")
        self.pass_(0.1)
        self.servers.cutIn.add("b")
        self.a.send("b", b"two", b"three")
        self.pass_(0.1)
        self.servers.cutIn.clear()
        self.a.send("b", b"four")
        self.pass_(0.1)
        self.assertEqual((self.b.runs, self.b.counts), ([b"one", b"four"], [("lost", 2)]))
