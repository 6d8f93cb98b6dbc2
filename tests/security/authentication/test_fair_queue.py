"""The line in which every place has its turn."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import NoCapacity
from fleximq.security.authentication.fair_queue import FairQueue


class LineTests(SynchronousTestCase):
    """Work that ends when the test says so."""

    def setUp(self) -> None:
        """Begin with nothing."""
        self.line = FairQueue(2, most=6)
        self.begun: list[str] = []
        self.ends: dict[str, Deferred[Any]] = {}

    def add(self, name: str) -> Deferred[Any]:
        """Put work into the line; its first letter is the place it is for."""

        def work() -> Deferred[Any]:
            self.begun.append(name)
            self.ends[name] = Deferred()
            return self.ends[name]

        return self.line.run(name[0], work)

    def test_atOnce(self) -> None:
        """So much is done at a time; the next begins when one ends."""
        results = [self.add(name) for name in ("a1", "a2", "a3")]
        self.assertEqual((self.begun, len(self.line)), (["a1", "a2"], 1))
        self.ends["a2"].callback("done")
        self.assertEqual((self.successResultOf(results[1]), self.begun), ("done", ["a1", "a2", "a3"]))
        self.assertNoResult(results[0])

    def test_placeWithMuchInLineDoesNotHoldUpOthers(self) -> None:
        """A place with much in the line does not hold up the others."""
        for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
            self.add(name)
        for name in ("a1", "a2", "a3", "b1", "c1", "a4"):
            self.ends[name].callback(None)
        self.assertEqual(self.begun, ["a1", "a2", "a3", "b1", "c1", "a4", "b2"])

    def test_whatGoesWrongIsToldAndDoesNotStopLine(self) -> None:
        """What goes wrong is told, and does not stop the line."""
        first, second, third = (self.add(name) for name in ("a1", "a2", "a3"))
        self.ends["a1"].errback(ValueError("broken"))
        self.failureResultOf(first, ValueError)
        self.assertIn("a3", self.begun)

        def broken() -> None:
            raise ValueError("at once")

        self.ends["a2"].callback(None)
        self.failureResultOf(self.line.run("a", broken), ValueError)
        self.ends["a3"].callback(7)
        self.assertEqual(self.successResultOf(third), 7)

    def test_whereLineIsFullOfOnePlaceThatPlaceIsRefused(self) -> None:
        """Where the line is full of one place, that place is refused."""
        for number in range(8):
            self.add(f"a{number}")
        self.failureResultOf(self.add("a8"), NoCapacity)
        self.assertEqual(len(self.line), 6)

    def test_givesWay(self) -> None:
        """The place with the most in the line gives way to another, with its last."""
        works = [self.add(f"a{number}") for number in range(8)]
        other = self.add("b0")
        self.failureResultOf(works[7], NoCapacity)
        self.assertNoResult(other)
        self.assertEqual(len(self.line), 6)
        self.ends["a0"].callback(None)
        self.ends["a1"].callback(None)
        self.assertEqual(self.begun[2:], ["a2", "b0"])

    def test_whoIsCancelledWhileItWaitsIsNeverBegun(self) -> None:
        """Who is cancelled while it waits is never begun."""
        for name in ("a1", "a2"):
            self.add(name)
        third, fourth = self.add("b1"), self.add("b2")
        third.cancel()
        self.failureResultOf(third, CancelledError)
        self.ends["a1"].callback(None)
        self.assertEqual((self.begun, len(self.line)), (["a1", "a2", "b2"], 0))
        fourth.cancel()
        self.failureResultOf(fourth, CancelledError)

    def test_begunCounts(self) -> None:
        """What has begun counts until it ends, though nobody listens any more."""
        first, _, third = (self.add(name) for name in ("a1", "a2", "a3"))
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertEqual(self.begun, ["a1", "a2"])
        self.ends["a1"].errback(ValueError("nobody hears this"))
        self.assertEqual(self.begun, ["a1", "a2", "a3"])
        self.ends["a3"].callback(1)
        self.assertEqual(self.successResultOf(third), 1)

    def test_manyAtOnce(self) -> None:
        """A long line of work that is done at once is no deep recursion."""
        line, end = FairQueue(1, most=5000), Deferred[None]()
        results = [line.run("a", lambda: end), *(line.run("a", lambda: 5) for _ in range(5000))]
        end.callback(None)
        self.assertEqual(self.successResultOf(results[-1]), 5)
