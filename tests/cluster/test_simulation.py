"""The promises of a cluster hold under the faults of its store and nodes; see :mod:`tests.cluster.simulation`."""

from collections import Counter

from twisted.trial.unittest import SynchronousTestCase

from tests.cluster.simulation import Simulation
from tests.nightly import repetitions


class SimulationTests(SynchronousTestCase):
    """Seeds of the simulation."""

    def test_seeds(self) -> None:
        """No seed breaks a promise, and together they have seen everything that they are for."""
        counts: Counter[str] = Counter()
        for seed in range(repetitions(300, 10_000)):
            simulation = Simulation(seed)
            try:
                simulation.run()
            except Exception as error:
                raise AssertionError(f"python -m tests.cluster.simulation {seed}: {error}") from error
            counts += simulation.counts
        for what in ("confirmed", "takeover", "lost", "probe", "trimmed", "aside", "refused", "unconfirmed"):
            self.assertGreater(counts[what], 0, what)
