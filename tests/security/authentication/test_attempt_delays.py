"""How wrong attempts are slowed."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import NoCapacity
from fleximq.security.authentication.attempt_delays import (
    FIRST_DELAY,
    FORGET_AFTER,
    MAX_CONCURRENT,
    MAX_DELAY,
    AttemptDelays,
)


class AttemptsTests(SynchronousTestCase):
    """One place or several, on a clock that stands still unless it is moved."""

    def setUp(self) -> None:
        """Remember nothing yet."""
        self.clock = Clock()
        self.attempts = AttemptDelays(self.clock, most=5)

    def fail(self, place: str = "here") -> float:  # type: ignore[override]
        """Make a wrong attempt, and return its delay."""
        return self.attempts.attempt(place).fail()

    def test_eachWrongAttemptOfPlaceDoublesDelayOfNextUpToLimit(self) -> None:
        """Each wrong attempt of a place doubles the delay of the next, up to a limit."""
        delays = []
        for _ in range(9):
            delays.append(self.fail())
            self.clock.advance(MAX_DELAY)
        self.assertEqual(delays, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])

    def test_eachPlaceAlone(self) -> None:
        """Another place pays nothing for it."""
        for _ in range(5):
            self.fail()
        self.assertEqual(self.fail("there"), FIRST_DELAY)

    def test_afterQuietWhilePlaceHasCleanSlateNotBefore(self) -> None:
        """After a quiet while a place has a clean slate, not before."""
        self.fail()
        self.clock.advance(FORGET_AFTER)
        self.assertEqual(self.fail(), 2 * FIRST_DELAY)
        self.clock.advance(FORGET_AFTER + 1)
        self.assertEqual(self.fail(), FIRST_DELAY)

    def test_atOnce(self) -> None:
        """So many may be under way from a place, no more; one that leaves makes room."""
        under = [self.attempts.attempt("here") for _ in range(MAX_CONCURRENT)]
        for attempt in under:
            attempt.enter()
            attempt.enter()
        self.assertRaises(NoCapacity, self.attempts.attempt("here").enter)
        self.attempts.attempt("there").enter()
        under[0].leave()
        under[0].leave()
        self.attempts.attempt("here").enter()
        self.assertRaises(NoCapacity, self.attempts.attempt("here").enter)

    def test_delaysTakePart(self) -> None:
        """An answer that is delayed counts as under way until its time, whether anybody waits for it or not."""
        for _ in range(MAX_CONCURRENT):
            attempt = self.attempts.attempt("here")
            attempt.enter()
            attempt.fail()
            attempt.leave()
        self.assertRaises(NoCapacity, self.attempts.attempt("here").enter)
        self.assertRaises(NoCapacity, self.attempts.attempt("here").fail)
        self.clock.advance(FIRST_DELAY)
        self.attempts.attempt("here").enter()
        self.assertRaises(NoCapacity, self.attempts.attempt("here").enter)

    def test_onlySoManyPlacesAreRemembered(self) -> None:
        """Only so many places are remembered; those whose last attempt is oldest go first."""
        for number in range(100):
            self.fail(f"place {number}")
        self.assertEqual(len(self.attempts), 5)
        self.assertEqual((self.fail("place 99"), self.fail("place 3")), (2 * FIRST_DELAY, FIRST_DELAY))

    def test_oldOnesGo(self) -> None:
        """Places that are quiet for long are not kept, though there would be room."""
        for number in range(4):
            self.fail(f"place {number}")
        self.clock.advance(FORGET_AFTER + 1)
        self.fail("another")
        self.assertEqual(len(self.attempts), 1)

    def test_busyOnesStay(self) -> None:
        """A place where something is under way is not forgotten."""
        attempt = self.attempts.attempt("here")
        attempt.enter()
        for number in range(10):
            self.fail(f"place {number}")
        self.assertEqual(len(self.attempts), 5)
        attempt.leave()
        self.fail()
        self.assertEqual(self.fail(), 2 * FIRST_DELAY)

    def test_manyFailures(self) -> None:
        """The delay is a number, however often somebody fails."""
        for _ in range(5000):
            delay = self.fail()
            self.clock.advance(MAX_DELAY)
        self.assertEqual(delay, MAX_DELAY)
