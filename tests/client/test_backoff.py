"""The pauses between attempts."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.backoff import Backoff
from fleximq.errors import SettingError


class BackoffTests(SynchronousTestCase):
    """Longer and longer, up to a bound."""

    def test_pausesGrowUpToTheLimit(self) -> None:
        """Each is twice the last."""
        pauses = Backoff(first=1, most=10, jitter=0).pauses()
        self.assertEqual(list(islice(pauses, 6)), [1, 2, 4, 8, 10, 10])

    def test_jitterShortensPauses(self) -> None:
        """By a random part."""
        pauses = Backoff(first=1, most=10, jitter=0.5).pauses(iter((0, 1, 0.5)).__next__)
        self.assertEqual(list(islice(pauses, 3)), [1, 1, 3])

    @given(st.floats(0, 1))
    def test_noPauseIsNegativeOrOverTheLimit(self, jitter: float) -> None:
        """With any jitter."""
        for pause in islice(Backoff(jitter=jitter).pauses(), 20):
            self.assertTrue(0 <= pause <= 30)

    def test_asManyPausesAsAttempts(self) -> None:
        """Then it ends."""
        self.assertEqual(len(list(Backoff(attempts=3).pauses())), 3)

    def test_wrongValuesAreRefused(self) -> None:
        """As settings."""
        for wrong in ({"first": 0}, {"first": 31}, {"factor": 0.9}, {"jitter": 1.1}, {"jitter": -0.1}, {"attempts": 0}):
            self.assertRaises(SettingError, Backoff, **wrong)
