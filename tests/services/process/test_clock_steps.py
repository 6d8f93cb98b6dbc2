"""Steps of the system clock, on clocks of our own."""

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.process.clock_steps import ClockStepService
from tests.log_observer import observeLog


class ClockStepTests(SynchronousTestCase):
    """Log lines about steps."""

    def setUp(self) -> None:
        """A service that runs."""
        self.clock: Any = Clock()
        self.ahead = 1_800_000_000.0
        self.logged: list[LogEvent] = []
        observeLog(self, self.logged.append)
        self.service = ClockStepService(self.clock, lambda: self.clock.seconds() + self.ahead)
        self.service.startService()

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
        """After the end nothing is due."""
        self.service.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
