"""A reactor whose timers do not follow the system clock."""

from collections.abc import Callable

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.base import ReactorBase
from twisted.internet.pollreactor import PollReactor
from twisted.internet.selectreactor import SelectReactor
from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.process.monotonic_reactor import followMonotonicClock

_KINDS: tuple[Callable[[], ReactorBase], ...] = SelectReactor, PollReactor, AsyncioSelectorReactor


class ReactorCase(SynchronousTestCase):
    """Reactors that never run, with two clocks; ``called`` are the names of timers that fired."""

    def setUp(self) -> None:
        """A system clock, and a machine that started a moment ago."""
        self.wall, self.steady = 1_800_000_000.0, 50.0
        self.called: list[str] = []

    def make(self, kind: Callable[[], ReactorBase]) -> ReactorBase:
        """Return a reactor whose seconds are those of the system clock, as Twisted's are."""
        made = kind()
        self.addCleanup(made.fireSystemEvent, "shutdown")
        made.seconds = lambda: self.wall
        return made

    def follow(self, reactor: ReactorBase) -> None:
        """Let it follow the other clock."""
        followMonotonicClock(reactor, lambda: self.steady)

    def later(self, reactor: ReactorBase, delay: float) -> None:
        """Note the delay when it is over."""
        reactor.callLater(delay, self.called.append, f"{delay:g}")


class FollowTests(ReactorCase):
    """followMonotonicClock()."""

    def test_steps(self) -> None:
        """Neither a step forward fires a timer, nor does one backward delay it."""
        for kind in _KINDS:
            for step in 7200.0, 100.0, -3600.0:
                self.called.clear()
                reactor = self.make(kind)
                self.follow(reactor)
                self.later(reactor, 60)
                self.wall += step
                self.steady += 59
                reactor.runUntilCurrent()
                self.assertEqual((self.called, reactor.timeout()), ([], 1.0))
                self.steady += 1
                reactor.runUntilCurrent()
                self.assertEqual(self.called, ["60"])

    def test_earlierTimers(self) -> None:
        """Timers from before keep their order and delays, in the heap, new, or cancelled; they can be reset."""
        reactor = self.make(SelectReactor)
        self.later(reactor, 3)
        first, cancelled = reactor.callLater(1, self.called.append, "1"), reactor.callLater(0.5, self.fail)
        reactor.runUntilCurrent()
        cancelled.cancel()
        self.later(reactor, 2)
        self.follow(reactor)
        first.reset(2.5)
        for expected in [], ["2"], ["2", "1", "3"]:
            self.steady += 1
            self.wall -= 10
            reactor.runUntilCurrent()
            self.assertEqual(self.called, expected)

    def test_twice(self) -> None:
        """A second call changes nothing."""
        reactor = self.make(SelectReactor)
        self.later(reactor, 3)
        self.follow(reactor)
        self.follow(reactor)
        self.assertEqual(reactor.timeout(), 3.0)
