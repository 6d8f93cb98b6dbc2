"""Histograms."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.histogram import Histogram


class HistogramTests(SynchronousTestCase):
    """Where values are counted."""

    def test_valueCountsAtFirstBoundThatItIsNotOver(self) -> None:
        """A value counts at the first bound that it is not over; there is a place above the last."""
        histogram = Histogram((1, 10))
        for value in (0, 1, 1.5, 10, 11):
            histogram.add(value)
        self.assertEqual((histogram.counts, sum(histogram.counts), histogram.sum), ([2, 2, 1], 5, 23.5))
