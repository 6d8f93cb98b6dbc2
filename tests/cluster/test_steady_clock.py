"""fleximq.cluster.steady_clock: a reactor's timers, but seconds that cannot be set."""

import time

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.cluster.steady_clock import SteadyClock


class SteadyClockTests(SynchronousTestCase):
    """SteadyClock."""

    def test_seconds(self) -> None:
        """The reactor's time does not matter, nor that of the wall."""
        reactor = Clock()
        clock = SteadyClock(reactor)
        verifyObject(IReactorTime, clock)
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        reactor.advance(1_000_000)
        self.patch(time, "time", lambda: 0.0)
        self.assertTrue(before <= clock.seconds() < before + 60)

    def test_calls(self) -> None:
        """Timers are those of the reactor."""
        reactor = Clock()
        clock = SteadyClock(reactor)
        called: list[int] = []
        clock.callLater(2, called.append, 1)
        self.assertEqual(len(clock.getDelayedCalls()), 1)
        reactor.advance(2)
        self.assertEqual(called, [1])
