"""How late the event loop is, on a clock of our own."""

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.web_site import LagService
from tests.log_observer import observeLog


class LagTests(SynchronousTestCase):
    """Measuring."""

    def setUp(self) -> None:
        """A service that runs."""
        self.clock: Any = Clock()
        self.ahead = 1_800_000_000.0
        self.logged: list[LogEvent] = []
        observeLog(self, self.logged.append)
        self.lag = LagService(self.clock, lambda: self.clock.seconds() + self.ahead)
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

    def test_steps(self) -> None:
        """A step of the system clock is logged once, whether it is set forward or back; an adjustment is not."""
        for step in 0.4, 7200.0, 0.0, 100.0, -3600.0, 0.0, -0.4:
            self.ahead += step
            self.clock.advance(1.0)
        end = "times of messages and credentials follow it, no timer does"
        self.assertEqual(
            [formatEvent(event) for event in self.logged],
            [
                f"The system clock was set by +7200.0 s (forward, or the machine slept): {end}",
                f"The system clock was set by +100.0 s (forward, or the machine slept): {end}",
                f"The system clock was set by -3600.0 s (back): {end}",
            ],
        )

    def test_stop(self) -> None:
        """After the end nothing is measured or due."""
        self.lag.stopService()
        self.assertEqual((self.clock.getDelayedCalls(), self.lag.latest), ([], 0.0))
