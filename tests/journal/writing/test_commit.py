"""The statistics of commits."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.writing.commit import Commits
from fleximq.values.histogram import MESSAGES


class CommitsTests(SynchronousTestCase):
    """Durations and sizes."""

    def test_commitCountsInAllThree(self) -> None:
        """A commit counts in all three."""
        commits = Commits()
        commits.add(0.001, 5, 1000)
        self.assertEqual((commits.seconds.sum, commits.messages.sum, commits.bytes.sum), (0.001, 5, 1000))
        self.assertEqual(commits.messages.counts[MESSAGES.index(10)], 1)
