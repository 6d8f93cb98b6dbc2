"""When the watchdog is fed."""

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import formatEvent
from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.process.service_manager import WatchdogService, watchdogInterval
from tests.log_observer import observeLog


class PauseTests(SynchronousTestCase):
    """What the manager asks for."""

    def test_half(self) -> None:
        """Twice as often as it has to be."""
        self.assertEqual(watchdogInterval({"WATCHDOG_USEC": "30000000"}), 15.0)
        self.assertEqual(watchdogInterval({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 7), 15.0)

    def test_none(self) -> None:
        """Not if nobody asks, or asks somebody else, or for what makes no sense."""
        for asked in (
            {},
            {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"},
            {"WATCHDOG_USEC": "0"},
            {"WATCHDOG_USEC": "-5"},
            {"WATCHDOG_USEC": "soon"},
            {"WATCHDOG_PID": "7"},
        ):
            self.assertIsNone(watchdogInterval(asked, 7), asked)


class WatchdogTests(SynchronousTestCase):
    """A watchdog on a clock that is moved by hand."""

    def setUp(self) -> None:
        """Nothing has been fed."""
        self.clock = Clock()
        self.fed = 0
        self.beats: list[Callable[[], None]] = []
        self.log: list[str] = []
        observeLog(self, self.observe)

    def observe(self, event: Any) -> None:
        """Note what is logged."""
        if event.get("log_namespace") == "fleximq.services.process.service_manager":
            self.log.append(formatEvent(event))

    def feed(self) -> None:
        """Count it."""
        self.fed += 1

    def started(self, beat: Callable[[Callable[[], None]], object] | None) -> WatchdogService:
        """Return a service that runs until the test ends, with a pause of 5 seconds."""
        service = WatchdogService(self.clock, 5.0, self.feed, beat)
        service.startService()
        self.addCleanup(service.stopService)
        return service

    def test_withoutJournal(self) -> None:
        """It is fed while the reactor turns: at once, then every pause."""
        self.started(None)
        self.assertEqual(self.fed, 1)
        self.clock.advance(4.9)
        self.assertEqual(self.fed, 1)
        self.clock.advance(0.1)
        self.assertEqual(self.fed, 2)

    def test_answer(self) -> None:
        """With a journal each feeding waits for an answer."""
        self.started(self.beats.append)
        self.assertEqual((self.fed, len(self.beats)), (0, 1))
        self.beats.pop()()
        self.assertEqual(self.fed, 1)
        self.clock.advance(5)
        self.beats.pop()()
        self.assertEqual(self.fed, 2)
        self.assertEqual(self.log, [])

    def test_hangs(self) -> None:
        """It is not fed while there is none, which the log says once; nor is it asked again meanwhile."""
        self.started(self.beats.append)
        self.clock.pump([5.0] * 10)
        self.assertEqual((self.fed, len(self.beats)), (0, 1))
        self.assertEqual(
            self.log,
            ["The thread that writes the journal has not answered for 5.0 seconds: the watchdog is not fed"],
        )
        self.beats.pop()()
        self.assertEqual(self.fed, 1)
        self.assertEqual(self.log[1:], ["The thread that writes the journal answers again"])
        self.clock.advance(5)
        self.assertEqual(len(self.beats), 1)

    def test_stopped(self) -> None:
        """A service that has ended feeds nobody, whoever answers."""
        service = self.started(self.beats.append)
        service.stopService()
        self.beats.pop()()
        self.clock.advance(60)
        self.assertEqual((self.fed, self.beats, self.clock.getDelayedCalls()), (0, [], []))
