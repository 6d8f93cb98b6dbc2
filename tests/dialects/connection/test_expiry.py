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
        self.calls: list[float] = []

    def watch(self, seconds: float) -> CredentialExpiry:
        """Watch for a moment so many seconds from now."""
        moment = self.clock.seconds() + seconds
        return CredentialExpiry(self.clock, moment, lambda: self.calls.append(self.clock.seconds()))

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

    def test_stop(self) -> None:
        """Who does not want to know any more is not told; stopping twice is no error."""
        expiry = self.watch(1)
        expiry.stop()
        expiry.stop()
        self.clock.advance(2)
        self.assertEqual((self.calls, self.clock.getDelayedCalls()), ([], []))
