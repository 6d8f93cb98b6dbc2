"""fleximq.cluster.ownership: who claims a shard, when, and how long an owner serves."""

from collections.abc import Callable
from random import Random

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cluster.interfaces import AHEAD, ClusterError, NodeRecord, ShardOwner
from fleximq.cluster.ownership import DEADLINE, PATIENCE, Ownership, State
from tests.cluster.memory import MemoryCluster, MemoryServers
from tests.cluster.node_clock import NodeClock


class Node:
    """A node whose appends are accepted when a test says so; ``log`` has what its ownership asked for."""

    def __init__(
        self, servers: MemoryServers, clock: Clock, name: str, applied: int | None, end: int = 0, nodes: int = 1
    ) -> None:
        self.name = name
        self.applied = applied
        self.end = end
        self.log: list[str] = []
        self.fenced: Deferred[None] | None = None
        self.clock = NodeClock(clock)
        self.ownership = Ownership(
            MemoryCluster(servers, name, self.clock),
            name,
            0,
            self.clock,
            applied=lambda: self.applied,
            takeOver=self.takeOver,
            lose=lambda reason: self.log.append(f"lose: {reason}"),
            probe=lambda: self.log.append("probe"),
            end=lambda: self.end,
            nodes=nodes,
        )
        self.ownership.start()

    async def takeOver(self, term: int) -> None:
        """Wait for the fence, if a test holds it."""
        self.log.append(f"take over {term}")
        if self.fenced is not None:
            await self.fenced
        self.ownership.confirmed(self.clock.seconds())


LONGER = "the copy of a ends at position 900, that of c at 600"


