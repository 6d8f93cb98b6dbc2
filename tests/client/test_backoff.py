"""The pauses between attempts."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.backoff import Backoff
from fleximq.errors import SettingError


class BackoffTests(SynchronousTestCase):
    """Longer and longer, up to a bound."""

    def test_growing(self) -> None:
        """Each is twice the last, none over the bound."""
        pauses = Backoff(first=1, most=10, jitter=0).pauses()
        self.assertEqual(list(islice(pauses, 6)), [1, 2, 4, 8, 10, 10])

    def test_jitter(self) -> None:
        """A part of each is left out, by chance."""
        pauses = Backoff(first=1, most=10, jitter=0.5).pauses(iter((0, 1, 0.5)).__next__)
        self.assertEqual(list(islice(pauses, 3)), [1, 1, 3])

    @given(st.floats(0, 1))
    def test_within(self, jitter: float) -> None:
        """No pause is over the bound or negative, whatever the chance."""
        for pause in islice(Backoff(jitter=jitter).pauses(), 20):
            self.assertTrue(0 <= pause <= 30)

    def test_attempts(self) -> None:
        """There are as many as there are attempts."""
        self.assertEqual(len(list(Backoff(attempts=3).pauses())), 3)

    def test_pauseAfterFailures(self) -> None:
        """None after the last attempt."""
        backoff = Backoff(first=1, most=3, jitter=0, attempts=4)
        self.assertEqual([backoff.pause(failures) for failures in (1, 2, 3, 4, 5)], [1, 2, 3, None, None])

    def test_nonsense(self) -> None:
        """Values that make no sense are refused."""
        for wrong in ({"first": 0}, {"first": 31}, {"factor": 0.9}, {"jitter": 1.1}, {"jitter": -0.1}, {"attempts": 0}):
            self.assertRaises(SettingError, Backoff, **wrong)
