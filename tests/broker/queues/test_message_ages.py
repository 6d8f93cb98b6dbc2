"""The ages of messages."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.queues.message_ages import STEPS, MessageAges

TIME_TO_LIVE = 100.0


class AgesTests(SynchronousTestCase):
    """A message expires at its time, or up to a step later."""

    def test_atTheLimit(self) -> None:
        ages = MessageAges(TIME_TO_LIVE)
        ages.add(3, 10.0)
        self.assertEqual([ages.before(now) for now in (109.9, 110.0, 500.0)], [0, 3, 3])

    def test_oneByOne(self) -> None:
        ages = MessageAges(TIME_TO_LIVE)
        for number in range(1, 6):
            ages.add(number, 10.0 * number)
        self.assertEqual([ages.before(now) for now in (109.0, 110.0, 129.0, 150.0)], [0, 1, 2, 5])

    def test_fewAreKept(self) -> None:
        ages = MessageAges(TIME_TO_LIVE)
        for number in range(10_000):
            ages.add(number, number * TIME_TO_LIVE / 10_000)
        self.assertLessEqual(len(list(ages)), 2 * STEPS)

    @given(st.lists(st.floats(0, 5), min_size=1, max_size=200))
    def test_neverEarlyAndHardlyLate(self, gaps: list[float]) -> None:
        ages, times, now = MessageAges(TIME_TO_LIVE), [], 0.0
        for number, gap in enumerate(gaps, 1):
            now += gap
            times.append(now)
            ages.add(number, now)
        for later in (TIME_TO_LIVE / 2, TIME_TO_LIVE, TIME_TO_LIVE + now / 2):
            expired = ages.before(later)
            self.assertTrue(all(time + TIME_TO_LIVE <= later + 1e-5 for time in times[:expired]))
            self.assertTrue(all(time + TIME_TO_LIVE + 2 * TIME_TO_LIVE / STEPS > later for time in times[expired:]))
