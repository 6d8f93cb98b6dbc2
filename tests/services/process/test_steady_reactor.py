"""The timers of an embedded broker, on a reactor whose seconds are those of the system clock."""

import threading

from twisted.internet.interfaces import IReactorFDSet, IReactorTCP
from twisted.internet.task import Clock, LoopingCall
from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.process.steady_reactor import SteadyReactor, steady
from tests.client.loops.test_steady_timers import SteppedCase


class SteadyReactorTests(SteppedCase):
    """A reactor around another one."""

    def setUp(self) -> None:
        """Make it."""
        super().setUp()
        self.before = set(threading.enumerate())
        self.steady = SteadyReactor(self.reactor)
        self.addCleanup(self.steady.end)

    def test_timersAreInTimeAfterAStepOfTheSystemClock(self) -> None:
        for step in (7200.0, -3600.0):
            self.called.clear()
            for delay in (0.02, 0):
                self.steady.callLater(delay, self.called.append, str(delay))
            late = self.steady.callLater(60, self.called.append, "60")
            self.reactor.step += step
            self.turnUntil(lambda: len(self.called) > 1)
            self.assertEqual(self.called, ["0", "0.02"])
            late.cancel()

    def test_aCancelledCallIsNotMade(self) -> None:
        for delay in (0, 0.01):
            call = self.steady.callLater(delay, self.called.append, "cancelled")
            call.cancel()
            self.assertFalse(call.active())
        self.steady.callLater(0.02, self.called.append, "last")
        self.turnUntil(lambda: self.called)
        self.assertEqual(self.called, ["last"])

    def test_aCallMayGetAnotherTime(self) -> None:
        first = self.steady.callLater(0, self.called.append, "first")
        first.reset(0.02)
        second = self.steady.callLater(60, self.called.append, "second")
        second.reset(0)
        self.turnUntil(lambda: len(self.called) > 1)
        self.assertEqual((self.called, first.active()), (["second", "first"], False))

    def test_aLoopingCallRuns(self) -> None:
        looping = LoopingCall(self.called.append, "again")
        looping.clock = self.steady  # type: ignore[assignment]  # it provides what its reactor does
        looping.start(0.01)
        self.turnUntil(lambda: len(self.called) > 2)
        looping.stop()

    def test_theEndLeavesNoThread(self) -> None:
        self.steady.callLater(60, self.called.append, "60")
        self.assertGreater(set(threading.enumerate()), self.before)
        self.steady.end()
        self.assertEqual(set(threading.enumerate()), self.before)

    def test_allElseIsOfTheReactor(self) -> None:
        self.assertTrue(IReactorTCP.providedBy(self.steady) and IReactorFDSet.providedBy(self.steady))
        self.assertEqual(self.steady.listenTCP, self.reactor.listenTCP)


class SteadyTests(SynchronousTestCase):
    """When there is another one."""

    def test_aReactorWithAClockOfItsOwnIsUsedAsItIs(self) -> None:
        clock = Clock()
        self.assertIs(steady(clock), clock)
