"""When rows are due that are published again."""

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    import numpy as np

    from fleximq.pipeline.jobs.replay_schedule import ReplaySchedule, ScheduledSlice

SECOND = 1_000_000


class PaceTests(SynchronousTestCase):
    """Slices of rows."""

    def slices(self, pace: "ReplaySchedule", *times: float) -> "list[ScheduledSlice]":
        """Return them for rows that came at these seconds."""
        found = pace.slices(np.array([1_700_000_000 * SECOND + round(each * SECOND) for each in times], np.int64))
        return [ScheduledSlice(each.start, each.stop, round(each.due, 6)) for each in found]

    def test_withoutAPaceAllIsOneSliceAtOnce(self) -> None:
        self.assertEqual(self.slices(ReplaySchedule(), 0, 100, 200), [(0, 3, 0.0)])
        self.assertEqual(self.slices(ReplaySchedule()), [])

    def test_pausesStayAndCloseRowsAreOneSlice(self) -> None:
        self.assertEqual(
            self.slices(ReplaySchedule(speed=1.0), 0, 0.05, 0.3, 2), [(0, 2, 0.0), (2, 3, 0.3), (3, 4, 2.0)]
        )

    def test_pausesAreMultiplied(self) -> None:
        self.assertEqual(self.slices(ReplaySchedule(speed=10), 0, 5), [(0, 1, 0.0), (1, 2, 0.5)])
        self.assertEqual(self.slices(ReplaySchedule(speed=0.5), 0, 5), [(0, 1, 0.0), (1, 2, 10.0)])

    def test_rhythmGoesOnFromPortionToPortion(self) -> None:
        pace = ReplaySchedule(speed=1.0)
        self.slices(pace, 0, 1)
        self.assertEqual(self.slices(pace, 3), [(0, 1, 3.0)])

    def test_rowOfAnEarlierTimeIsDueWithTheOneBefore(self) -> None:
        pace = ReplaySchedule(speed=1.0)
        self.assertEqual(self.slices(pace, 5, 2, 6), [(0, 2, 0.0), (2, 3, 1.0)])
        self.assertEqual(self.slices(pace, 1, 7), [(0, 1, 1.0), (1, 2, 2.0)])

    def test_rateIgnoresTheTimesOfRows(self) -> None:
        pace = ReplaySchedule(rate=20)
        self.assertEqual(self.slices(pace, *[0] * 5), [(0, 2, 0.0), (2, 4, 0.1), (4, 5, 0.2)])
        self.assertEqual(self.slices(pace, 0, 0), [(0, 1, 0.2), (1, 2, 0.3)])

    def test_rateMayBeLessThanOneASecond(self) -> None:
        self.assertEqual(self.slices(ReplaySchedule(rate=0.5), 0, 0), [(0, 1, 0.0), (1, 2, 2.0)])
