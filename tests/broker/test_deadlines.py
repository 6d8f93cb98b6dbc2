"""Deadlines: on time, in order, with one timer."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.deadlines import TURN, Deadline, Deadlines
from tests.broker.parts import turn
from tests.nightly import repetitions


def _fail() -> None:
    raise ValueError("broken")


class DeadlinesTests(SynchronousTestCase):
    """What is asked for happens once, when its time has come."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.errors: list[Exception] = []
        self.batches = 0
        self.done: list[str] = []
        self.deadlines = Deadlines(self.clock, onError=self.errors.append, afterwards=self.afterwards)

    def afterwards(self) -> None:
        self.batches += 1

    def call(self, delay: float, name: str) -> Deadline:
        return self.deadlines.callLater(delay, partial(self.done.append, name))

    def test_notBefore(self) -> None:
        self.call(30, "a")
        self.clock.advance(29.999)
        self.assertEqual(self.done, [])

    def test_atItsTime(self) -> None:
        self.call(30, "a")
        self.clock.advance(30)
        self.assertEqual(self.done, ["a"])

    def test_onceOnly(self) -> None:
        self.call(30, "a")
        self.clock.pump([30, 30, 30])
        self.assertEqual(self.done, ["a"])

    def test_sumsOfFloatsCount(self) -> None:
        """Ten tenths are a second, though as floats they fall short of it: who comes up then takes both along."""
        self.call(1.0, "a")
        self.clock.pump([0.1] * 10)
        self.assertLess(self.clock.seconds(), 1.0)
        self.call(0.0, "b")
        self.clock.advance(0)
        self.assertEqual(sorted(self.done), ["a", "b"])

    def test_earliestFirst(self) -> None:
        for delay, name in ((3, "c"), (1, "a"), (2, "b")):
            self.call(delay, name)
        self.clock.advance(5)
        self.assertEqual(self.done, ["a", "b", "c"])

    def test_tiesInOrderOfCreation(self) -> None:
        for name in "hgfedcba":
            self.call(1, name)
        self.clock.advance(1)
        self.assertEqual("".join(self.done), "hgfedcba")

    def test_oneTimer(self) -> None:
        for delay in (5, 3, 4, 1, 2):
            self.call(delay, str(delay))
        self.assertEqual([timer.getTime() for timer in self.clock.getDelayedCalls()], [1])

    def test_timerMovesOn(self) -> None:
        self.call(1, "a")
        self.call(7, "b")
        self.clock.advance(1)
        self.assertEqual([timer.getTime() for timer in self.clock.getDelayedCalls()], [7])

    def test_noTimerWithoutDeadlines(self) -> None:
        self.call(1, "a")
        self.clock.advance(1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelled(self) -> None:
        deadline = self.call(1, "a")
        self.call(1, "b")
        deadline.cancel()
        self.clock.advance(1)
        self.assertEqual(self.done, ["b"])

    def test_cancelledTwiceCountsOnce(self) -> None:
        deadline = self.call(1, "a")
        self.call(1, "b")
        self.call(1, "c")
        deadline.cancel()
        deadline.cancel()
        self.assertEqual(len(self.deadlines), 2)

    def test_cancelAfterwardsIsHarmless(self) -> None:
        deadline = self.call(1, "a")
        self.call(2, "b")
        self.clock.advance(1)
        deadline.cancel()
        self.assertEqual(len(self.deadlines), 1)
        self.clock.advance(1)
        self.assertEqual(self.done, ["a", "b"])

    def test_active(self) -> None:
        waiting, cancelled, over = self.call(2, "a"), self.call(2, "b"), self.call(1, "c")
        cancelled.cancel()
        self.clock.advance(1)
        self.assertEqual([each.active() for each in (waiting, cancelled, over)], [True, False, False])

    def test_cancelledByAnEarlierOneOfTheSameBatch(self) -> None:
        victims: list[Deadline] = []
        self.deadlines.callLater(1, lambda: victims[0].cancel())
        victims.append(self.call(1, "a"))
        self.call(1, "b")
        self.clock.advance(1)
        self.assertEqual(self.done, ["b"])

    def test_lenAfterACancelledOneCameUpFirst(self) -> None:
        cancelled = self.call(2, "a")
        for delay in (1, 5, 6, 7):
            self.call(delay, "b")
        cancelled.cancel()
        self.clock.advance(1)
        self.assertEqual(len(self.deadlines), 3)

    def test_lenAfterACancelledOneCameUpAmongOthers(self) -> None:
        self.call(1, "a")
        cancelled = self.call(1, "b")
        for delay in (5, 6, 7):
            self.call(delay, "c")
        cancelled.cancel()
        self.clock.advance(1)
        self.assertEqual((len(self.deadlines), self.done), (3, ["a"]))

    def test_comingAndGoingDoesNotTouchTheClock(self) -> None:
        """The timer of a cancelled deadline is left where it is, for the next one."""
        asked: list[float] = []
        callLater = self.clock.callLater

        def counting(delay: float, *arguments: Any) -> Any:
            asked.append(delay)
            return callLater(delay, *arguments)

        self.patch(self.clock, "callLater", counting)
        for _ in range(100):
            self.call(30, "a").cancel()
        self.assertEqual(asked, [30])

    def test_cancelledOnesAreThrownOut(self) -> None:
        """However many come and go, no more than half of the heap is rubbish."""
        self.call(1000, "a")
        for _ in range(1000):
            self.call(2000, "b").cancel()
        self.assertLessEqual(len(self.deadlines._heap), 3)
        self.assertEqual(len(self.deadlines), 1)

    def test_actionsMayAskForMore(self) -> None:
        def more() -> None:
            self.call(1, "a")

        self.deadlines.callLater(1, more)
        self.clock.advance(1)
        self.assertEqual(self.done, [])
        self.clock.advance(1)
        self.assertEqual(self.done, ["a"])

    def test_anActionCannotKeepItsBatchGoing(self) -> None:
        """What it asks for at once comes in a batch of its own, so that others get their turn."""
        left = 3

        def again() -> None:
            nonlocal left
            left -= 1
            if left:
                self.deadlines.callLater(0, again)

        self.deadlines.callLater(1, again)
        self.clock.advance(1)
        self.assertEqual((left, self.batches), (0, 3))

    def test_manyAtOnce(self) -> None:
        """Actions that take long together are spread over turns, in their order, so that input is read between them."""

        def slow(name: str) -> None:
            self.done.append(name)
            self.clock.rightNow += TURN * 0.6

        for name in "abcde":
            self.deadlines.callLater(1, partial(slow, name))
        self.clock.rightNow += 1
        turns = ["".join(self.done) for _ in range(5) if turn(self.clock)]
        self.assertEqual((turns, self.batches), (["ab", "abcd", "abcde"], 3))

    def test_aBrokenActionIsReported(self) -> None:
        self.deadlines.callLater(1, _fail)
        self.clock.advance(1)
        self.assertEqual([str(error) for error in self.errors], ["broken"])

    def test_aBrokenActionStopsNobody(self) -> None:
        self.call(1, "a")
        self.deadlines.callLater(1, _fail)
        self.call(1, "b")
        self.call(2, "c")
        self.clock.pump([1, 1])
        self.assertEqual(self.done, ["a", "b", "c"])

    def test_withoutOnErrorTheClockGetsIt(self) -> None:
        deadlines = Deadlines(self.clock)
        deadlines.callLater(1, _fail)
        deadlines.callLater(1, partial(self.done.append, "a"))
        self.assertRaises(ValueError, self.clock.advance, 1)
        self.clock.advance(0)
        self.assertEqual(self.done, ["a"])

    def test_afterwardsOncePerBatch(self) -> None:
        for delay in (1, 1, 1, 2):
            self.call(delay, "a")
        self.clock.advance(1)
        self.assertEqual(self.batches, 1)
        self.clock.advance(1)
        self.assertEqual(self.batches, 2)

    def test_afterwardsFollowsTheActions(self) -> None:
        deadlines = Deadlines(self.clock, afterwards=partial(self.done.append, "afterwards"))
        deadlines.callLater(1, partial(self.done.append, "a"))
        deadlines.callLater(1, partial(self.done.append, "b"))
        self.clock.advance(1)
        self.assertEqual(self.done, ["a", "b", "afterwards"])

    def test_noAfterwardsForNothing(self) -> None:
        self.call(1, "a").cancel()
        first, _ = self.call(1, "b"), self.call(5, "c")
        first.cancel()
        self.clock.advance(1)
        self.assertEqual(self.batches, 0)

    def test_brokenAfterwardsIsReported(self) -> None:
        deadlines = Deadlines(self.clock, onError=self.errors.append, afterwards=_fail)
        deadlines.callLater(1, partial(self.done.append, "a"))
        deadlines.callLater(2, partial(self.done.append, "b"))
        self.clock.pump([1, 1])
        self.assertEqual((self.done, len(self.errors)), (["a", "b"], 2))

    def test_stopCancelsEverything(self) -> None:
        deadline = self.call(1, "a")
        self.deadlines.stop()
        self.assertEqual((self.clock.getDelayedCalls(), deadline.active(), len(self.deadlines)), ([], False, 0))

    def test_stopFromWithinABatch(self) -> None:
        self.deadlines.callLater(1, self.deadlines.stop)
        self.call(1, "a")
        self.clock.pump([1, 1])
        self.assertEqual(self.done, [])

    def test_nothingAfterStop(self) -> None:
        self.deadlines.stop()
        deadline = self.call(1, "a")
        self.clock.advance(1)
        self.assertEqual((self.done, deadline.active(), self.clock.getDelayedCalls()), ([], False, []))

    def test_stopTwice(self) -> None:
        self.call(1, "a")
        self.deadlines.stop()
        self.deadlines.stop()
        self.assertEqual(len(self.deadlines), 0)

    def test_cancelAfterStop(self) -> None:
        deadline = self.call(1, "a")
        self.deadlines.stop()
        deadline.cancel()
        self.assertEqual(len(self.deadlines), 0)

    @settings(max_examples=repetitions(80, 1000), deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=60))
    def test_likeASortedList(self, wishes: list[tuple[int, bool]]) -> None:
        """Any mix of delays and cancellations comes out as sorting it would have it."""
        clock = Clock()
        deadlines = Deadlines(clock)
        done: list[int] = []
        calls: list[Callable[[], None]] = [partial(done.append, number) for number in range(len(wishes))]
        made = [deadlines.callLater(delay, call) for (delay, _), call in zip(wishes, calls, strict=True)]
        for deadline, (_, kept) in zip(made, wishes, strict=True):
            if not kept:
                deadline.cancel()
        expected = sorted((delay, number) for number, (delay, kept) in enumerate(wishes) if kept)
        self.assertEqual(len(deadlines), len(expected))
        for moment in range(21):
            self.assertLessEqual(len(clock.getDelayedCalls()), 1)
            self.assertEqual(done, [number for delay, number in expected if delay < moment])
            clock.advance(1 if moment else 0)
            self.assertEqual(done, [number for delay, number in expected if delay <= moment])
