"""Timers of clients on a reactor whose seconds are those of the system clock."""

import time
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.pollreactor import PollReactor
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.loops import reactor
from fleximq.client.loops.connection import Connection
from fleximq.client.loops.reactor import ReactorLoop
from fleximq.client.loops.steady_timers import timersOf
from fleximq.client.settings import ClientSettings
from fleximq.values.urls import Url

#: How often the reactor turns while a test waits, each time for at most a tenth of a second.
TURNS = 300


class SteppedReactor(PollReactor):
    """A reactor in this thread; ``step`` is how far the system clock was set."""

    step = 0.0

    def seconds(self) -> float:
        """Return the seconds of the system clock."""
        return time.time() + self.step


class SteppedCase(SynchronousTestCase):
    """``loop`` is a client's, ``called`` are the names of its timers that fired."""

    def setUp(self) -> None:
        """The reactor."""
        self.reactor: Any = SteppedReactor()
        self.addCleanup(self.reactor.fireSystemEvent, "shutdown")
        self.loop = ReactorLoop(self.reactor)
        self.called: list[str] = []

    def turnUntil(self, done: Callable[[], object]) -> None:
        """Let the reactor turn; nothing else wakes it."""
        for _ in range(TURNS):
            if done():
                return
            self.reactor.iterate(0.1)
        self.fail(f"in {TURNS} turns only {self.called} fired")


class TimerTests(SteppedCase):
    """ReactorLoop.later()."""

    def test_steps(self) -> None:
        """A timer fires in time after a step of the system clock, forward or backward, and no other does."""
        for step in 7200.0, 100.0, -3600.0:
            self.called.clear()
            cancels = [self.loop.later(60, lambda: self.called.append("60"))]
            self.loop.later(0.05, lambda: self.called.append("0.05"))
            cancels.append(self.loop.later(0.01, lambda: self.called.append("cancelled")))
            cancels[1]()
            self.reactor.step += step
            self.turnUntil(lambda: self.called)
            self.assertEqual(self.called, ["0.05"])
            cancels[0]()

    def test_connecting(self) -> None:
        """The timeout of an attempt to connect, too."""
        self.patch(reactor, "UNIXClientEndpoint", lambda *arguments, **more: _Nowhere())
        found: list[Any] = []
        nothing: Any = found.append
        connection = Connection(self.loop, nothing, nothing, nothing)
        dialling = self.loop.dial(Url.parse("ipc:///x"), ClientSettings(timeout=0.1), connection)
        Deferred.fromCoroutine(dialling).addBoth(found.append)
        self.reactor.step -= 3600.0
        self.turnUntil(lambda: found)
        self.assertEqual(str(found[0].value), "cannot connect to ipc:///x: User timeout caused connection failure.")


class _Nowhere:
    """An endpoint where nothing answers."""

    def connect(self, factory: object) -> "Deferred[Any]":
        """Wait for ever."""
        return Deferred()


class ChoiceTests(SynchronousTestCase):
    """timersOf()."""

    def test_otherClock(self) -> None:
        """A reactor that does not count by the system clock keeps its own timers: that of a broker, or of a test."""
        clock = Clock()
        self.assertIs(timersOf(clock), clock)

    def test_shared(self) -> None:
        """All clients on a reactor share one thread."""
        made: Any = SteppedReactor()
        self.addCleanup(made.fireSystemEvent, "shutdown")
        self.assertIs(timersOf(made), timersOf(made))
