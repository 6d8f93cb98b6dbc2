"""How late the event loop is, on a clock of our own."""

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.web_site import LagService


class LagTests(SynchronousTestCase):
    """Measuring."""

    def setUp(self) -> None:
        """A service that runs."""
        self.clock: Any = Clock()
        self.lag = LagService(self.clock)
        self.lag.startService()

    def test_punctual(self) -> None:
        """Nothing is late as long as time goes by in small steps."""
        for _ in range(10):
            self.clock.advance(0.5)
        self.assertEqual((self.lag.latest, sum(self.lag.histogram.counts)), (0.0, 5))

    def test_late(self) -> None:
        """What came late is told until the next look."""
        self.clock.advance(1.5)
        self.assertEqual(self.lag.latest, 0.5)
        self.clock.advance(1.0)
        self.assertEqual((self.lag.latest, self.lag.histogram.sum), (0.0, 0.5))

    def test_overdue(self) -> None:
        """A look that should have come by now counts already."""
        self.clock.rightNow += 3.0
        self.assertEqual(self.lag.latest, 2.0)

    def test_stop(self) -> None:
        """After the end nothing is measured or due."""
        self.lag.stopService()
        self.assertEqual((self.clock.getDelayedCalls(), self.lag.latest), ([], 0.0))