class OwnershipTests(SynchronousTestCase):
    """Nodes on one store; ``a`` owns the shard first."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.servers = MemoryServers(self.clock, Random(1))
        self.nodes: list[Node] = []

    def node(self, name: str, applied: int | None = 0, end: int = 0, nodes: int = 1) -> Node:
        """Start a node."""
        node = Node(self.servers, self.clock, name, applied, end, nodes)
        self.nodes.append(node)
        return node

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)

    def until(self, holds: Callable[[], bool], seconds: float = 20) -> float:
        """Let time pass until something holds, and return how long it took."""
        begun = self.clock.seconds()
        while not holds():
            self.assertLess(self.clock.seconds() - begun, seconds, [node.log for node in self.nodes])
            self.pass_(0.01)
        return self.clock.seconds() - begun

    def pair(self) -> tuple[Node, Node]:
        """Return an owner and another node."""
        first = self.node("a")
        self.until(lambda: first.ownership.serving)
        second = self.node("b")
        self.pass_(2)
        first.log.clear()
        return first, second

    def taking(self) -> tuple[Node, Node]:
        """Return a node that takes over from one that died, and a third one."""
        first, second = self.pair()
        third = self.node("c")
        self.pass_(2)
        first.clock.ended = True
        second.fenced = Deferred()
        self.until(lambda: "take over 2" in second.log)
        self.pass_(0.1)
        return second, third

    def test_first(self) -> None:
        """A shard that nobody owns is claimed at once; the shard is not served before the takeover is complete."""
        node = self.node("a")
        node.fenced = Deferred()
        self.until(lambda: node.log == ["take over 1"], 2)
        self.assertEqual((node.ownership.state, node.ownership.serving), (State.FENCING, False))
        self.assertEqual(self.servers.owners[0][:2], ("a", 1))
        node.fenced.callback(None)
        self.assertTrue(node.ownership.serving)

    def test_rank(self) -> None:
        """The node with the most of the stream comes first; of equal ones, the first name."""
        for applied, winner in ((5, 8, 8), "b"), ((None, None, 1), "c"):
            self.setUp()
            nodes = [self.node(name, each) for name, each in zip("abc", applied, strict=True)]
            self.until(lambda nodes=nodes: any(each.ownership.serving for each in nodes))  # type: ignore[misc]
            self.assertEqual(self.servers.owners[0].node, winner)

    def test_ahead(self) -> None:
        """While a living node has more than the stream, no node claims the shard."""
        old, new = self.node("a", AHEAD), self.node("b", 7)
        self.pass_(20)
        self.assertEqual(self.servers.owners, {})
        old.applied = None
        self.until(lambda: new.ownership.serving)

    def test_longerKey(self) -> None:
        """No node claims the shard while the key of a node, also of a silent one, names a later end of its copy; unless
        an operator says that nothing is missing.
        """
        first = self.node("a", 9, 900)
        self.until(lambda: first.ownership.serving)
        first.clock.ended = True
        third = self.node("c", 6, 600)
        self.pass_(30)
        self.assertEqual((third.log, third.ownership.missing()), ([], LONGER))
        third.end = 900  # it has read on
        self.until(lambda: third.ownership.serving)
        third.clock.ended = True
        fourth = self.node("d", 6, 600)
        self.pass_(30)
        self.assertEqual(fourth.log, [])
        fourth.ownership.isComplete = True
        self.until(lambda: fourth.ownership.serving)

    def test_forgotten(self) -> None:
        """A node that was removed for good is not waited for; one that runs is back with its next beat."""
        first = self.node("a", 9, 900)
        self.until(lambda: first.ownership.serving)
        first.clock.ended = True
        third = self.node("c", 6, 600)
        self.pass_(30)
        self.assertEqual(third.ownership.missing(), LONGER)
        third.ownership.cluster.forget("a")
        self.until(lambda: third.ownership.serving)
        third.ownership.cluster.forget("c")
        self.pass_(2)
        self.assertIn("c", third.ownership.living())

    def test_newNode(self) -> None:
        """A node that began with an empty folder owns the shard if it has seen an owner, or all nodes with keys."""
        first, _ = self.pair()
        first.clock.ended = True
        self.nodes[1].clock.ended = True
        third = self.node("c")
        self.pass_(30)
        self.assertEqual(third.log, [])
        self.assertEqual(third.ownership.missing(), "a, b may have messages, but does not run, or is cut off")
        self.nodes[1] = self.node("b", 0, 5)
        self.until(lambda: self.nodes[1].ownership.serving)
        third.end = 5
        self.pass_(3)
        self.nodes[1].clock.ended = True
        self.until(lambda: third.ownership.serving)

    def test_startedAlone(self) -> None:
        """A node that starts while all others are silent waits for them for some beats: their copies may have more than
        their keys say. One that has seen an owner does not wait.
        """
        first, _ = self.pair()
        for node in self.nodes:
            node.clock.ended = True
        self.pass_(10)
        third = self.node("c", 9, 900)
        self.pass_(8)
        self.assertEqual(third.log, [])
        self.assertGreater(self.until(lambda: third.ownership.serving), 1)

    def test_firstOfSeveral(self) -> None:
        """A cluster begins with as many nodes as it should have; later ones own the shard without the others."""
        first = self.node("a", nodes=2)
        self.pass_(30)
        self.assertEqual(first.log, [])
        second = self.node("b", nodes=2)
        self.until(lambda: first.ownership.serving)
        self.pass_(3)
        first.clock.ended = True
        self.until(lambda: second.ownership.serving)

    def test_stuck(self) -> None:
        """A takeover without progress is given up, for others to try."""
        node = self.node("a")
        node.fenced = Deferred()
        self.until(lambda: node.log == ["take over 1"])
        for _ in range(20):
            self.pass_(1)
            node.ownership.heard()  # it reads a long stream
        self.assertEqual(node.log, ["take over 1"])
        self.until(lambda: len(node.log) > 1)
        self.assertIn("lose: the stream does not accept the takeover", node.log[1])

    def test_busy(self) -> None:
        """An owner whose timers wait for a long turn keeps the shard while it works, and serves after it."""
        first, second = self.pair()
        first.clock.paused = True
        served: list[bool] = []
        for _ in range(100):
            self.pass_(0.1)
            served.append(first.ownership.serving)
        self.assertEqual((served[0], served[-1]), (True, False))
        self.assertEqual((self.servers.owners[0].node, second.log), ("a", []))
        self.assertIn("probe", first.log)
        first.clock.resume(Random(1))
        first.ownership.confirmed(self.clock.seconds())
        self.pass_(2.5)
        self.assertTrue(first.ownership.serving)
        changes = self.servers.revision
        self.pass_(5)
        self.assertEqual(self.servers.revision - changes, 5 * len(self.nodes))

    def test_alive(self) -> None:
        """An owner that beats keeps the shard."""
        first, second = self.pair()
        self.pass_(60)
        self.assertEqual((first.ownership.serving, second.log), (True, []))

    def test_killed(self) -> None:
        """The shard of a silent owner is claimed after 4 seconds, in the next term."""
        first, second = self.pair()
        first.clock.ended = True
        took = self.until(lambda: second.ownership.serving)
        self.assertTrue(4 <= took + 1 and took < 7, took)
        self.assertEqual(self.servers.owners[0][:2], ("b", 2))

    def test_frames(self) -> None:
        """Frames of an owner are signs of life, without a beat of its."""
        first, second = self.pair()
        first.clock.ended = True
        for _ in range(20):
            self.pass_(1)
            second.ownership.heard()
        self.assertEqual(second.log, [])
        self.until(lambda: second.ownership.serving)

    def test_watcherUnavailable(self) -> None:
        """While its own beats are not confirmed, a node deposes nobody, and afterwards counts anew."""
        first, second = self.pair()
        self.servers.faults.unavailable.add("keys")
        self.pass_(15)
        self.assertEqual((second.log, self.servers.owners[0].node), ([], "a"))
        self.servers.heal()
        self.pass_(30)
        self.assertEqual((second.log, self.servers.owners[0].node), ([], "a"))

    def test_watcherHearsNothing(self) -> None:
        """A node to which no change of a key is told deposes nobody, although its own beats are confirmed: the server
        that told it has died. When it hears again, it counts anew.
        """
        first, second = self.pair()
        self.servers.deaf.add("b")
        self.pass_(30)
        self.assertEqual((second.log, self.servers.owners[0].node), ([], "a"))
        first.clock.ended = True
        self.servers.heal()
        self.pass_(3)
        self.assertEqual(second.log, [])
        self.until(lambda: second.ownership.serving)

    def test_givesUp(self) -> None:
        """An owner that the store does not answer for long gives up, and claims the shard when it does."""
        first, second = self.pair()
        self.servers.faults.unavailable |= {"keys", "streams"}
        self.pass_(DEADLINE + PATIENCE - 1)
        self.assertEqual((set(first.log), first.ownership.serving), ({"probe"}, False))
        self.pass_(3)
        self.assertEqual(first.log[-1], "lose: the servers of the cluster have confirmed nothing for 18 seconds")
        self.servers.heal()
        self.until(lambda: first.ownership.serving)
        self.assertEqual(second.log, [])

    def test_watcherLosesBeats(self) -> None:
        """Beats of its own that are not confirmed do not count: four must be, while the other is silent."""
        first, second = self.pair()
        first.clock.ended = True
        cluster = second.ownership.cluster
        beat, number = cluster.beat, 0

        def every(node: str, record: NodeRecord) -> Deferred[None]:
            nonlocal number
            number += 1
            return Deferred() if number % 2 else beat(node, record)

        self.patch(cluster, "beat", every)
        self.pass_(6)
        self.assertEqual(second.log, [])
        self.until(lambda: second.ownership.serving)

    def test_watcherPaused(self) -> None:
        """A node that was paused counts from the beginning, even if the news of others arrive late."""
        first, second = self.pair()
        second.clock.paused = True
        self.pass_(30)
        self.servers.cutIn.add("a")
        second.ownership._beats += 10
        second.clock.resume(Random(2))
        second.ownership._nodes["a"].at -= 100
        second.ownership._beaten(self.clock.seconds())
        self.assertLess(self.clock.seconds() - second.ownership._nodes["a"].at, 1)
        self.servers.heal()
        self.pass_(20)
        self.assertEqual((second.log, first.ownership.serving), ([], True))

    def test_deadline(self) -> None:
        """An owner without confirmations serves for 3 seconds from the last one's sending, and asks for a probe."""
        first, _ = self.pair()
        self.pass_(1)
        self.servers.cutOut.add("a")
        took = self.until(lambda: not first.ownership.serving)
        self.assertTrue(DEADLINE - 1.1 < took < DEADLINE + 0.1, took)
        self.assertIn("probe", first.log)
        self.assertIs(first.ownership.state, State.OWNING)

    def test_lateBeat(self) -> None:
        """A beat that is confirmed after the deadline does not extend it: another node may own the shard meanwhile."""
        first, _ = self.pair()
        self.pass_(0.1)  # a beat was just sent
        first.clock.paused = True
        self.pass_(3.5)
        first.clock.resume(Random(1))
        self.pass_(1.5)
        self.assertFalse(first.ownership.serving)
        first.ownership.confirmed(self.clock.seconds())
        self.pass_(5)
        self.assertTrue(first.ownership.serving)

    def test_stoppedOwner(self) -> None:
        """An owner that was stopped while another took over does not serve, not even until it learns of that."""
        first, second = self.pair()
        first.clock.paused = True
        self.until(lambda: second.ownership.serving)
        self.assertFalse(first.ownership.serving)
        first.clock.resume(Random(1))
        self.until(lambda: first.ownership.state is State.FOLLOWING)
        self.assertEqual(first.log[-1], "lose: b owns the shard now")

    def test_move(self) -> None:
        """A moved shard is served by the other node within a second; "" leaves it to any."""
        first, second = self.pair()
        moved = Deferred.fromCoroutine(first.ownership.move("b"))
        self.assertEqual((first.log, first.ownership.serving), (["lose: it is handed on"], False))
        self.until(lambda: second.ownership.serving, 1)
        self.successResultOf(moved)
        self.assertEqual(self.servers.owners[0][:2], ("b", 2))
        moved = Deferred.fromCoroutine(first.ownership.move("b"))
        self.pass_(1)
        self.successResultOf(moved)
        self.assertEqual(
            (second.log[-2:], second.ownership.serving), (["lose: b owns the shard now", "take over 3"], True)
        )

    def test_moveToUnusable(self) -> None:
        """A node whose copy cannot be used gives the shard back."""
        first, second = self.pair()
        second.applied = None
        Deferred.fromCoroutine(first.ownership.move("b"))
        self.until(lambda: first.ownership.serving)
        self.assertEqual(second.log, [])

    def test_oldRecord(self) -> None:
        """A record that names this node from an earlier life is claimed anew, in another term."""
        first, _ = self.pair()
        first.clock.ended = True
        again = self.node("a")
        self.until(lambda: again.ownership.serving, 3)
        self.assertEqual((again.log, self.servers.owners[0][:2]), (["take over 2"], ("a", 2)))

    def test_lostClaim(self) -> None:
        """A claim without an answer counts if it was carried out."""
        node = self.node("a")
        self.pass_(0.01)
        self.servers.faults.lost = 1.0
        node.ownership._claim(ShardOwner())
        self.pass_(1)
        self.servers.faults.lost = 0.0
        self.until(lambda: node.ownership.serving, 3)
        self.assertEqual(node.log, ["take over 1"])

    def test_lateClaim(self) -> None:
        """After a late claim, a node serves when the former owner, which has come back, cannot any more."""
        first, second = self.pair()
        first.clock.paused = True
        held: list[ShardOwner] = []

        def hold(shard: int, owner: ShardOwner) -> Deferred[None]:
            held.append(owner)
            return Deferred()

        self.patch(second.ownership.cluster, "claim", hold)
        self.until(lambda: bool(held))
        first.clock.resume(Random(1))
        self.pass_(0.1)
        first.ownership.confirmed(self.clock.seconds())
        second.ownership.heard()
        self.servers.cutIn.add("a")
        second.ownership.cluster = MemoryCluster(self.servers, "b", second.clock)
        second.ownership.cluster.claim(0, held[0])
        self.until(lambda: second.ownership.state is State.OWNING)
        self.assertTrue(first.ownership.serving)
        while first.ownership.serving:
            self.assertFalse(second.ownership.serving)
            self.pass_(0.01)
        self.assertLess(self.until(lambda: second.ownership.serving), 0.1)

    def test_readWhileFencing(self) -> None:
        """Messages of the former owner that a takeover reads count as well; those of an orderly move do not."""
        first, second = self.pair()
        second.fenced = Deferred()
        first.clock.paused = True
        self.until(lambda: second.ownership.state is State.FENCING)
        second.ownership.heard()
        second.fenced.callback(None)
        self.pass_(DEADLINE - 0.1)
        self.assertFalse(second.ownership.serving)
        self.pass_(0.2)
        self.assertTrue(second.ownership.serving)
        first.clock.resume(Random(1))
        self.pass_(0.1)
        first.fenced = Deferred()
        Deferred.fromCoroutine(second.ownership.move("a"))
        self.pass_(0.1)
        first.ownership.heard()
        first.fenced.callback(None)
        self.assertTrue(first.ownership.serving)

    def test_claimTwice(self) -> None:
        """Of two claims at one moment one succeeds."""
        nodes = [self.node("a", 1), self.node("b", 1)]
        for node in nodes:
            node.ownership._claim(ShardOwner())
        self.pass_(1)
        self.assertEqual(sorted(len(node.log) for node in nodes), [0, 1])

    def test_deposed(self) -> None:
        """An owner that cannot go on gives the shard to any node."""
        first, second = self.pair()
        first.applied = None
        first.ownership.deposed("the disk is full")
        first.ownership.deposed("the disk is full")
        self.assertEqual(first.log, ["lose: the disk is full"])
        self.until(lambda: second.ownership.serving, 3)

    def test_takeoverFails(self) -> None:
        """A takeover that fails frees the shard; an unforeseen error is logged too."""
        for error, logged in (ClusterError("the stream is full"), 0), (ValueError("bug"), 1):
            self.setUp()
            node = self.node("a")
            node.fenced = Deferred()
            self.until(lambda node=node: bool(node.log))  # type: ignore[misc]
            held, node.fenced = node.fenced, None
            held.errback(error)
            self.assertEqual(node.log[-1], f"lose: {error}")
            self.assertEqual(len(self.flushLoggedErrors(ValueError)), logged)
            self.until(lambda node=node: node.ownership.serving, 3)  # type: ignore[misc]
            self.assertGreater(self.servers.owners[0].term, 1)

    def test_busyTakeover(self) -> None:
        """A node that takes over, and has no time to beat because its journal is large, is replaced only after longer:
        the next one would be as busy.
        """
        second, third = self.taking()
        second.clock.paused = True
        self.pass_(PATIENCE - 1)
        self.assertEqual(third.log, [])
        second.clock.resume(Random(1))
        assert second.fenced is not None
        second.fenced.callback(None)
        self.assertTrue(second.ownership.serving)
        self.pass_(1.5)
        second.clock.paused = True
        self.until(lambda: "take over 3" in third.log, PATIENCE / 2)

    def test_killedTakeover(self) -> None:
        """A node that dies while it takes over is replaced in the end."""
        second, third = self.taking()
        second.clock.ended = True
        self.until(lambda: third.ownership.serving, PATIENCE + 2)

    def test_takenOverMeanwhile(self) -> None:
        """A takeover that ends after another node has the shard does not count."""
        first, second = self.pair()
        second.fenced = Deferred()
        Deferred.fromCoroutine(first.ownership.move("b"))
        self.pass_(0.1)
        second.clock.paused = True
        self.until(lambda: first.ownership.serving)
        second.clock.resume(Random(1))
        self.pass_(0.1)
        second.fenced.callback(None)
        self.assertIs(second.ownership.state, State.FOLLOWING)
        self.assertFalse(second.ownership.serving)

    def test_stop(self) -> None:
        """A stopped node does nothing any more."""
        first, second = self.pair()
        first.ownership.stop()
        self.assertFalse(first.ownership.serving)
        self.until(lambda: second.ownership.serving)
        self.assertEqual((first.log, first.ownership.state), ([], State.STOPPED))
