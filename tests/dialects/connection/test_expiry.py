"""When credentials end."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.connection.credential_check import CHECK_SECONDS, CredentialExpiry


class ExpiryTests(SynchronousTestCase):
    """One watch."""

    def setUp(self) -> None:
        """Begin long after 1970."""
        self.clock = Clock()
        self.clock.advance(1_000_000)
        self.step = 0.0
        self.calls: list[float] = []

    def watch(self, seconds: float) -> CredentialExpiry:
        """Watch for a moment so many seconds from now."""
        moment = self.clock.seconds() + seconds
        return CredentialExpiry(
            self.clock,
            lambda: self.clock.seconds() + self.step,
            moment,
            lambda: self.calls.append(self.clock.seconds()),
        )

    def test_then(self) -> None:
        """It is told at the moment, not before, and once."""
        self.watch(10)
        self.clock.advance(9.9)
        self.assertEqual(self.calls, [])
        self.clock.advance(0.1)
        self.assertEqual(self.calls, [1_000_010])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_past(self) -> None:
        """A moment that is past is told on the reactor's next round."""
        self.watch(-5)
        self.assertEqual(self.calls, [])
        self.clock.advance(0)
        self.assertEqual(self.calls, [1_000_000])

    def test_far(self) -> None:
        """A moment far away is looked for again and again."""
        self.watch(2.5 * CHECK_SECONDS)
        self.clock.pump([CHECK_SECONDS, CHECK_SECONDS])
        self.assertEqual((self.calls, len(self.clock.getDelayedCalls())), ([], 1))
        self.clock.advance(0.5 * CHECK_SECONDS)
        self.assertEqual(len(self.calls), 1)

    def test_stepped(self) -> None:
        """A step of the wall clock is noticed within CHECK_SECONDS: forward it ends, backward it ends later."""
        self.watch(1_000)
        self.step = 7200.0
        self.clock.advance(CHECK_SECONDS)
        self.assertEqual(len(self.calls), 1)
        self.watch(1_000 + self.step)
        self.step -= 3600.0
        self.clock.pump([CHECK_SECONDS] * 60)
        self.assertEqual(len(self.calls), 1)
        self.clock.pump([CHECK_SECONDS] * 20)
        self.assertEqual(len(self.calls), 2)

    def test_stop(self) -> None:
        """Who does not want to know any more is not told; stopping twice is no error."""
        expiry = self.watch(1)
        expiry.stop()
        expiry.stop()
        self.clock.advance(2)
        self.assertEqual((self.calls, self.clock.getDelayedCalls()), ([], []))
