"""Signals, without any being sent."""

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.process.signals import STOP, SignalService


class Reactor(MemoryReactorClock):
    """A reactor whose end is noted, and which calls at once what other threads ask for."""

    stops = 0

    def stop(self) -> None:
        self.stops += 1

    def callWhenRunning(self, function: Any, *arguments: Any) -> None:  # type: ignore[override]
        function(*arguments)

    def callFromThread(self, function: Any, *arguments: Any) -> None:
        function(*arguments)


class SignalServiceTests(SynchronousTestCase):
    """What is done for each signal."""

    def setUp(self) -> None:
        """A service that has started; the reactor runs."""
        self.reactor = Reactor()
        self.taken: dict[int, Any] = {}
        self.killed: list[tuple[int, int]] = []
        self.waiting: set[int] = set()
        self.reloads: list[int] = []
        self.pidfile = Path(self.mktemp())
        self.service = SignalService(
            self.reactor,
            lambda: self.reloads.append(1),
            {"pidfile": str(self.pidfile)},
            self.taken.__setitem__,
            lambda pid, number: self.killed.append((pid, number)),
            self.mask,
        )
        self.service.startService()

    def mask(self, how: int, numbers: Iterable[int]) -> None:
        """Note which signals wait."""
        change = self.waiting.update if how == signal.SIG_BLOCK else self.waiting.difference_update
        change(numbers)

    def test_behindTheReactor(self) -> None:
        """The reactor takes those that stop it as it starts; they are taken from it behind that, and wait in between.

        Before it starts they are taken as well, and wait for nothing: whatever is started then would inherit it.
        """
        taken: dict[int, Any] = {}
        reactor = Waiting()
        service = SignalService(reactor, print, {}, taken.__setitem__, mask=self.mask)
        service.startService()
        self.assertEqual(set(taken), {signal.SIGHUP, signal.SIGUSR2, *STOP})
        self.assertEqual(self.waiting, set())
        [(begins, arguments, _)] = reactor.triggers["before"]["startup"]
        begins(*arguments)
        self.assertEqual(self.waiting, set(STOP))
        taken.clear()  # it is the reactor that takes them now
        service._begin()
        self.assertEqual((set(taken), self.waiting), (set(STOP), set()))

    def test_beforeTheReactor(self) -> None:
        """What comes before the reactor runs stops it when it does; once more ends the process."""
        taken: dict[int, Any] = {}
        reactor = Waiting()
        killed: list[int] = []
        service = SignalService(
            reactor, print, {}, taken.__setitem__, lambda pid, number: killed.append(number), self.mask
        )
        service.startService()
        taken[signal.SIGTERM](signal.SIGTERM, None)
        self.assertEqual((reactor.stops, killed), (1, []))
        taken[signal.SIGINT](signal.SIGINT, None)
        self.assertEqual((reactor.stops, killed), (1, [signal.SIGINT]))

    def test_noJournal(self) -> None:
        """What is for a journal is a line of the log where there is none, and does not end the process."""
        said: list[LogEvent] = []
        globalLogPublisher.addObserver(said.append)
        self.addCleanup(globalLogPublisher.removeObserver, said.append)
        self.taken[signal.SIGUSR2](signal.SIGUSR2, None)
        self.assertIn("Received SIGUSR2, but no journal is configured", map(formatEvent, said))
        self.assertEqual((self.reactor.stops, self.killed), (0, []))

    def test_journal(self) -> None:
        """A journal that takes its signal already keeps it."""

        def exchange(number: int, taker: Any) -> Any:
            before, taken[number] = taken.get(number), taker
            return before

        taken: dict[int, Any] = {signal.SIGUSR2: print}
        SignalService(Waiting(), print, {}, exchange, mask=self.mask).startService()
        self.assertIs(taken[signal.SIGUSR2], print)

    def test_stop(self) -> None:
        """The first one stops the reactor, and nothing is killed."""
        for number in STOP:
            self.setUp()
            self.taken[number](number, None)
            self.assertEqual((self.reactor.stops, self.killed), (1, []))

    def test_again(self) -> None:
        """The second one ends the process by that signal, and removes its pid file."""
        self.pidfile.write_text(str(os.getpid()))
        self.taken[signal.SIGTERM](signal.SIGTERM, None)
        self.taken[signal.SIGINT](signal.SIGINT, None)
        self.assertEqual(self.killed, [(os.getpid(), signal.SIGINT)])
        self.assertEqual(self.taken[signal.SIGINT], signal.SIG_DFL)
        self.assertFalse(self.pidfile.exists())

    def test_stopping(self) -> None:
        """One that comes while the broker stops for another reason changes nothing."""
        self.service.stopService()
        self.taken[signal.SIGTERM](signal.SIGTERM, None)
        self.assertEqual((self.reactor.stops, self.killed), (0, []))

    def test_reload(self) -> None:
        """SIGHUP reloads, as often as it comes."""
        for _ in range(2):
            self.taken[signal.SIGHUP](signal.SIGHUP, None)
        self.assertEqual((len(self.reloads), self.reactor.stops), (2, 0))

    def test_reloadAtTheEnd(self) -> None:
        """A broker that stops reads nothing more."""
        self.service.stopService()
        self.taken[signal.SIGHUP](signal.SIGHUP, None)
        self.assertEqual(self.reloads, [])


class Waiting(Reactor):
    """A reactor that does not run yet."""

    def callWhenRunning(self, function: Any, *arguments: Any) -> None:  # type: ignore[override]
        """Call nothing."""
