"""Histograms of commits, and those that a journal keeps."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.histogram import MESSAGES, Commits, Histogram


class HistogramTests(SynchronousTestCase):
    """Where values are counted."""

    def test_valueCountsAtFirstBoundThatItIsNotOver(self) -> None:
        """A value counts at the first bound that it is not over; there is a place above the last."""
        histogram = Histogram((1, 10))
        for value in (0, 1, 1.5, 10, 11):
            histogram.add(value)
        self.assertEqual((histogram.counts, sum(histogram.counts), histogram.sum), ([2, 2, 1], 5, 23.5))

    def test_commitCountsInAllThree(self) -> None:
        """A commit counts in all three."""
        commits = Commits()
        commits.add(0.001, 5, 1000)
        self.assertEqual((commits.seconds.sum, commits.messages.sum, commits.bytes.sum), (0.001, 5, 1000))
        self.assertEqual(commits.messages.counts[MESSAGES.index(10)], 1)
