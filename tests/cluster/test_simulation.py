"""The promises of a cluster hold under the faults of its store and nodes; see :mod:`tests.cluster.simulation`."""

from collections import Counter

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cluster.interfaces import AHEAD
from fleximq.cluster.ownership import State
from tests.cluster.simulation import SHARD, Node, Simulation, check
from tests.nightly import repetitions


class SimulationTests(SynchronousTestCase):
    """Seeds of the simulation."""

    def test_oldStream(self) -> None:
        """If the stream is restored from a backup, no node owns the shard, and no copy is cut; until it is whole again.

        A new node with an empty folder would continue it otherwise.
        """
        simulation = begun(1)
        stream = simulation.servers.stream(SHARD)
        before = contentsOf(simulation)
        for node in simulation.nodes:
            node.kill(False)
        simulation.nodes.append(Node(simulation, "d"))
        lost = stream.pieces[20:]
        del stream.pieces[20:]
        simulation.heal()
        simulation.pass_(30)
        self.assertEqual(len(stream.pieces), 20)
        self.assertFalse(simulation.publish())
        self.assertEqual(contentsOf(simulation), before)
        stream.pieces += lost
        simulation.servers.wake()
        simulation.pass_(10)
        self.assertTrue(simulation.publish())
        simulation.pass_(5)
        check(simulation, simulation.nodes, b"".join(piece.data for piece in stream.pieces))

    def test_setBack(self) -> None:
        """If the stream is set back while the nodes run, each of them says so, no takeover goes on, and no copy is cut;
        until it is whole again.
        """
        for seed in range(4):
            simulation = begun(seed)
            stream = simulation.servers.stream(SHARD)
            before = contentsOf(simulation)
            lost = stream.pieces[20:]
            del stream.pieces[20:]
            if seed % 2:
                next(node for node in simulation.nodes if node.ownership.state is State.OWNING).kill(False)
            simulation.pass_(50)
            simulation.heal()
            simulation.pass_(10)
            states = {(node.ownership.state, node.follower.applied) for node in simulation.nodes}
            self.assertEqual(states, {(State.FOLLOWING, AHEAD)})
            self.assertEqual(contentsOf(simulation), before)
            stream.pieces += lost
            simulation.servers.wake()
            simulation.pass_(10)
            self.assertTrue(simulation.publish())
            simulation.pass_(5)
            check(simulation, simulation.nodes, b"".join(piece.data for piece in stream.pieces))

    def test_emptyOwner(self) -> None:
        """An owner that is started again with an empty folder does not take the shard back before a node that has all
        of it does.
        """
        simulation = begun(3)
        owner = next(node for node in simulation.nodes if node.ownership.state is State.OWNING)
        owner.kill(True)
        owner.wipe()
        owner.start()
        # It hears only what is in the keys, so it cannot read the stream.
        self.patch(owner.follower, "_received", lambda messages: None)
        simulation.pass_(6)
        self.assertTrue(simulation.publish())
        self.assertIs(owner.ownership.state, State.FOLLOWING)

    def test_lostStream(self) -> None:
        """A node with an empty folder that starts alone does not begin a stream that was lost with the keys, nor
        continues one that was set back: not before all nodes are there, and one of them has filled it again.
        """
        for left in 0, 20:
            simulation = begun(2)
            servers, stream = simulation.servers, simulation.servers.stream(SHARD)
            for node in simulation.nodes:
                node.kill(False)
            lost = stream.pieces[left:]
            del stream.pieces[left:]
            stream.created += not left
            servers.nodes.clear()
            servers.owners.clear()
            new = Node(simulation, "new")
            simulation.nodes.append(new)
            new.start()
            simulation.pass_(60)
            self.assertEqual((len(stream.pieces), servers.owners), (left, {}))
            self.assertIn("begins with 3 nodes", new.ownership.missing())
            simulation.heal()
            simulation.pass_(30)
            self.assertEqual((len(stream.pieces), servers.owners), (left, {}))
            stream.pieces += lost
            servers.wake()
            simulation.pass_(20)
            self.assertTrue(simulation.publish())
            simulation.pass_(5)
            check(simulation, simulation.nodes, b"".join(piece.data for piece in stream.pieces))

    def test_seeds(self) -> None:
        """No seed breaks a promise, and together they have seen everything that they are for."""
        counts: Counter[str] = Counter()
        for seed in range(repetitions(100, 10_000)):
            simulation = Simulation(seed)
            try:
                simulation.run()
            except Exception as error:
                raise AssertionError(f"python -m tests.cluster.simulation {seed}: {error}") from error
            counts += simulation.counts
        for what in ("confirmed", "takeover", "lost", "probe", "trimmed", "aside", "refused", "unconfirmed"):
            self.assertGreater(counts[what], 0, what)


def begun(seed: int) -> Simulation:
    """Return a simulation in which 30 messages were published."""
    simulation = Simulation(seed)
    simulation.pass_(8)
    for _ in range(30):
        simulation.publish()
        simulation.pass_(0.1)
    return simulation


def contentsOf(simulation: Simulation) -> list[dict[str, bytes]]:
    """Return the segments of the first three nodes."""
    states = [node.disk.now() for node in simulation.nodes[:3]]
    return [
        {name: state.files[number] for name, number in state.names.items() if name.endswith(".fxj")} for state in states
    ]
