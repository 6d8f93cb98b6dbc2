"""Consumers that wait, each served once and in order."""

from collections.abc import Callable
from functools import partial

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.queues.waiting_consumers import WaitingConsumers


def _fail() -> None:
    raise ValueError("broken")


class WaitersTests(SynchronousTestCase):
    """Three waiters and a number of things to have."""

    def setUp(self) -> None:
        self.errors: list[Exception] = []
        self.woken: list[str] = []
        self.things = 0
        self.waiters = WaitingConsumers(self.errors.append)

    def wait(self, names: str) -> list[Callable[[], None]]:
        return [self.waiters.add(partial(self.take, name)) for name in names]

    def take(self, name: str, number: int = 1) -> None:
        self.woken.append(name)
        self.things -= number

    def wake(self, things: int) -> None:
        self.things += things
        self.waiters.wake(lambda: self.things)

    def test_inOrder(self) -> None:
        self.wait("abc")
        self.wake(2)
        self.assertEqual((self.woken, len(self.waiters)), (["a", "b"], 1))

    def test_onlyOnce(self) -> None:
        self.wait("a")
        self.wake(2)
        self.wake(2)
        self.assertEqual(self.woken, ["a"])

    def test_nobodyForNothing(self) -> None:
        self.wait("a")
        self.wake(0)
        self.assertEqual(self.woken, [])

    def test_cancelled(self) -> None:
        cancel = self.wait("abc")[0]
        cancel()
        self.wake(1)
        self.assertEqual(self.woken, ["b"])

    def test_cancelAfterwardsIsHarmless(self) -> None:
        cancel = self.wait("a")[0]
        self.wake(1)
        cancel()
        self.assertEqual((self.woken, len(self.waiters)), (["a"], 0))

    def test_whoTakesMoreLeavesLess(self) -> None:
        self.waiters.add(partial(self.take, "greedy", 3))
        self.wait("ab")
        self.wake(4)
        self.assertEqual(self.woken, ["greedy", "a"])

    def test_whoTakesNothingCountsAsServed(self) -> None:
        self.waiters.add(partial(self.take, "shy", 0))
        self.wait("ab")
        self.wake(2)
        self.assertEqual(self.woken, ["shy", "a"])

    def test_whoWaitsAgainIsLast(self) -> None:
        def again() -> None:
            self.take("again")
            self.wait("x")

        self.waiters.add(again)
        self.wait("a")
        self.wake(3)
        self.assertEqual(self.woken, ["again", "a", "x"])

    def test_aBrokenOneIsReportedAndHurtsNobody(self) -> None:
        self.waiters.add(_fail)
        self.wait("a")
        self.wake(2)
        self.assertEqual((len(self.errors), self.woken), (1, ["a"]))

    def test_clear(self) -> None:
        self.wait("abc")
        self.waiters.clear()
        self.wake(3)
        self.assertEqual(self.woken, [])

    def test_aChainIsNoRecursion(self) -> None:
        """A waiter that brings something itself, ten thousand times over, needs no deeper stack."""
        left = 10_000

        def passOn() -> None:
            nonlocal left
            self.things -= 1
            left -= 1
            if left:
                self.waiters.add(passOn)
                self.wake(1)

        self.waiters.add(passOn)
        self.wake(1)
        self.assertEqual((left, self.errors), (0, []))
