"""Percentiles by the nearest rank."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.percentiles import percentile


class PercentileTests(SynchronousTestCase):
    """Known values."""

    def test_hundred(self) -> None:
        """Of 1 to 100 each percentile is its own number, in whatever order they come."""
        values = list(range(100, 0, -1))
        self.assertEqual([percentile(values, each) for each in (1, 50, 99, 100)], [1, 50, 99, 100])

    def test_few(self) -> None:
        """Of few values the highest percentiles are the highest value."""
        self.assertEqual([percentile([3, 1, 2], each) for each in (0, 50, 99)], [1, 2, 3])

    def test_none(self) -> None:
        """Of nothing there is none."""
        self.assertRaises(IndexError, percentile, [], 50)
